"""A chip: one schedulable device, every figure with its source. Written in `hardware/*.yaml`."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from mlaplan.errors import Problem
from mlaplan.specs.figure import (
    Bandwidth,
    Capacity,
    Clock,
    Contradiction,
    Cores,
    Count,
    CountOrZero,
    Duration,
    Figure,
    Flag,
    Flops,
    Fraction,
    FractionOrZero,
    OnChipCapacity,
    Power,
    Price,
    Slowdown,
    Text,
    contradiction,
)
from mlaplan.specs.fit import CollectiveFit, KernelFit
from mlaplan.specs.marks import AtLeast, OneOf, Words
from mlaplan.specs.spec import Spec, field

EFFICIENCY_CLASSES = (
    "nvidia-ampere",
    "nvidia-hopper",
    "nvidia-blackwell",
    "amd-cdna3",
    "amd-cdna4",
    "ascend",
    "sophgo",
    "generic",
)
EfficiencyClass = Annotated[str, OneOf(EFFICIENCY_CLASSES)]
MatrixDtype = Annotated[str, OneOf(("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"))]
VectorDtype = Annotated[str, OneOf(("fp32", "bf16", "fp16", "int8"))]
KernelOp = Annotated[
    str,
    OneOf(
        (
            "gemm",
            "bmm",
            "router",
            "grouped_gemm",
            "grouped_gemm_ep",
            "mla_decode",
            "mla_prefill",
            "gqa_decode",
            "gqa_prefill",
            "sparse_mla_decode",
            "indexer",
            "elementwise",
            "lm_head",
            "kv_cast",
            "kv_dequantise",
        )
    ),
]
KernelDtype = Annotated[
    str, OneOf(("fp32", "tf32", "bf16", "fp16", "fp8", "fp8_block", "fp8_ds_mla", "int8", "fp4", "int4"))
]
CollectiveOp = Annotated[
    str,
    OneOf(
        (
            "all_reduce",
            "all_reduce_custom",
            "all_reduce_custom_eager",
            "all_reduce_fused",
            "all_gather",
            "reduce_scatter",
            "all_to_all",
            "dispatch",
            "combine",
            "send",
        )
    ),
]
NO_WARNINGS: tuple[Problem, ...] = ()
Topology = Literal["switch", "full_mesh", "ring", "ring_chords"]


class Link(Spec):
    """How chips reach each other. Bandwidth is per chip and direction, over all its links of this kind."""

    name: Text
    topology: Topology
    chips_per_node: Count = field(default=1, description="chips joined by this link; required on scale_up")
    group: Count | None = field(default=None, description="chips in one full mesh inside the node, if not all")
    chips_per_host: Count | None = field(
        default=None, description="chips of one operating system, where the link joins several"
    )
    bandwidth: Figure[Bandwidth]
    links: Count | None = field(default=None, description="mesh: peers a chip has a link of its own to")
    ring_order: tuple[CountOrZero, ...] | None = None
    chords: tuple[tuple[CountOrZero, CountOrZero], ...] | None = None
    latency: Figure[Duration] | None = None
    efficiency: Figure[Fraction] | None = None
    jitter: Figure[Slowdown] | None = field(
        default=None, description="how much longer than usual a single slice may take, as a share of its time"
    )
    collectives: dict[CollectiveOp, CollectiveFit] = field(default_factory=dict)
    unsupported: tuple[CollectiveOp, ...] = ()
    note: Text | None = None

    @property
    def host_chips(self) -> int:
        """Chips that one operating system drives: all of a node, unless its link joins several hosts."""
        return min(self.chips_per_host or self.chips_per_node, self.chips_per_node)


class Memory(Spec):
    """Device memory. `capacity` is what the driver reports, `marketed` what the label says."""

    type: Text
    capacity: Figure[Capacity]
    marketed: Figure[Capacity] | None = None
    bandwidth: Figure[Bandwidth]


class OnChip(Spec):
    """One level of memory between the cores and the device memory."""

    name: Text
    scope: Literal["core", "chip"]
    capacity: Figure[OnChipCapacity]
    bandwidth: Figure[Bandwidth] | None = None
    usable: Figure[Fraction] | None = None


class Dma(Spec):
    """Copy engines, and whether they move data while the cores compute."""

    engines: tuple[Text, ...]
    beside_compute: Flag
    descriptor: Figure[Duration] | None = None
    overlap: Figure[FractionOrZero] | None = None


class Overheads(Spec):
    """Times that do not depend on the amount of work."""

    kernel: Figure[Duration]
    collective: Figure[Duration]
    eager_collective: Figure[Duration] | None = None
    core_sync: Figure[Duration] | None = None
    task_switch: Figure[Duration] | None = field(
        default=None, description="from one task on a core to the next, without the host"
    )


class Padding(Spec):
    """Tile sizes that work is rounded up to; 1 is none."""

    attention_rows: Count = 1
    gemm_rows: Count = 1
    kv_tokens: Count = 1


class HostLink(Spec):
    """The way to the host's memory, per direction."""

    name: Text
    bandwidth: Figure[Bandwidth]


class Calibration(Spec):
    """Fits of one engine's kernels on one chip, laid over the chip's own: `hardware/CHIP.ENGINE.cal.yaml`.

    Those of an older release are in `hardware/CHIP.ENGINE@1.0.cal.yaml`, under its minor line.
    """

    kind: Literal["calibration"]
    chip: Text
    engine: Text
    versions: dict[Text, Text] = field(
        default_factory=dict, description="what was measured, by engine or library: of the engine its release"
    )
    notes: tuple[Text, ...] = ()
    efficiency: dict[KernelOp, dict[KernelDtype, KernelFit]] = field(default_factory=dict)
    scale_up: dict[CollectiveOp, CollectiveFit] = field(default_factory=dict)
    scale_out: dict[CollectiveOp, CollectiveFit] = field(default_factory=dict)


class Chip(Spec):
    """One schedulable device. A dtype that `peak` does not list is not supported by the matrix units."""

    kind: Literal["chip"]
    name: Annotated[str, Words(r"^[a-z0-9][a-z0-9._-]*$")]
    title: Text
    vendor: Text
    unit: Text = field(description="what one chip is: GPU, die, chip of a two-chip card")
    efficiency_class: EfficiencyClass = field(alias="class")
    notes: tuple[Text, ...] = ()
    names: tuple[Text, ...] = field(default=(), description="other names this chip is asked for by")
    cores: Figure[Cores]
    clock: Figure[Clock]
    peak: Annotated[dict[MatrixDtype, Figure[Flops]], AtLeast(1)]
    vector: dict[VectorDtype, Figure[Flops]] = field(default_factory=dict)
    memory: Memory
    on_chip: tuple[OnChip, ...] = ()
    dma: Dma | None = None
    overheads: Overheads
    padding: Padding = Padding()
    scale_up: Link
    scale_out: Link | None = None
    host_link: HostLink | None = None
    efficiency: dict[KernelOp, dict[KernelDtype, KernelFit]] = field(default_factory=dict)
    price: Figure[Price] | None = None
    power: Figure[Power] | None = None

    _origin = ""
    _calibration = ""
    _warnings = NO_WARNINGS

    @property
    def origin(self) -> str:
        """The file this chip was read from."""
        return self._origin

    @property
    def calibration(self) -> str:
        """The file of an engine's fits that was laid over the chip's own, or nothing."""
        return self._calibration

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Figures that may be real but look like a slip."""
        return self._warnings

    def kernel(self, op: str, dtype: str) -> KernelFit:
        """The chip's own fit, else the default of its class or of the generic one, as its source tells."""
        own = self.efficiency.get(op, {}).get(dtype)
        if own is not None:
            return own
        from mlaplan.specs.defaults import default_kernel

        return default_kernel(self.efficiency_class, op, dtype)

    def check(self) -> None:
        if found := list(self.contradictions(self.model_dump(by_alias=True, exclude_unset=True))):
            raise contradiction(found)

    @staticmethod
    def contradictions(data: dict[str, Any]) -> Iterator[Contradiction]:
        """Parts of a chip's data that do not fit each other, from the data as written."""
        for key in ("scale_up", "scale_out"):
            if isinstance(data.get(key), dict):
                yield from _link_contradictions(key, data[key])


def _link_contradictions(key: str, link: dict[str, Any]) -> Iterator[Contradiction]:
    size, group = link.get("chips_per_node"), link.get("group")
    if key == "scale_up" and size is None:
        yield (key,), "missing key 'chips_per_node' in scale_up", "a whole number", ()
    if key == "scale_out" and size is not None:
        yield (key, "chips_per_node"), "this key belongs to scale_up", "no such key in scale_out", ()
    host = link.get("chips_per_host")
    if key == "scale_out" and host is not None:
        yield (key, "chips_per_host"), "this key belongs to scale_up", "no such key in scale_out", ()
    if not isinstance(size, int) or size < 1:
        return
    if isinstance(host, int) and 0 < host < size and size % host:
        yield (key, "chips_per_host"), f"{size} chips do not split into hosts of {host}", f"a divisor of {size}", ()
    if isinstance(group, int) and group > 0 and size % group:
        yield (key, "group"), f"{size} chips do not split into groups of {group}", f"a divisor of {size}", ()
    order = link.get("ring_order")
    if (
        isinstance(order, list | tuple)
        and all(isinstance(c, int) for c in order)
        and sorted(order) != list(range(size))
    ):
        yield (
            (key, "ring_order"),
            "does not name each chip once",
            f"the numbers 0 to {size - 1}",
            (),
        )
    chords = link.get("chords")
    if link.get("topology") == "ring_chords" and not chords:
        yield (
            (key,),
            f"missing key 'chords' in {key}, whose topology is ring_chords",
            "pairs such as [[0, 4]]",
            (),
        )
    for i, chord in enumerate(chords if isinstance(chords, list | tuple) else []):
        ends = [c for c in chord if isinstance(c, int)] if isinstance(chord, list | tuple) else []
        if len(ends) == 2 and (ends[0] == ends[1] or max(ends) >= size):
            yield (
                (key, "chords", i),
                f"{ends} does not join two chips",
                f"two numbers from 0 to {size - 1}",
                (),
            )
