"""What an engine profile says of collectives: how tokens reach experts, and sums over TP ranks."""

from typing import Annotated, Literal

from mlaplan.engines.context import Sourced
from mlaplan.specs.chip import EfficiencyClass
from mlaplan.specs.figure import Count, Flag, Text
from mlaplan.specs.marks import Quantity
from mlaplan.specs.spec import Told, field

Bytes = Annotated[float, Quantity("engine_bytes", "bytes", 0, 1e12)]


class AllToAll(Sourced):
    """How tokens reach their experts when attention is data parallel."""

    name: Text
    role: Literal["default", "low_latency", "high_throughput"]
    pattern: Literal["gather", "dispatch"] = field(description="a rank sees all tokens, or only those routed to it")
    graphs: Flag = field(description="works inside CUDA graphs")
    max_tokens: Count | None = field(default=None, description="tokens a rank may dispatch in one step")
    full_ep: Flag = field(description="forces experts over all ranks")
    only_on: tuple[Text, ...] = field(default=(), description="chips whose names begin so; any where empty")
    not_on: tuple[Text, ...] = field(default=(), description="not on chips whose names begin so")
    fixed: Flag = field(default=False, description="taken in every step that allows it, faster or not, DP or not")
    alone: Flag = field(default=False, description="of a dispatch: steps of the other role, and larger ones, gather")
    least_ranks: Count | None = field(default=None, description="fewest expert-parallel ranks that it is used with")
    most_experts: Count | None = field(default=None, description="most experts of a rank, whole ones, that it takes")
    cores: dict[EfficiencyClass, Count] = field(
        default_factory=dict, description="cores that its kernels hold while they run, by class of chip; else none"
    )

    def serves(self, chip_name: str) -> bool:
        """Whether it is used on this chip."""
        own = not self.only_on or chip_name.startswith(self.only_on)
        return own and not (self.not_on and chip_name.startswith(self.not_on))


class AllReduceLimit(Sourced):
    """Largest all-reduce that an in-graph kernel of the engine takes, by rank count."""

    chips: tuple[EfficiencyClass, ...]
    ranks: tuple[Count, ...]
    max_bytes: tuple[Bytes, ...]
    fuses_norm: Flag = field(default=False, description="adds the residual and takes the norm in the same kernel")
    fuses_tokens: Count | None = field(default=None, description="in steps of so many tokens at most; any if none")
    fuses_alone: Flag = field(default=False, description="in one node and without attention data parallelism only")

    def check(self) -> None:
        if len(self.ranks) != len(self.max_bytes):
            raise Told("ranks and max_bytes differ in length", "one size for each rank count")
