"""What the cost model needs to know of an engine, as plain numbers with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlaplan.costs.kv import GROUPED
from mlaplan.costs.merge import Merge
from mlaplan.costs.placement import HEAVY, DispatchRule, Placement, division
from mlaplan.costs.roofline import Numeric
from mlaplan.costs.routing import load_spread
from mlaplan.costs.shared_experts import APART, Beside

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip


USUAL_RANKS = 8  # of a server: a link that joins hundreds of chips does not mean as many ranks


class Interval(NamedTuple):
    """A number that is not known exactly."""

    value: float
    low: float
    high: float

    def __float__(self) -> float:
        return self.value


def exactly(value: float) -> Interval:
    return Interval(value, value, value)


EVEN = exactly(0.0)


class CoreMode(NamedTuple):
    """How the engine's attention backend treats a cache dtype.

    compute: native (products in the cache's dtype), upcast (each tile widened to 16 bit) or cast_pool (the whole
    pool widened before the kernel, `cast_bytes` of traffic per element at `cast_share` of the bandwidth).
    pass_heads: heads of a chip from which on prompts read a cache with scales per group by a pass that widens it;
        with fewer they go through the decode kernel.
    """

    compute: str = "native"
    cast_bytes: float = 0.0
    cast_share: float = 1.0
    pass_heads: int = 1


class FusedSum(NamedTuple):
    """Sums over TP ranks that are one kernel with the residual and norm after them: of steps up to so many tokens.

    alone: in one node and without attention data parallelism only.
    """

    tokens: float = 0.0
    alone: bool = False


class SmallRouter(NamedTuple):
    """A router's kernel for steps of few tokens: at most so many, this hidden size, these numbers of experts."""

    tokens: int = 0
    hidden: int = 0
    experts: tuple[int, ...] = ()


class EngineCosts(NamedTuple):
    """Host, scheduler, memory and communication habits of one engine version on one class of chip.

    step_overhead_s: host time per forward pass that does not hide behind the device.
    prefill_layer_host_s: host time to launch one layer eagerly; a prefill step takes at least that per layer.
    prefill_balance: how evenly prefill work spreads over attention-DP ranks (1 = perfectly) in a pool that computes
        prompts only and in the closed-loop client; elsewhere `serving.lockstep` says what uneven ranks cost.
    overlap_fraction: part of the smaller of compute and communication that two-batch overlap hides.
    dispatch_cores: cores that the prefill dispatch and combine hold while they run; decode's take none.
    launches_ahead: the host launches a step while the device runs the one before (not over pipeline stages).
    of_free: the memory fraction is the cache's share of what weights and buffers leave, not a share of the whole.
    fused_sum: where the sum over TP ranks and the residual and norm after it are one kernel.
    small_router: which routers have a kernel of their own for few tokens.
    imbalance: tokens of the busiest EP rank over the mean where `balanced`: by a balancer with redundant experts, or as
        the user knows it. Else `rank_spread` gives it.
    load_spread, rank_spread: how unevenly experts are liked, see `routing`; no habit of an engine, but known as badly.
        The more uneven, the fewer experts are read, and the more has the busiest rank: two doubts, each with its ends.
    beside: what becomes of shared experts beside the routed ones.
    custom_all_reduce: (ranks, largest message in bytes) of the engine's own in-graph all-reduce kernel.
    dispatch, gather: ways in which tokens can reach their experts under attention DP; dispatch_whole: the former
        only with the experts over all ranks; dispatch_rule: which steps go through it.
    merge: how decode context parallelism puts partial outputs together.
    reserve_holds_activations: what the memory fraction leaves free is for activations and graphs; else they come
        out of the fraction.
    """

    name: str
    step_overhead_s: Interval
    prefill_layer_host_s: Interval
    front_end_s: Interval
    front_end_per_token_s: Interval
    prefill_balance: Interval
    overlap_fraction: Interval
    imbalance: Interval
    memory_fraction: float
    of_free: bool
    context_bytes: float
    graph_bytes: float
    comm_buffer_bytes: float
    dispatch_buffer_bytes: float
    hidden_copies: float
    routed_copies: float
    workspace: Any  # rows(max_model_len, sequences, block_size), or None
    dispatch: bool
    dispatch_whole: bool
    gather: bool
    mixed_prefill: bool
    dispatch_cores: float = 0.0
    fused_sum: FusedSum = FusedSum()
    small_router: SmallRouter = SmallRouter()
    balanced: bool = True
    load_spread: Interval = EVEN
    rank_spread: Interval = EVEN
    beside: Beside = APART
    custom_all_reduce: tuple[tuple[int, float], ...] = ()
    core_modes: Mapping[str, CoreMode] = MappingProxyType({})
    placement: Placement = Placement()
    merge: Merge = Merge()
    dispatch_rule: DispatchRule = DispatchRule()
    reserve_holds_activations: bool = False
    launches_ahead: bool = False

    def custom_all_reduce_bytes(self, ranks: Numeric) -> Numeric:
        """Largest message of the engine's own all-reduce for this many ranks, 0 where it has none."""
        limit: Numeric = np.zeros(np.shape(ranks))
        for n, size in self.custom_all_reduce:
            limit = np.where(np.asarray(ranks) == n, size, limit)
        return limit

    def core_mode(self, kv_dtype: str) -> CoreMode:
        """How a cache of this dtype is computed with; one that no backend reads, as a backend would have to."""
        known = self.core_modes.get(kv_dtype)
        return CoreMode("upcast" if kv_dtype in GROUPED else "native") if known is None else known

    def with_imbalance(self, factor: float) -> EngineCosts:
        return self._replace(imbalance=exactly(factor), balanced=True)

    def with_balancer(self) -> EngineCosts:
        """Experts dealt out, hot ones several times, so that ranks have loads as even as such engines reach."""
        return self._replace(balanced=True)

    def with_even_experts(self) -> EngineCosts:
        """Experts drawn with equal chance and EP ranks with equal loads, as kernel benchmarks have them."""
        return self.with_imbalance(1.0)._replace(load_spread=exactly(0.0))

    def with_shared_ranks(self, ranks: int) -> EngineCosts:
        """The shared experts on `ranks` EP ranks of their own."""
        return self._replace(beside=Beside("ranks", ranks=ranks))

    def routing_ends(self) -> list[tuple[EngineCosts, EngineCosts]]:
        """This engine at both ends of each thing unknown about routing, the faster end first."""
        i, s, r = self.imbalance, self.load_spread, self.rank_spread
        pairs = []
        if self.balanced and i.low < i.high:
            pairs.append((self.with_imbalance(i.low), self.with_imbalance(i.high)))
        if not self.balanced and r.low < r.high:
            pairs.append((self._replace(rank_spread=exactly(r.low)), self._replace(rank_spread=exactly(r.high))))
        if s.low < s.high:
            pairs.append((self._replace(load_spread=exactly(s.high)), self._replace(load_spread=exactly(s.low))))
        return pairs


def from_profile(profile: Any, chip: Chip, attention: str) -> EngineCosts:
    """The costs of an engine profile on a chip, for a model of this attention kind (mla, mla_sparse, gqa)."""
    host, memory, sched, parallel = profile.host, profile.memory, profile.scheduler, profile.parallel
    ways = [row for row in profile.all_to_all if row.serves(chip.name)]
    modes = {}
    for dtype in profile.kv_dtypes(chip.efficiency_class, attention):
        kernel = profile.kernel(chip.efficiency_class, attention, dtype)
        cast = kernel.cast
        share = (float(cast.bytes_per_element), float(cast.bandwidth)) if cast else (0.0, 1.0)
        modes[dtype] = CoreMode(kernel.kv_compute, *share, kernel.prefill_pass_heads)
    ranks = sorted({n for row in profile.all_reduce if chip.efficiency_class in row.chips for n in row.ranks})
    return EngineCosts(
        name=profile.label,
        step_overhead_s=interval(host.step_overhead),
        prefill_layer_host_s=interval(host.eager_prefill_per_layer),
        front_end_s=interval(host.front_end),
        front_end_per_token_s=interval(host.front_end_per_token),
        prefill_balance=interval(sched.dp_prefill_efficiency),
        overlap_fraction=interval(parallel.two_batch.fraction) if parallel.two_batch else exactly(0.0),
        imbalance=interval(parallel.expert_imbalance),
        memory_fraction=memory_fraction(profile, chip),
        of_free=memory.fraction_of == "free",
        context_bytes=float(memory.context),
        graph_bytes=float(memory.graphs),
        comm_buffer_bytes=float(memory.comm_buffers),
        dispatch_buffer_bytes=float(memory.dispatch_buffers),
        hidden_copies=float(memory.hidden_copies),
        routed_copies=float(memory.routed_copies),
        workspace=memory.prefill_workspace,
        **division(profile, chip.name)._asdict(),
        gather=any(row.pattern == "gather" for row in ways),
        mixed_prefill=sched.mode == "mixed",
        dispatch_cores=max(
            (float(row.cores.get(chip.efficiency_class, 0)) for row in profile.all_to_all if row.role == HEAVY),
            default=0.0,
        ),
        fused_sum=FusedSum(*profile.fused_sum(chip.efficiency_class)),
        small_router=_small_router(profile.router, chip),
        balanced=False,
        load_spread=Interval(*load_spread()),
        rank_spread=Interval(*load_spread()),
        beside=_beside(parallel.shared_beside),
        custom_all_reduce=tuple((n, profile.all_reduce_max(chip.efficiency_class, n)) for n in ranks),
        core_modes=modes,
        merge=merge_of(parallel.dcp),
        reserve_holds_activations=memory.reserve is not None,
        launches_ahead=float(sched.lag_steps) >= 1.0,
    )


def _small_router(row: Any, chip: Chip) -> SmallRouter:
    used = row is not None and chip.efficiency_class in row.chips
    return SmallRouter(int(row.tokens), int(row.hidden), tuple(row.experts)) if used else SmallRouter()


def _beside(row: Any) -> Beside:
    return APART if row is None else Beside(row.how, row.experts, row.with_ep, row.prefill)


def merge_of(dcp: Any, pattern: str | None = None, interleave: int = 1) -> Merge:
    """The merge of an engine's decode context parallelism, by its first pattern or the one named."""
    if dcp is None:
        return Merge()
    one = next(m for m in dcp.merges if pattern in (None, m.pattern))
    return Merge(float(one.partial_bytes), float(one.lse_bytes), one.pattern, interleave)


def interval(figure: Any) -> Interval:
    """A figure of a spec as an interval."""
    low, value, high = figure.bounds
    return Interval(value, low, high)


def memory_fraction(profile: Any, chip: Chip) -> float:
    """The engine's default share of the device, or the one that follows from what it leaves free.

    The latter for one server of a scale-up domain at the engine's default chunk and graph batch, without attention DP:
    a plan states its fraction, so that the engine does not work out another one.
    """
    memory = profile.memory
    if memory.fraction is not None:
        return float(memory.fraction)
    r, capacity = memory.reserve, float(chip.memory.capacity)
    ranks = min(chip.scale_up.chips_per_node, USUAL_RANKS)
    chunk = max(profile.budget(capacity, chip.name).tokens, r.min_tokens)
    kept = r.base + r.per_token * chunk + r.per_rank * ranks
    if capacity > r.floor_above:  # on smaller devices the graph batch is small too
        kept = max(kept + r.per_graph_batch * profile.graph_batch(ranks), r.floor)
    return (capacity - kept) / capacity
