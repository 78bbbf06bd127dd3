"""What a reader must know before trusting a plan: conversions, assumptions, doubtful figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.costs.moe import uneven_ranks
from mlaplan.report import words

if TYPE_CHECKING:
    from mlaplan.report.plan_text import Answer
    from mlaplan.rules.rule import Question
    from mlaplan.specs.chip import Chip
    from mlaplan.workload import Overrides


def notes(a: Answer, given: Overrides) -> list[str]:
    """One line per thing to know, most consequential first; without a plan, what is known of the chip."""
    if not a.found.plans:
        return chip_notes(a.q.setting.chip)
    s, q = a.found.plans[0].strategy, a.q
    out = [*a.found.notes, *too_long(q)]
    if s.kv_dtype not in ("bf16", "fp16"):
        out.append(
            f"A cache in {s.kv_dtype} changes what the model computes: check quality, or compare with --kv-dtype "
            f"{'bf16' if 'bf16' in q.setting.chip.peak else 'fp16'}."
        )
    out += _drafts(a, given)
    if s.ep > 1 and given.imbalance is None:
        out.append(_busiest(q, s.ep))
    out += extrapolated(q.setting.chip, max(s.tp, s.ep))
    if a.objective == "cost" and a.found.plans[0].served and a.found.plans[0].served.usd_per_mtok is None:
        out.append(f"{q.setting.chip.name} has no price: plans are ranked by tokens per chip; give --price.")
    elif given.price_usd_per_hour is None and q.setting.chip.price is not None:
        price = q.setting.chip.price
        out.append(f"{float(price):.2f} USD per chip and hour, {price.confidence}; yours with --price.")
    out.append("Steady state with mean lengths: bursts, queues that drain and preemption are not in the figures.")
    return out + chip_notes(q.setting.chip)


def _busiest(q: Question, ep: int) -> str:
    """How uneven the expert ranks are taken to be."""
    e = q.setting.engine
    known = e.imbalance if e.balanced else uneven_ranks(q.setting.model, e.rank_spread, ep)
    what = "With a load balancer t" if e.balanced else "Without a load balancer t"
    known_by = "assumed" if e.balanced else "by the law of experts' loads"
    other = "" if e.balanced else ", one that stores hot experts several times with --redundant-experts"
    return (
        f"{what}he busiest expert rank is taken to get {known.value:.3g}x the mean of the tokens ({known.low:.3g} to "
        f"{known.high:.3g}, {known_by}); yours with --imbalance{other}."
    )


def too_long(q: Question) -> list[str]:
    """Sequences beyond the positions that the model was made for."""
    longest, most = q.budget.max_context, q.setting.model.max_position
    if longest <= most:
        return []
    return [f"Sequences of {longest:,} tokens are longer than the {most:,} positions of {q.setting.model.name}."]


def extrapolated(chip: Chip, ranks: int) -> list[str]:
    """Groups inside a node that are larger than any whose collectives were measured."""
    most = max((fit.ranks[-1] for fit in chip.scale_up.collectives.values()), default=0)
    inside = min(ranks, chip.scale_up.chips_per_node)
    if not 0 < most < inside:
        return []
    return [f"Collectives on {chip.name} were measured on up to {most} chips; for {inside} they are extrapolated."]


def _drafts(a: Answer, given: Overrides) -> list[str]:
    e = a.found.plans[0]
    mtp = a.q.setting.model.mtp
    if not e.strategy.mtp or e.served is None or mtp is None or given.tokens_per_step is not None:
        return []
    accepted = mtp.acceptance
    return [
        f"MTP with {e.strategy.mtp} drafts is taken to yield {words.span(e.served.tokens_per_step)} tokens a step: "
        f"acceptance {float(accepted):g} a position, {accepted.confidence}; yours with --mtp-accept."
    ]


def chip_notes(chip: Chip) -> list[str]:
    """All notes of a chip whose key figures are guesses; else where to read them."""
    bases = [chip.peak[d] for d in ("bf16", "fp16") if d in chip.peak][:1]
    key = [chip.memory.bandwidth, chip.memory.capacity, *bases]
    if any(figure.confidence == "assumed" for figure in key):
        return list(chip.notes)
    return [f"{words.times(len(chip.notes), 'note')} on this chip: mlaplan show {chip.name}"] if chip.notes else []
