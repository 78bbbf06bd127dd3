"""Context parallelism of an engine, as its profile writes it: prompts over ranks, caches over ranks, the merge."""

from typing import Annotated, Literal

from mlaplan.specs.figure import Confidence, Count, Flag, Text
from mlaplan.specs.marks import AtLeast
from mlaplan.specs.spec import Spec, field

AttentionKind = Literal["mla", "mla_sparse", "gqa"]


class Sourced(Spec):
    """A group of facts that come from one place."""

    source: Text
    confidence: Confidence
    note: Text | None = None


class ContextMerge(Sourced):
    """One way to put partial outputs together: ag_rs or a2a, bytes of an output and of a log-sum-exp on the wire."""

    pattern: Literal["ag_rs", "a2a"]
    partial_bytes: Count
    lse_bytes: Count


class DecodeContext(Sourced):
    """Decode context parallelism of the engine as a whole; kernels may restrict it further."""

    merges: Annotated[tuple[ContextMerge, ...], AtLeast(1)] = field(description="the default first")
    interleave: Flag = field(description="a rank may hold runs of tokens, else every D-th token")
    interleave_mtp: Flag = field(description="such runs go with MTP")
    mtp: Flag
    cp: Literal["none", "whole_axis"] = field(description="with prefill context parallelism: never, or dcp is cp or tp")


class PrefillContext(Sourced):
    """Prefill context parallelism over the ranks of an attention group."""

    attention: tuple[AttentionKind, ...]
    with_dp: Flag
    whole_group: Flag = field(description="spans all tp ranks or is off")
    full_ep: Flag = field(description="only with experts over all ranks")
    max_ranks: Count | None = None
