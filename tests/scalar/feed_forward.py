"""Feed-forward blocks, dense and mixture of experts; the embedding, the head and MTP drafts."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import Any, NamedTuple

from . import attention, links
from .machine import PLAIN_BYTES, WIRE, Case, Ledger, of_draft, part_width, products, tiles


class Ranks(NamedTuple):
    """The chips of a pipeline stage."""

    tp: int
    dp: int
    ep: int
    cp: int = 1

    @property
    def moe_tp(self) -> float:
        return self.tp * self.dp / self.ep


def gated(out: Ledger, part: str, t: float, inner: float) -> None:
    """Gate and up in one product, their product, down."""
    d = out.case.model.hidden_size
    out.gemm(part, t, d, 2 * inner)
    out.move(3 * t * inner * WIRE)
    out.gemm(part, t, inner, d)


def reduce(out: Ledger, t: float, tp: int, cp: int, dp: int) -> None:
    """Sum over TP: an all-reduce; with divided tokens a gather before and a scatter after."""
    size = t * out.case.model.hidden_size * WIRE
    if cp == 1:
        out.sum_over_tp(t, tp, dp)
    else:
        out.collective("all_gather", size, tp)
        out.collective("reduce_scatter", size, tp)


def routed_ranks(case: Case, f: Any, ep: int) -> int:
    """EP ranks with routed experts: all but those that hold the shared ones alone."""
    apart = case.engine.beside.ranks
    return ep - apart if f.shared_experts and ep > apart else ep


def everyone(case: Case, r: Ranks) -> bool:
    """Whether attention-DP ranks gather everyone's tokens, for want of a dispatch."""
    e = case.engine
    dispatches = e.dispatch and r.ep > 1 and (r.ep == r.tp * r.dp or not e.dispatch_whole)
    dispatches = dispatches and r.ep >= e.dispatch_rule.least_ranks and e.dispatch_rule.prefill
    return r.dp > 1 and not dispatches


def block(case: Case, f: Any, t: int, r: Ranks, decode: bool, alone: bool = False) -> Ledger:
    """One block over `t` tokens of each attention-DP rank, or of one alone. In decode tokens are not divided by cp."""
    r = r._replace(cp=1) if decode else r
    of_all = t / r.dp * r.dp if alone else t * r.dp
    return _dense(case, f, t, r, of_all) if f.kind == "dense" else _moe(case, f, t, r, decode, of_all)


def _dense(case: Case, f: Any, t: int, r: Ranks, of_all: float) -> Ledger:
    out = Ledger(case)
    out.norm(t / r.cp, r.tp // r.cp, r.dp)
    groups = r.dp if case.engine.placement.dense and everyone(case, r) else 1
    seen = of_all if groups > 1 else t
    size = seen * case.model.hidden_size * WIRE
    if groups > 1:
        out.collective("all_gather", size, groups, r.tp)
        out.collective("reduce_scatter", size, groups, r.tp)
    gated(out, "dense", seen, f.intermediate_size / (r.tp * groups))
    reduce(out, t, r.tp, r.cp, r.dp)
    return out


# ---- mixture of experts ----


def weighted_choices(f: Any) -> float:
    """Experts with weights that a token visits: its k choices less those that fall on zero experts."""
    return f.experts_per_token * f.experts / (f.experts + f.zero_experts)


def touched(experts: int, k: float, tokens: float, spread: float) -> float:
    """Experts found by T tokens, each liked by the quantile of a log-normal law that it stands for, k a token.

    Of sixteen equal groups of experts, group i is chosen by one draw with p_i and by one token, which draws until
    it has k different experts, with 1 - (1 - p_i)^c.
    """
    return found(experts, spread, draws_of_a_token(experts, k, spread) * tokens)


def read(case: Case, f: Any, k: float, tokens: float, ranks: int) -> float:
    """Experts that a rank reads: the busiest one, unless all are said to have the same load."""
    spread = float(case.engine.load_spread)
    mean = touched(f.experts, k, tokens, spread) / ranks
    if (case.engine.balanced and float(case.engine.imbalance) == 1.0) or ranks == 1:
        return mean
    draws = draws_of_a_token(f.experts, k, spread) * tokens
    uncertain = f.experts / 16 * sum((1 - p) ** draws * (1 - (1 - p) ** draws) for p in draw_chances(f.experts, spread))
    most = min(tokens * k, f.experts / ranks)
    above = largest(ranks) * math.sqrt(spreading(f, k, ranks) * uncertain / ranks)
    return min(max(mean + above, min(most, 1.0)), most)


def spreading(f: Any, k: float, ranks: int) -> float:
    """What the limit on groups adds to the variance of a token's copies on a rank."""
    g, t = f.groups, f.groups_per_token
    if g == t:
        return 1.0
    if ranks <= g:
        return 1 + (k - 1) * (g - t) / t / (g - 1)
    return (1 + ((k - 1) * g / t - k) / ranks) / (1 - 1 / ranks)


def largest(ranks: int) -> float:
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def skew(case: Case, f: Any, of_all: float, r: Ranks) -> float:
    """Copies of all ranks' tokens on the busiest EP rank over the mean."""
    e, n = case.engine, routed_ranks(case, f, r.ep)
    if n == 1:
        return 1.0
    if e.balanced:
        return float(e.imbalance)
    k, s = weighted_choices(f), float(e.rank_spread)
    of_experts = (math.exp(s * s) - 1) / (f.experts / n)
    of_draws = spreading(f, k, n) / (of_all * k / n)
    return min(1 + largest(n) * math.sqrt((of_experts + of_draws) * (n - 1) / n), n)


def found(experts: int, spread: float, draws: float) -> float:
    return experts / 16 * sum(1 - (1 - p) ** draws for p in draw_chances(experts, spread))


@cache
def draw_chances(experts: int, spread: float) -> list[float]:
    liking = [math.exp(spread * NormalDist().inv_cdf((i + 0.5) / 16)) for i in range(16)]
    return [min(w / sum(liking) * 16 / experts, 1 - 1e-12) for w in liking]


@cache
def draws_of_a_token(experts: int, k: float, spread: float) -> float:
    low, high = 0.0, 1e9
    for _ in range(300):
        middle = (low + high) / 2
        low, high = (middle, high) if found(experts, spread, middle) < k else (low, middle)
    return high


def _moe(case: Case, f: Any, t: int, r: Ranks, decode: bool, of_all: float) -> Ledger:
    out, d, choices = Ledger(case), case.model.hidden_size, f.experts + f.zero_experts
    own = t / r.cp
    out.norm(own, r.tp // r.cp, r.dp)
    out.router(own, choices)
    out.move(own * choices * 4.0)
    routed, dispatched = _routed(case, f, t, r, decode, of_all)
    out.add(routed)
    if routed_ranks(case, f, r.ep) < r.ep:
        apart = Ledger(case)
        gated(apart, "shared", of_all / case.engine.beside.ranks, f.shared_intermediate_size / r.moe_tp)
        out.chip_s += max(apart.chip_s - routed.chip_s, 0.0)
    elif f.shared_experts and not joining(case, f, r, decode):
        own = Ledger(case)
        seen, inner = t, f.shared_intermediate_size / r.tp
        if case.engine.placement.shared:
            # whole for a chip's own tokens, or over all chips that have gathered everyone's
            seen = t / r.tp if dispatched else of_all
            inner = f.shared_intermediate_size / (1 if dispatched else r.tp * r.dp)
        gated(own, "shared", seen, inner)
        if on_second_stream(case, f, r, decode):
            # weights of three products; rows in, gate and up out and in, their product out and in, rows out
            moved = 3 * d * inner * part_width(case, "shared") + (2 * seen * d + 6 * seen * inner) * WIRE
            own.chip_s = max(own.chip_s - routed.chip_s, moved / float(case.chip.memory.bandwidth))
        out.add(own)
    return out


def _kept(case: Case, f: Any, r: Ranks, decode: bool, how: str) -> bool:
    """Whether the engine treats this model's shared experts so."""
    b = case.engine.beside
    known = not b.experts or f.experts in b.experts
    return b.how == how and known and bool(f.shared_experts) and (decode or b.prefill) and (b.with_ep or r.ep == 1)


def joining(case: Case, f: Any, r: Ranks, decode: bool) -> float:
    """Experts beside the routed ones in the grouped kernel, each visited by every token."""
    return f.shared_intermediate_size / f.intermediate_size if _kept(case, f, r, decode, "fused") else 0.0


def on_second_stream(case: Case, f: Any, r: Ranks, decode: bool) -> bool:
    return _kept(case, f, r, decode, "overlapped")


def _routed(case: Case, f: Any, t: int, r: Ranks, decode: bool, of_all: float) -> tuple[Ledger, bool]:
    """The experts, and the way that tokens take to them and back: the faster one, and whether it is a dispatch."""
    e, gathered = case.engine, Ledger(case)
    gathered.link_s = _gathered(case, t, r, of_all)
    _experts(gathered, f, of_all, r, "grouped_gemm", decode)
    whole = r.ep == r.tp * r.dp or not e.dispatch_whole
    if not (e.dispatch and whole and r.ep > 1 and (r.dp > 1 or r.cp > 1 or e.dispatch_rule.fixed)):
        return gathered, False
    if not allowed(e.dispatch_rule, f, t, r, decode):
        return gathered, False
    dispatched = Ledger(case)
    dispatched.link_s = _dispatched(case, f, t, r, decode, of_all)
    # behind a dispatch engines run another kernel, where its fit is known
    own = products(case, "routed")[0] in case.chip.efficiency.get("grouped_gemm_ep", {})
    _experts(dispatched, f, of_all, r, "grouped_gemm_ep" if own else "grouped_gemm", decode)
    narrow = 1 if "fp8" in case.chip.peak or "int8" in case.chip.peak else 2
    rows = of_all * weighted_choices(f) / routed_ranks(case, f, r.ep) * skew(case, f, of_all, r)
    # gate and up in, their product out; in prefill it is written wide, read and quantised
    dispatched.move(rows * f.intermediate_size / r.moe_tp * (4 + narrow if decode else 4 + 2 + 2 + narrow))
    if not decode:  # to the experts' order, and read there to be summed
        dispatched.move(rows * case.model.hidden_size * (narrow + narrow + 2))
    if (
        e.gather
        and not e.dispatch_rule.fixed
        and gathered.chip_s + gathered.link_s <= dispatched.chip_s + dispatched.link_s
    ):
        return gathered, False
    return dispatched, True


def allowed(rule: Any, f: Any, t: int, r: Ranks, decode: bool) -> bool:
    """Whether the engine's own rule lets a step of `t` tokens a DP rank through its dispatch."""
    if r.ep < rule.least_ranks or (rule.most_experts and f.experts // r.ep > rule.most_experts):
        return False
    if not decode:
        return bool(rule.prefill)
    return not rule.most_tokens or t <= rule.most_tokens


def _experts(out: Ledger, f: Any, of_all: float, r: Ranks, op: str, decode: bool) -> None:
    """The experts of one chip, each expert's rows in whole tiles, as one grouped kernel."""
    case, d, k = out.case, out.case.model.hidden_size, weighted_choices(f)
    joined, n = joining(case, f, r, decode), routed_ranks(case, f, r.ep)
    rows = of_all * (k / n * skew(case, f, of_all, r) + joined)
    stored = -(-(f.experts + case.redundant_experts) // n)
    active = min(read(case, f, k, of_all, n), stored) + joined
    stored += joined
    padded = active * tiles(rows / active, case.chip.padding.gemm_rows)
    inner = f.intermediate_size / r.moe_tp
    name, peak = products(case, "routed")
    weights = active * 3 * d * inner * part_width(case, "routed")
    # rows in and out, gate and up out and in, their product out and in
    moved = rows * (2 * d + 4 * inner) * WIRE
    out.kernel(op, name, peak, 2.0 * padded * d * 3 * inner, weights + moved, rows=rows, active=active, stored=stored)


def _gathered(case: Case, t: int, r: Ranks, of_all: float) -> float:
    out, size = Ledger(case), of_all * case.model.hidden_size * WIRE
    out.collective("all_gather", size, r.dp, r.tp)
    out.collective("reduce_scatter", size, r.dp, r.tp)
    reduce(out, t, r.tp, r.cp, r.dp)
    return out.link_s


def _dispatched(case: Case, f: Any, t: int, r: Ranks, decode: bool, of_all: float) -> float:
    out, d, ranks = Ledger(case), case.model.hidden_size, r.tp * r.dp
    # the rank whose experts are liked most receives most
    own, apart = t / r.tp * skew(case, f, of_all, r), routed_ranks(case, f, r.ep) < r.ep
    copies = (weighted_choices(f) + apart) * r.moe_tp
    node_limit = f.groups_per_token if f.groups > 1 else f.experts_per_token
    narrow = "fp8" in case.chip.peak or "int8" in case.chip.peak
    for op, width in (("dispatch", links.copy_width(d, narrow)), ("combine", 2.0 * d)):
        if decode:
            out.link_s += links.low_latency(case.chip, op, own, copies, width, ranks)
        else:
            out.link_s += links.normal(case.chip, op, own, copies, width, ranks, node_limit)
    if r.cp == 1:
        out.collective("all_gather", t * d * WIRE, r.tp)
    return out.link_s


# ---- both ends of the model ----


def embedding(case: Case, t: int, tp: int) -> Ledger:
    out, size = Ledger(case), t * case.model.hidden_size * WIRE
    out.move(2 * size)
    out.collective("all_reduce", size, tp)
    return out


def head(case: Case, rows: float, r: Ranks) -> Ledger:
    """Final norm, logits by slices of the vocabulary, their gather, sampling in fp32."""
    out, d, vocab = Ledger(case), case.model.hidden_size, case.model.vocab_size
    groups = r.dp if case.engine.placement.head and everyone(case, r) else 1
    out.move(3 * rows * d * WIRE)
    if groups > 1:
        out.collective("all_gather", rows * groups * d * WIRE, groups, r.tp)
    out.gemm("lm_head", rows * groups, d, vocab / (r.tp * groups))
    out.collective("all_gather", rows * groups * vocab * WIRE, r.tp * groups)
    out.move(rows * vocab * PLAIN_BYTES["fp32"])
    return out


def drafts(case: Case, s: attention.Decode, r: Ranks, depth: int) -> Ledger:
    """The passes of the MTP layer: over all tokens just verified, then `depth` - 1 times over one of each sequence."""
    own, out = of_draft(case), Ledger(case)
    for i in range(depth):
        queries = s.q_len if i == 0 else 1
        shape = attention.Decode(s.batch, queries, s.context, s.ranks, s.dcp, s.layout, s.dp)
        out.add(one_pass(own, shape, r))
        out.add(head(case, s.batch, r))
    return out


def one_pass(case: Case, s: attention.Decode, r: Ranks) -> Ledger:
    """Embedding, projection of [hidden; embedding], one layer."""
    model, out, tokens = case.model, Ledger(case), s.batch * s.q_len
    out.add(embedding(case, tokens, r.tp))
    out.gemm("mtp", tokens, 2 * model.hidden_size, model.hidden_size)
    out.add(attention.decode(case, model.attention[model.mtp.attention], s))
    out.add(block(case, model.ffn[model.mtp.ffn], tokens, r, True))
    return out
