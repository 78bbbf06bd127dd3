"""What an engine can do and what it costs, at a version. Written in `profiles/*.yaml`.

Every number carries its source. `Profile` holds the facts of one version: the file's `by_version` and
`since`/`until` are resolved before it is built.
"""

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mlaplan.engines.collectives import AllReduceLimit, AllToAll, Bytes
from mlaplan.engines.context import AttentionKind, DecodeContext, PrefillContext, Sourced
from mlaplan.specs.chip import EfficiencyClass
from mlaplan.specs.figure import Confidence, Count, Figure, Flag, Text
from mlaplan.specs.marks import AtLeast, Quantity
from mlaplan.specs.spec import Spec, Told, field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

KvDtype = Literal["bf16", "fp16", "fp8", "fp8_ds_mla", "int8"]
KvLayout = Literal["replicated", "latent_sharded", "sequence_sharded"]
ATTENTION_KINDS: tuple[AttentionKind, ...] = ("mla", "mla_sparse", "gqa")

Seconds = Annotated[float, Quantity("engine_time", "s", 0, 10)]
Number = Annotated[float, Quantity("engine_number", "count", 0, 1e6)]
Share = Annotated[float, Quantity("engine_share", "fraction", 0, 1)]


class Reserve(Sourced):
    """Memory SGLang leaves free, from which its fraction follows: (capacity - reserve) / capacity.

    reserve = base + per_token max(prefill_chunk, min_tokens) + per_rank tp dp pp
    + per_graph_batch graph_batch (+ per_graph_batch_dp graph_batch dp with attention DP),
    at least `floor` on chips above `floor_above`, + dispatch with DeepEP, + mtp with a draft model.
    """

    base: Bytes
    per_token: Bytes
    min_tokens: Count
    per_rank: Bytes
    per_graph_batch: Bytes
    per_graph_batch_dp: Bytes
    floor: Bytes
    floor_above: Bytes
    dispatch: Bytes
    mtp: Bytes


class PrefillWorkspace(Sourced):
    """Rows of the up-projected keys and values of a cached prefix that one prefill step re-expands.

    rows = min(max(per_length max_model_len, per_sequence_block max_num_seqs block), cap); a row holds
    local heads x (qk_nope + v) elements, and one latent.
    """

    per_length: Count
    per_sequence_block: Count
    cap: Count

    def rows(self, max_model_len: Any, sequences: Any, block_size: Any) -> Any:
        """Rows of the workspace; takes numbers or arrays."""
        if isinstance(max_model_len, int | float):
            wanted = max(self.per_length * max_model_len, self.per_sequence_block * sequences * block_size)
            return min(wanted, self.cap)
        import numpy as np

        wanted = np.maximum(self.per_length * max_model_len, self.per_sequence_block * sequences * block_size)
        return np.minimum(wanted, self.cap)


class EngineMemory(Spec):
    """How the device's memory is divided. Copies are counted in bf16."""

    fraction: Figure[Share] | None = field(description="default share for weights and cache")
    fraction_of: Literal["total", "free"] = field(
        description="of the device's memory, for weights, buffers and cache; or of what these leave, for the cache"
    )
    reserve: Reserve | None = field(default=None, description="where the fraction follows from a reserve")
    context: Figure[Bytes]
    graphs: Figure[Bytes]
    comm_buffers: Figure[Bytes]
    dispatch_buffers: Figure[Bytes]
    hidden_copies: Figure[Number] = field(description="live [tokens, hidden] tensors of a prefill step")
    routed_copies: Figure[Number] = field(description="live [tokens x experts per token, hidden] tensors")
    prefill_workspace: PrefillWorkspace | None = None


class Cast(Spec):
    """Converting the KV cache before every attention: bytes per element, share of the memory's bandwidth."""

    bytes_per_element: Figure[Number]
    bandwidth: Figure[Share]


class Kernel(Sourced):
    """An attention backend: where it runs, what cache it reads, in which blocks."""

    name: Text
    chips: tuple[EfficiencyClass, ...]
    attention: tuple[AttentionKind, ...]
    kv_dtypes: tuple[KvDtype, ...]
    blocks: tuple[Count, ...]
    default_block: Count
    kv_compute: Literal["native", "upcast", "cast_pool"] = field(
        description="multiplies in the cache's dtype, in a wider copy of each tile, or casts the whole pool"
    )
    cast: Cast | None = None
    prefill_pass_heads: Count = field(
        default=1, description="local heads from which on a cache with scales per group is widened before a prompt"
    )
    dcp: tuple[KvDtype, ...] = field(default=(), description="KV dtypes it takes with decode context parallelism")
    dcp_heads: Count | None = field(default=None, description="most local heads with decode context parallelism")
    dcp_interleave: Flag = field(default=True, description="takes runs of tokens with decode context parallelism")
    local_heads: tuple[Count, ...] = field(default=(), description="only these numbers of heads on a rank")
    env: dict[Text, Text] = field(default_factory=dict, description="environment that turns it on")
    fallback: Flag = field(default=False, description="works, but is never worth choosing where another backend does")

    def check(self) -> None:
        if self.default_block not in self.blocks:
            raise Told(f"default_block {self.default_block} is none of the blocks", "one of the blocks")
        if (self.kv_compute == "cast_pool") != (self.cast is not None):
            raise Told("a cast goes with kv_compute: cast_pool and with nothing else", "both or neither")

    def takes(self, kv_dtype: str, block_size: int | None = None, *, dcp: bool = False, interleave: int = 1) -> bool:
        """Whether this backend reads such a cache; with decode context parallelism, one dealt out in such runs."""
        if kv_dtype not in self.kv_dtypes or (dcp and kv_dtype not in self.dcp):
            return False
        if dcp and interleave > 1 and not self.dcp_interleave:
            return False
        return block_size is None or block_size in self.blocks


class TwoBatch(Sourced):
    """Two-batch overlap: one half of the batch computes while the other communicates."""

    fraction: Figure[Share] = field(description="share of the smaller of the two that is hidden")
    mtp: Flag
    pp: Flag
    context_parallel: Flag
    dp: Flag = field(description="needs attention data parallelism")
    full_ep: Flag = field(description="needs experts over all ranks and an all-to-all")


class SharedBeside(Sourced):
    """What becomes of shared experts: rows of the routed experts' kernel, or products on a second stream."""

    how: Literal["fused", "overlapped"]
    experts: tuple[Count, ...] = field(default=(), description="only with so many routed experts; any where empty")
    with_ep: Flag = field(description="also where the experts are divided over ranks")
    prefill: Flag = field(description="also in prefill steps")


class Parallel(Spec):
    """Degrees an engine can combine."""

    experts: Literal["any_divisor", "all_or_none"]
    dp_needs_ep: Flag
    dp_whole: Flag = field(default=False, description="attention DP over all ranks of a stage or none, never beside TP")
    kv_layouts: tuple[KvLayout, ...]
    dcp: DecodeContext | None
    cp: PrefillContext | None
    two_batch: TwoBatch | None
    mtp_with_pp: Flag
    sparse_tp: Flag = field(description="attention heads of a sparse model may be split over ranks")
    dense_ffn: Literal["tp", "tp_dp"] = field(description="ranks that share a dense feed-forward layer")
    shared_expert: Literal["tp", "tp_dp"]
    shared_beside: SharedBeside | None = field(
        default=None, description="how shared experts run beside the routed ones; after them where absent"
    )
    shared_ranks: Flag = field(default=False, description="EP ranks can be set apart for the shared experts")
    lm_head: Literal["tp", "tp_dp"]
    expert_imbalance: Figure[Number] = field(description="busiest expert rank over the mean, with a balancer")
    source: Text
    confidence: Confidence
    note: Text | None = None


class RouterKernel(Sourced):
    """The engine's own kernel for the router of steps of few tokens, made for one shape."""

    chips: tuple[EfficiencyClass, ...]
    tokens: Count = field(description="of a rank's step at most")
    hidden: Count
    experts: tuple[Count, ...]


class Graphs(Sourced):
    """Captured decode steps. Above `max_tokens` tokens a rank and step, decode runs eagerly by default.

    From `wide_from` ranks on twice as many.
    """

    decode: Flag
    prefill: Flag
    max_tokens: Count
    wide_from: Count | None = None


class Host(Spec):
    """Time the host adds. Eager prefill takes the longer of the device's time and the host's per layer."""

    step_overhead: Figure[Seconds]
    eager_prefill_per_layer: Figure[Seconds]
    front_end: Figure[Seconds]
    front_end_per_token: Figure[Seconds]


class Budget(Sourced):
    """Defaults on a device with at least `above` bytes."""

    above: Bytes
    not_on: tuple[Text, ...] = field(default=(), description="chips with the memory but not this default")
    tokens: Count
    sequences: Count


class Scheduler(Spec):
    """How prefill and decode share steps."""

    mode: Literal["mixed", "prefill_first"]
    budgets: Annotated[tuple[Budget, ...], AtLeast(1)]
    tokens_of: Literal["rank", "all_ranks"] = field(description="whom the token budget flag counts for")
    sequences_of: Literal["rank", "all_ranks"]
    budget_has_decode: Flag = field(description="decode tokens come out of the same budget")
    chunk_multiple_of_block: Flag
    lag_steps: Figure[Number] = field(description="steps that a scheduling decision is ahead of its results")
    overlap_with_pp: Flag = field(description="host work is hidden with pipeline parallelism too")
    dp_prefill_efficiency: Figure[Share] = field(description="balance of prefill work over attention-DP ranks")
    set_aside: Figure[Share] | None = field(
        default=None, description="share of the output to come that admission keeps cache for; all of it if not known"
    )


class MtpSupport(Sourced):
    """Multi-token prediction with the checkpoint's own layer."""

    method: Text
    max_draft: Count


class Profile(Spec):
    """An engine at one version."""

    kind: Literal["engine"]
    name: Text
    title: Text
    version: Text
    versions: tuple[Text, ...]
    runs_on: tuple[EfficiencyClass, ...]
    not_on: tuple[Text, ...] = field(default=(), description="chips of these classes that it does not run on")
    elsewhere: dict[EfficiencyClass, Text] = field(default_factory=dict, description="engine that serves the class")
    expands_mla: tuple[Text, ...] = field(default=(), description="MLA models it caches as full keys and values")
    kernel_choice: Literal["chip", "configuration"] = field(
        description="the engine picks a backend by chip and attention alone, or by what the cache needs too"
    )
    kernels: Annotated[tuple[Kernel, ...], AtLeast(1)]
    memory: EngineMemory
    parallel: Parallel
    all_to_all: tuple[AllToAll, ...]
    all_reduce: tuple[AllReduceLimit, ...]
    router: RouterKernel | None = None
    graphs: Graphs
    host: Host
    scheduler: Scheduler
    mtp: MtpSupport | None

    @property
    def label(self) -> str:
        """`vLLM 0.33.0`"""
        return f"{self.title} {self.version}" if self.name != "generic" else self.title

    def kernels_for(self, chip_class: str, attention: str) -> tuple[Kernel, ...]:
        """Backends in the engine's order of preference."""
        if chip_class not in self.runs_on:
            return ()
        return tuple(k for k in self.kernels if chip_class in k.chips and attention in k.attention)

    def kv_dtypes(self, chip_class: str, attention: str) -> tuple[str, ...]:
        """KV dtypes that some backend reads."""
        return tuple(dict.fromkeys(d for k in self.kernels_for(chip_class, attention) for d in k.kv_dtypes))

    def kv_blocks(self, chip_class: str, attention: str, kv_dtype: str, *, dcp: bool = False) -> tuple[int, ...]:
        """KV block sizes worth choosing for this dtype, rising. A fallback's only if nothing else does."""
        found = [k for k in self.kernels_for(chip_class, attention) if k.takes(kv_dtype, dcp=dcp)]
        found = [k for k in found if not k.fallback] or found
        return tuple(sorted({block for kernel in found for block in kernel.blocks}))

    def default_block(self, chip_class: str, attention: str, kv_dtype: str) -> int | None:
        """The block size of the backend that would be used if none is asked for."""
        kernel = self.kernel(chip_class, attention, kv_dtype)
        return kernel.default_block if kernel else None

    def kernel(
        self,
        chip_class: str,
        attention: str,
        kv_dtype: str,
        block_size: int | None = None,
        *,
        dcp: bool = False,
        interleave: int = 1,
    ) -> Kernel | None:
        """The backend for such a cache: the first one that reads it, those that cast the whole pool last."""
        able = self.kernels_for(chip_class, attention)
        found = [k for k in able if k.takes(kv_dtype, block_size, dcp=dcp, interleave=interleave)]
        return min(found, key=lambda k: k.kv_compute == "cast_pool") if found else None

    def automatic(
        self,
        chip_class: str,
        attention: str,
        kv_dtype: str,
        block_size: int | None = None,
        *,
        dcp: bool = False,
    ) -> Kernel | None:
        """The backend the engine takes by itself; where it goes by the chip, it may not read such a cache."""
        found = self.kernels_for(chip_class, attention)
        if self.kernel_choice == "configuration":
            found = tuple(k for k in found if k.takes(kv_dtype, block_size, dcp=dcp))
        return found[0] if found else None

    def cache_modes(self, chip_class: str, attention: str) -> dict[str, str]:
        """How the first backend of the engine's order that reads a cache of each dtype computes with it."""
        found = self.kernels_for(chip_class, attention)
        return {d: next(k for k in found if d in k.kv_dtypes).kv_compute for d in self.kv_dtypes(chip_class, attention)}

    def budget(self, capacity: float, chip_name: str = "") -> Budget:
        """Default token and sequence budget on a device of this capacity in bytes."""
        fitting = [b for b in self.scheduler.budgets if capacity >= b.above and chip_name not in b.not_on]
        return max(fitting, key=lambda b: b.above)

    def rank_budget(self, capacity: float, chip_name: str, dp: int) -> int:
        """Default tokens of one prefill step of an attention-DP rank."""
        tokens = self.budget(capacity, chip_name).tokens
        return max(tokens // dp, 1) if self.scheduler.tokens_of == "all_ranks" else tokens

    def graph_batch(self, ranks: int) -> int:
        """Largest decode batch captured by default on a server of so many chips."""
        wide = self.graphs.wide_from is not None and ranks >= self.graphs.wide_from
        return self.graphs.max_tokens * (2 if wide else 1)

    def fused_sum(self, chip_class: str) -> tuple[float, bool]:
        """Most tokens of a step whose sums over TP take the residual and norm with them, and whether only alone."""
        for row in self.all_reduce:
            if chip_class in row.chips and row.fuses_norm:
                return float(row.fuses_tokens or math.inf), bool(row.fuses_alone)
        return 0.0, False

    def all_reduce_max(self, chip_class: str, ranks: int) -> float:
        """Largest all-reduce in bytes that stays on an in-graph kernel; 0 where there is none."""
        rows = (row for row in self.all_reduce if chip_class in row.chips and ranks in row.ranks)
        return max((row.max_bytes[row.ranks.index(ranks)] for row in rows), default=0.0)

    def all_to_all_for(self, role: str) -> AllToAll | None:
        """The all-to-all of this role: default, low_latency or high_throughput."""
        return next((row for row in self.all_to_all if row.role == role), None)

    def expresses(self, strategy: Any, model: "Model | None" = None, chip: "Chip | str | None" = None) -> list[str]:
        """The parts of a strategy that this engine cannot express, in words."""
        from mlaplan.engines.limits import told_limits

        return told_limits(self, strategy, model, chip)


def attention_kind(model: "Model") -> AttentionKind:
    """The kind of attention that decides the backend: sparse where any layer is, MLA where any layer is."""
    kinds: Sequence[Any] = tuple(model.attention.values())
    if any(a.kind == "mla" and a.sparse is not None for a in kinds):
        return "mla_sparse"
    return "mla" if any(a.kind == "mla" for a in kinds) else "gqa"
