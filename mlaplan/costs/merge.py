"""Merge of decode context parallelism: how the ranks of a group put their partial outputs together.

Each of the D ranks attends with the queries of all h heads to its own tokens of a sequence and holds a partial output
and a log-sum-exp of every head. Over the wire go, for T query tokens and outputs of width w,

    ag_rs   all-gather of the log-sum-exps, T h D e_lse bytes, and reduce-scatter of the rescaled outputs, T h w e_out
    a2a     one all-to-all of both, T h (w e_out + e_lse) bytes; each rank merges its own heads

Engines keep outputs in the kernel's 16 bit or in fp32 (`merges` of the engine's profile).
Source: vllm-project/vllm, vllm/v1/attention/ops/common.py (cp_lse_ag_out_rs) and ops/dcp_alltoall.py;
sgl-project/sglang, python/sglang/srt/layers/dcp/comm.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlaplan.costs.roofline import Numeric

PATTERNS = ("ag_rs", "a2a")


class Merge(NamedTuple):
    """How partial results are put together. interleave: tokens that a rank holds in a row before the next one's."""

    out_bytes: float = 4.0
    lse_bytes: float = 4.0
    pattern: str = "ag_rs"
    interleave: int = 1


class Sent(NamedTuple):
    """One collective of the merge: an operator's name, the operation, bytes of its whole buffer."""

    name: str
    op: str
    size: Numeric


def merge_parts(m: Merge, tokens: Numeric, heads: Numeric, width: Numeric, ranks: Numeric) -> list[Sent]:
    """The collectives after the core, for `tokens` query tokens, all heads of the group, outputs of `width`."""
    out, lse = tokens * heads * width * m.out_bytes, tokens * heads * m.lse_bytes
    if m.pattern == "a2a":
        return [Sent("dcp_output_exchange", "all_to_all", out + lse)]
    # each rank holds a partial output of every head and keeps its own heads' sum
    return [Sent("dcp_lse_gather", "all_gather", lse * ranks), Sent("dcp_output_merge", "reduce_scatter", out)]


def local_tokens(context: Numeric, ranks: Numeric, interleave: int) -> Numeric:
    """Most tokens of a sequence that one rank holds when runs of `interleave` go round: whole runs, and the rest."""
    rounds, rest = np.divmod(context, np.asarray(ranks) * interleave)
    return rounds * interleave + np.minimum(rest, interleave)
