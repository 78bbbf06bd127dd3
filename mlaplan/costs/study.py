"""Everything that `chunks` says about one attention block on a group of chips."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs import chunks, gather, mapping, overlap
from mlaplan.costs.chunks import Border, GatherPlan, LocalPlan
from mlaplan.costs.gather import Block, Way
from mlaplan.costs.mapping import Buffered, Decode, Scheme
from mlaplan.costs.merge import Merge
from mlaplan.costs.overlap import Work

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import MLA

MAP_BATCHES = (1, 2, 4, 8, 16, 32, 128)
MAP_CONTEXTS = (512, 2048, 8192, 32768)
CROSSOVERS = tuple(2**k for k in range(4, 21))


class Asked(NamedTuple):
    """`devices` chips share every sequence; batch sequences of `context` cached tokens, q_len query tokens each."""

    devices: int
    batch: int
    context: int
    q_len: int = 1
    kv_dtype: str = "bf16"
    jitter: float | None = None  # of every link, in place of the chip's figures
    merge: Merge = Merge()


class Stated(NamedTuple):
    """What somebody states as good: slices, depth, and the batch and context from which chunking pays."""

    source: str
    slice_bytes: tuple[int, int]
    depth: int
    batch: int
    context: int


class Verdict(NamedTuple):
    """A stated slice and depth against the sweep of one form.

    excess: of its step over the best. overhead_s: cost per slice for which this slice would be the best;
    counted_s: the one that is counted. jitter_s: how late one slice may be at the stated depth.
    """

    form: str
    slice_bytes: int
    depth: int
    excess: float
    overhead_s: float
    counted_s: float
    jitter_s: float
    depth_needed: int


class Cliff(NamedTuple):
    """The lower end of the plateau at both ends of a slice's fixed costs, and the best step there.

    costs_s: (descriptor, task switch); assumed: which of them nobody measured. pays: whether slices are then the best
    way to gather.
    """

    costs_s: tuple[tuple[float, float], tuple[float, float]]
    least_bytes: tuple[int, int]
    step_s: tuple[float, float]
    pays: tuple[bool, bool]
    assumed: tuple[str, ...]


class Tier(NamedTuple):
    """Slice and depth for the links of one tier, and how late a slice may be at a stated depth.

    jitter_s: how late a single slice of the picked size is, `jitter` of its time; assumed: nobody measured it.
    depth_needed: staging that hides it; stated_covers: whether the stated depth does.
    """

    name: str
    link_bytes_per_s: float
    latency_s: float
    slice_bytes: int
    depth: int
    step_s: float
    covered_s: float
    stated_depth: int
    stated_covered_s: float
    jitter: float
    jitter_s: float
    assumed: bool
    depth_needed: int
    stated_covers: bool


class Crossover(NamedTuple):
    """Contexts from which on decode context parallelism is ahead; None: never within the range tried."""

    bytes_over_gathered: float
    latency_over_gathered: int | None
    latency_over_replicated: int | None
    range: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Study:
    """One block, all answers. `plans`, `verdicts`, `tiers` and `border` are empty for a single chip."""

    asked: Asked
    cores: int
    heads: int
    form: str
    plans: dict[str, GatherPlan]
    local: LocalPlan
    ways: tuple[Way, ...]
    crossover: Crossover | None
    schemes: dict[tuple[int, int], list[Scheme]]
    buffered: Buffered
    verdicts: tuple[Verdict, ...]
    tiers: tuple[Tier, ...]
    cliff: Cliff | None
    jitter: float
    border: Border | None

    @property
    def plan(self) -> GatherPlan | None:
        return self.plans.get(self.form)

    @property
    def best_way(self) -> Way:
        return min(self.ways, key=lambda w: float(w.step_s))


def study(chip: Chip, a: MLA, asked: Asked, form: str | None = None, stated: Stated | None = None) -> Study:
    """form: absorbed or naive, None for the faster; stated: figures to compare the sweep with."""
    n, heads = asked.devices, -(-a.heads // asked.devices)
    plans = {}
    if n > 1:
        plans = {f: chunks.gather_plan(
            chip, a, f, asked.batch, asked.context, heads, n, asked.q_len, jitter(chip, asked), asked.kv_dtype
        ) for f in ("absorbed", "naive")}  # fmt: skip
        form = form or min(plans, key=lambda f: plans[f].best.step_s)
    form = form or "absorbed"
    block = Block(a, asked.batch, asked.context, n, asked.q_len, asked.kv_dtype)
    found = gather.ways(chip, block, asked.merge) if n > 1 else [gather.replicated(chip, block)]
    if n > 1:
        found[1:1] = [_in_slices(found[1], plans[form])]
    plan, late = plans.get(form), jitter(chip, asked)
    return Study(
        asked,
        round(float(chip.cores)),
        heads,
        form,
        plans,
        chunks.local_plan(
            chip,
            a,
            heads,
            asked.batch,
            asked.context,
            asked.q_len,
            asked.kv_dtype,
            chunks.JITTER if asked.jitter is None else asked.jitter,
        ),
        tuple(found),
        _crossover(chip, block, asked.merge) if n > 1 else None,
        mapping.table(chip, a, heads, MAP_BATCHES, MAP_CONTEXTS, asked.q_len),
        mapping.double_buffered(chip, Decode(a, heads, asked.batch, asked.context, asked.q_len, asked.kv_dtype)),
        tuple(verdict(p, stated, s, jitter(chip, asked)) for p in plans.values() for s in stated.slice_bytes)
        if stated
        else (),
        tiers(chip, plan, asked, stated) if plan else (),
        cliff(chip, plan) if plan else None,
        late,
        chunks.border(plan, (stated.batch, stated.context)) if plan and stated else None,
    )


def _in_slices(serial: Way, plan: GatherPlan) -> Way:
    """The gather of the best mode: what the core leaves exposed is link time."""
    best = plan.best
    return serial._replace(name="gathered in slices", link_s=best.exposed_s, core_s=best.compute_s)


def _crossover(chip: Chip, b: Block, merge: Merge) -> Crossover:
    """Where decode context parallelism starts to win, at this batch, group and link."""
    line = b._replace(context=np.array(CROSSOVERS, dtype=float))
    copy, cache, dcp, _ = gather.ways(chip, line, merge)
    return Crossover(
        gather.byte_crossover(b.attention, merge),
        gather.first_context(dcp, cache, CROSSOVERS),
        gather.first_context(dcp, copy, CROSSOVERS),
        (CROSSOVERS[0], CROSSOVERS[-1]),
    )


def verdict(plan: GatherPlan, stated: Stated, slice_bytes: int, share: float = chunks.JITTER) -> Verdict:
    """The stated slice and depth in the sweep of a plan."""
    best = min(c.step_s for c in plan.sweep)
    at = [c for c in plan.sweep if c.slice_bytes == slice_bytes and c.depth == stated.depth]
    p = overlap.pipeline(plan.work, plan.rates, slice_bytes, stated.depth)
    step = at[0].step_s if at else float(overlap.fused_s(plan.work, plan.rates, float(slice_bytes), stated.depth))
    return Verdict(
        plan.work.form, slice_bytes, stated.depth, step / best - 1.0,
        overlap.optimal_overhead_s(plan.work, plan.rates, slice_bytes), p.switch_s + p.rescale_s,
        overlap.jitter_covered_s(p),
        overlap.depth_for(p, (p.transfer_s + p.latency_s) * share),
    )  # fmt: skip


def jitter(chip: Chip, asked: Asked, ranks: int | None = None) -> float:
    """How much longer than usual a single slice may take, as a share: asked for, or of the group's slowest link."""
    if asked.jitter is not None:
        return asked.jitter
    figure = overlap.link_jitter(chip, asked.devices if ranks is None else ranks)
    return chunks.JITTER if figure is None else float(figure)


def cliff(chip: Chip, plan: GatherPlan) -> Cliff | None:
    """Where the plateau begins and what slices take at both ends of what a slice costs; None where that is known."""
    fixed = overlap.fixed_costs(chip)
    if fixed.low == fixed.high and not fixed.assumed:
        return None
    least, steps, pays = [], [], []
    for descriptor, switch in (fixed.low, fixed.high):
        r = plan.rates._replace(descriptor_s=descriptor, switch_s=switch)
        found = overlap.sweep(chip, plan.work, r)
        level = [c for c in found if c.on_plateau]
        least.append(min(c.slice_bytes for c in level))
        steps.append(min(c.step_s for c in found))
        pays.append(steps[-1] < min(m.step_s for m in plan.modes if not m.slice_bytes))
    (a, b), (c, d), (e, f) = least, steps, pays
    return Cliff((fixed.low, fixed.high), (a, b), (c, d), (e, f), fixed.assumed)


def tiers(chip: Chip, plan: GatherPlan, asked: Asked, stated: Stated | None) -> tuple[Tier, ...]:
    """Inside a node, and between nodes where the chip has a network: each with its own slice and depth."""
    inside = chip.scale_up.chips_per_node
    groups = [(chip.scale_up.name, min(asked.devices, inside))]
    if chip.scale_out is not None:
        groups.append((chip.scale_out.name, max(asked.devices, 2 * inside)))
    out = []
    for name, ranks in groups:
        r = overlap.rates(chip, ranks, plan.work.form)
        work: Work = replace(plan.work, ranks=ranks)
        share, figure = jitter(chip, asked, ranks), overlap.link_jitter(chip, ranks)
        picked = overlap.pick(overlap.sweep(chip, work, r), work, r, share)
        p = overlap.pipeline(work, r, picked.slice_bytes, picked.depth)
        depth = stated.depth if stated else picked.depth
        late = share * (p.transfer_s + p.latency_s)
        stated_covered = overlap.jitter_covered_s(replace(p, depth=depth))
        unknown = asked.jitter is None and (figure is None or figure.confidence == "assumed")
        out.append(
            Tier(
                name, r.link_bytes_per_s, r.latency_s, picked.slice_bytes, picked.depth, picked.step_s,
                overlap.jitter_covered_s(p), depth, stated_covered, share, late, unknown,
                overlap.depth_for(p, late), stated_covered >= late,
            )
        )  # fmt: skip
    return tuple(out)
