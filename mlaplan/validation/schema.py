"""Published measurements as typed data. Written in `points/*.yaml`, one file for each group.

A file holds series: what several points share is said once. A point is one number somebody else measured, with
what was run. What the source does not state stands under `unknown` with all the values it may have: the
prediction is made at each of them and its band covers all. A point that contradicts itself or physics stays in
the set with `use: reject`: the tool must flag it.
"""

from typing import Annotated, Any, Literal, NamedTuple

from mlaplan import units
from mlaplan.specs.figure import (
    Contradiction,
    Count,
    CountOrZero,
    Flag,
    Text,
    contradiction,
)
from mlaplan.specs.marks import AtLeast, Quantity, Words, kind_of
from mlaplan.specs.spec import Spec, Told, field

Set_ = Literal["kernels", "collectives", "steps", "served"]
Measure = Literal["operator", "decode", "prefill", "served"]
Use = Literal["fit", "holdout", "anchor", "ratio", "loose", "context", "reject"]
Grade = Literal["A", "B", "C"]
KvDtype = Literal["bf16", "fp16", "fp8", "fp8_ds_mla", "int8"]
WeightDtype = Literal["bf16", "fp16", "fp8", "int8", "int4", "fp4"]
Operator = Literal[
    "mla_decode", "mla_prefill", "sparse_mla_decode", "sparse_mla_prefill", "indexer", "mla_module", "gemm", "experts",
    "experts_prefill",
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "dispatch", "combine", "dispatch_normal",
    "combine_normal",
]  # fmt: skip

# metric -> (dimension of its value, whether a larger one is better)
METRICS: dict[str, tuple[str, bool]] = {
    "time": ("s", False),
    "step": ("s", False),
    "tpot": ("s", False),
    "ttft": ("s", False),
    "tok_s_chip": ("count", True),
    "tok_s_user": ("count", True),
    "tok_s": ("count", True),
    "total_tok_s_chip": ("count", True),
    "bandwidth": ("bytes/s", True),
    "flops": ("flop/s", True),
    "share": ("count", True),
    "ratio": ("count", True),
}
Metric = Literal[
    "time", "step", "tpot", "ttft", "tok_s_chip", "tok_s_user", "tok_s", "total_tok_s_chip", "bandwidth", "flops",
    "share", "ratio",
]  # fmt: skip

Number = Annotated[float, Quantity("validation_number", "count", 0, 1e9)]
Bytes = Annotated[float, Quantity("validation_bytes", "bytes", 0, 1e13)]
Month = Annotated[str, Words(r"^20\d\d-\d\d$")]
Share = Annotated[float, Quantity("validation_share", "fraction", 0, 1)]


class Reading(NamedTuple):
    """A measured value in SI, and the dimension its unit has."""

    si: float
    dimension: str


def reading(raw: Any) -> Reading:
    """`24.9 us`, `660 TFLOPS`, `3000 GB/s`, or a bare number."""
    if isinstance(raw, Reading):
        return raw
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise Told(f"{kind_of(raw)} is not a measured value", "a number, or one with a unit such as '24.9 us'")
    if not isinstance(raw, str):
        return Reading(units.parse(raw, "count"), "count")
    for dimension in ("s", "flop/s", "bytes/s", "count"):
        try:
            return Reading(units.parse(raw, dimension), dimension)
        except units.UnitError:
            continue
    raise Told(f"'{raw}' is not a measured value", "a number, or one with a unit such as '24.9 us'")


class Placement(Spec):
    """The strategy that was run; what is left out has the default of the engine."""

    tp: Count | None = None
    pp: Count | None = None
    dp: Count | None = None
    ep: Count | None = None
    dcp: Count | None = None
    kv_dtype: KvDtype | None = None
    weight_dtype: WeightDtype | None = None
    block_size: Count | None = None
    prefill_chunk: Count | None = None
    two_batch_overlap: Flag | None = None
    mtp: CountOrZero | None = None


class Load(Spec):
    """The work: of an operator, of one step, or of a client."""

    batch: Count | None = field(default=None, description="sequences of one attention-DP rank")
    context: Count | None = field(default=None, description="cached tokens of each sequence")
    q_len: Count | None = None
    tokens: Count | None = field(default=None, description="new tokens of one rank in a prefill step, or dispatched")
    isl: Count | None = None
    osl: Count | None = None
    prefix: Share | None = field(default=None, description="part of the prompt found in the cache")
    concurrency: Count | None = None
    requests: Count | None = field(default=None, description="requests the client sends in all")
    shortest: Share | None = field(default=None, description="shortest length over the nominal one, uniform between")
    heads: Count | None = field(default=None, description="query heads of one rank")
    m: Count | None = None
    n: Count | None = None
    k: Count | None = None
    ranks: Count | None = None
    size: Bytes | None = field(default=None, description="bytes of the whole buffer")


class Given(Spec):
    """What the source states beside the strategy, in place of the model's or engine's own figure."""

    tokens_per_step: Number | None = None
    imbalance: Number | None = None
    redundant_experts: CountOrZero | None = None
    shared_ranks: CountOrZero | None = field(default=None, description="ranks that hold the shared experts alone")
    gather_only: Flag | None = field(default=None, description="its experts ran without a dispatch")
    memory_fraction: Share | None = None
    whole_prompts: Flag | None = field(default=None, description="the engine was told not to cut prompts")
    warmed: Flag | None = field(default=None, description="the client warmed the server up before it measured")
    hold_rounds: Count | None = field(
        default=None, description="steps for which prompts wait at most until all attention-DP ranks have one"
    )


class Claims(Spec):
    """Figures that the source gives beside the value: they must agree with it and with each other."""

    step: Annotated[float, Quantity("claimed_time", "s", 0, 1e3)] | None = None
    tok_s: Number | None = None
    in_flight: Number | None = None
    devices: Count | None = None
    busy_share: Share | None = field(default=None, description="part of the step in which the chip works")
    comm_share: Share | None = None


class Row(Spec):
    """One measured number. What is left out is as in its series."""

    id: Text
    value: Any
    metric: Metric | None = None
    operator: Operator | None = None
    chip: Text | None = None
    strategy: Placement = Placement()
    workload: Load = Load()
    given: Given = Given()
    unknown: dict[Text, tuple[Any, ...]] = field(default_factory=dict)
    claims: Claims = Claims()
    grade: Grade | None = None
    use: Use | None = None
    fitted: Flag | None = field(default=None, description="a constant of ours was fitted on it")
    note: Text | None = None

    @classmethod
    def prepare(cls, data: Any) -> Any:
        if isinstance(data, dict) and "value" in data:
            data = {**data, "value": reading(data["value"])}
        return data


class Series(Spec):
    """Points of one source that share what was run."""

    name: Text
    source: Text = field(description="public address or paper")
    software: Text | None = field(default=None, description="what ran, with its version")
    era: Month | None = field(default=None, description="month of the software")
    chip: Text | None
    model: Text | None
    engine: Text = field(default="generic", description="profile that prices it")
    release: Text | None = field(
        default=None, description="of the engine, whose kernels ran, where the software or its date tells"
    )
    weights: dict[Text, Text] = field(default_factory=dict, description="dtypes of parts in place of the checkpoint's")
    figures: dict[Text, Text] = field(
        default_factory=dict, description="the chip's figures as that software had them, as `--set` takes them"
    )
    measure: Measure
    operator: Operator | None = None
    metric: Metric
    strategy: Placement = Placement()
    workload: Load = Load()
    given: Given = Given()
    unknown: dict[Text, tuple[Any, ...]] = field(default_factory=dict)
    grade: Grade
    use: Use
    fitted: Flag = False
    not_priced: Text | None = field(default=None, description="why the model makes no prediction")
    note: Text | None = None
    points: Annotated[tuple[Row, ...], AtLeast(1)]


class Measurements(Spec):
    """One file of measurements."""

    kind: Literal["measurements"]
    set: Set_
    group: Text
    title: Text
    notes: tuple[Text, ...] = ()
    series: Annotated[tuple[Series, ...], AtLeast(1)]

    @classmethod
    def contradictions(cls, data: dict[str, Any]) -> list[Contradiction]:
        """What no single field shows: a unit that is not the metric's, an input both stated and unknown."""
        found: list[Contradiction] = []
        for i, series in enumerate(data.get("series") or ()):
            if not isinstance(series, dict) or not isinstance(series.get("points"), list):
                continue
            for j, row in enumerate(series["points"]):
                if isinstance(row, dict):
                    found += _mistakes(("series", i, "points", j), series, row)
        return found

    def check(self) -> None:
        found: list[Contradiction] = []
        for i, series in enumerate(self.series):
            for j, row in enumerate(series.points):
                wanted = METRICS[row.metric or series.metric][0]
                if row.value.dimension != wanted:
                    found.append((("series", i, "points", j, "value"), "unit", "", ()))
                if _twice(series.model_dump(exclude_none=True), row.model_dump(exclude_none=True)):
                    found.append((("series", i, "points", j), "twice", "", ()))
        if found:
            raise contradiction(found)


class Ratio(Spec):
    """How much one point exceeds another, measured under the same unknown circumstances."""

    id: Text
    of: Text
    to: Text
    topic: Literal["dcp", "mtp", "ep", "dp", "balance"]
    grade: Grade
    use: Use
    interval_only: Flag = field(default=False, description="the inputs are too vague for more than the interval")
    note: Text | None = None


class Decision(Spec):
    """Published alternatives for one workload: which of them does the model put first?"""

    id: Text
    question: Text
    alternatives: Annotated[tuple[Text, ...], AtLeast(2)]


class Comparisons(Spec):
    """Ratios between points, and groups of alternatives."""

    kind: Literal["comparisons"]
    ratios: tuple[Ratio, ...]
    decisions: tuple[Decision, ...]


def _mistakes(at: tuple[str | int, ...], series: dict[str, Any], row: dict[str, Any]) -> list[Contradiction]:
    found: list[Contradiction] = []
    metric = row.get("metric") or series.get("metric")
    if metric in METRICS and "value" in row:
        wanted = METRICS[metric][0]
        try:
            got = reading(row["value"]).dimension
        except Exception:  # told at the value itself
            got = wanted
        if got != wanted:
            found.append(((*at, "value"), f"'{row['value']}' is no {metric}", units.expected(wanted), ()))
    for name in _twice(series, row):
        found.append((at, f"'{name}' is both stated and unknown", "one of the two", ()))
    return found


def _twice(series: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """Inputs that a point states although the same level calls them unknown."""
    out = []
    for level in (series, row):
        stated = {name for part in ("strategy", "workload", "given") for name in level.get(part) or {}}
        out += [name for name in level.get("unknown") or {} if name in stated]
    return out
