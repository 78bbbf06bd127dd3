"""What cache tiers behind the chips are worth: where fetching beats computing, and throughput by what is found.

A tier adds its capacity to the one above it: an LRU cache over all of them finds what the trace's stack distances say.
What the plan's sequences in flight leave of the chips' memory is the first tier. The part of a prompt that is found is
not computed; what the chips do not hold of it comes over the tier's link, which caps the rate; a tier slower than
computing is not used.
Requests are taken at the trace's mean lengths, routed to a cache that has their prefix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs import kv_transfer, prefix, tiers
from mlaplan.costs.table import Table
from mlaplan.costs.tiers import Link
from mlaplan.explain import explain
from mlaplan.fleet.instances import timed
from mlaplan.pricing import price
from mlaplan.strategy import to_table

if TYPE_CHECKING:
    from mlaplan.costs.stack_distance import Curve
    from mlaplan.rules.rule import Question
    from mlaplan.strategy import Strategy

CONTEXTS = (512, 2048, 8192, 32_768, 131_072)
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)  # of what can be found at all


class Tier(NamedTuple):
    """A place to keep a cache: bytes in all, and the way from there; None for the chips' own memory."""

    name: str
    capacity_bytes: float
    link: Link | None


@dataclass(frozen=True, slots=True)
class Context:
    """One length: time to compute it, to fetch it from each tier, and the break-even rate of a link."""

    tokens: int
    recompute_s: float
    fetch_s: tuple[float, ...]
    break_even_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Worth:
    """A tier with all above it: what it holds and finds, what is served, and what it adds."""

    tier: Tier
    tokens: float  # of the whole cache, all tiers so far
    hit_share: float
    fetched_tokens: float  # of a prompt, from this tier
    used: bool  # fetching is faster than computing
    tok_s_chip: float
    ttft_s: float
    capped: bool  # by the link


@dataclass(frozen=True, slots=True)
class Found:
    """Everything. sizes: (share of prompt tokens found, tokens that a cache must hold, bytes), rising."""

    strategy: Strategy
    token_bytes: float  # on a chip, for fetching
    stored_bytes: float  # of one token kept once
    links: list[Link]
    contexts: list[Context]
    curve: Curve | None
    sizes: list[tuple[float, float, float]]
    worth: list[Worth]


def contexts(q: Question, s: Strategy, links: list[Link], tokens: float | None) -> list[Context]:
    """Fetch or recompute, by length up to the positions of the model."""
    per_token = fetched_bytes(q, s)
    out = []
    for n in (n for n in CONTEXTS if n <= q.setting.model.max_position):
        computed = prompt_s(q, s, n, 0, tokens)
        even = tiers.break_even_bytes_per_s(n, per_token, computed, float(q.setting.chip.overheads.collective))
        fetched = tuple(float(tiers.fetch_s(n, per_token, link)) for link in links)
        out.append(Context(n, computed, fetched, float(even)))
    return out


def prompt_s(q: Question, s: Strategy, isl: int, found: int, tokens: float | None) -> float:
    """A prompt's own way through prefill, of which `found` tokens are cached. [s]"""
    work = replace(q.workload, isl=isl, osl=1, prefix_tokens=found, prefix_groups=None, concurrency=None, rate=None)
    one = replace(q, workload=work, budget=q.budget._replace(max_context=work.max_context, shared=None))
    table = Table(to_table([replace(s, batch=1, replicas=1)]))
    return float(timed(one, table.having(**price(one, table, tokens)), tokens)["first_s"][0])


def fetched_bytes(q: Question, s: Strategy) -> float:
    """Bytes of one token on a chip: what each fetches, copies counted. [B]"""
    return kv_transfer.chip_token_bytes(q.setting.model, replace(s, mtp=0))


def spare_tokens(q: Question, s: Strategy) -> float:
    """Tokens that the chips hold beside the sequences in flight, over all attention-DP ranks."""
    held = explain(q, s, served=False).memory.kv_tokens
    need = float(np.ravel(prefix.need_tokens(s.to_dict(), q.budget.max_context, None))[0])
    return max(held - need, 0.0) * s.dp * s.replicas


def stored_bytes(q: Question, s: Strategy) -> float:
    """Bytes of one token kept once: of all chips of a rank, copies apart. [B]"""
    model = q.setting.model
    alone = replace(s, tp=1, dp=1, ep=1, dcp=1, cp=1, pp=1, mtp=0, kv_layout="replicated")
    return kv_transfer.chip_token_bytes(model, alone)


def worth(q: Question, s: Strategy, curve: Curve, block: int, kept: list[Tier], tokens: float | None) -> list[Worth]:
    """Throughput with each tier added to those above it, the plan's strategy and batch unchanged."""
    work, per_token = q.workload, fetched_bytes(q, s)
    once, held = stored_bytes(q, s), spare_tokens(q, s)
    out = [_with(q, s, Tier("chips", held * once, None), held, curve.at(held / block), tokens)]
    waiting = 0.0  # for what all tiers above bring
    for tier in kept:
        assert tier.link is not None  # only the chips have none
        held += tier.capacity_bytes / once
        share, above = curve.at(held / block), out[-1].hit_share
        fetched = max(share - above, 0.0) * work.isl
        delay = float(tiers.fetch_s(fetched, per_token, tier.link)) if fetched else 0.0
        saved = prompt_s(q, s, work.isl, _whole(q, above), tokens) - prompt_s(q, s, work.isl, _whole(q, share), tokens)
        if fetched and delay >= saved:
            out.append(replace(out[-1], tier=tier, tokens=held, fetched_tokens=0.0, used=False, capped=False))
            continue
        waiting += delay
        one = _with(q, s, tier, held, share, tokens)
        carried = tier.link.bytes_per_s / (fetched * per_token) * s.dp * s.replicas if fetched else np.inf
        cap = carried * work.osl / s.devices
        out.append(
            replace(
                one, fetched_tokens=fetched, tok_s_chip=min(one.tok_s_chip, cap), ttft_s=one.ttft_s + waiting,
                capped=cap < one.tok_s_chip,
            )
        )  # fmt: skip
    return out


def _with(q: Question, s: Strategy, tier: Tier, held: float, share: float, tokens: float | None) -> Worth:
    """What is served where this share of every prompt is found."""
    work = replace(q.workload, prefix_tokens=_whole(q, share), prefix_groups=None)
    columns = price(replace(q, workload=work), Table(to_table([s])), tokens)
    tok, ttft = (float(columns[name][0]) for name in ("tok_s_chip", "ttft_s"))
    return Worth(tier, held, share, 0.0, True, tok, ttft, False)


def _whole(q: Question, share: float) -> int:
    """A share of the prompt in tokens; one is always computed."""
    return min(round(share * q.workload.isl), q.workload.isl - 1)


def sizes(curve: Curve, block: int, once: float) -> list[tuple[float, float, float]]:
    """The smallest caches that find so much, in steps of what can be found at all."""
    out = []
    for share in SHARES:
        target = share * curve.most
        i = int(np.searchsorted(curve.hit_share, target - 1e-12))
        if curve.most > 0 and i < len(curve.blocks):
            held = float(curve.blocks[i]) * block
            out.append((float(curve.hit_share[i]), held, held * once))
    return out
