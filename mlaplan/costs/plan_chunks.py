"""Query chunk, slices, depth and core mapping of a strategy's decode, for plans that are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.costs.chunks import LocalPlan, local_plan
from mlaplan.costs.merge import local_tokens
from mlaplan.costs.roofline import ceil_div

if TYPE_CHECKING:
    from mlaplan.costs.step import Setting
    from mlaplan.strategy import Strategy


def of_strategy(setting: Setting, s: Strategy, context: int) -> LocalPlan | None:
    """The plan of one chip for one micro-batch at `context` cached tokens; None where no dense MLA is decoded whole.

    Decode context parallelism leaves a rank 1/dcp of each sequence and the heads of all its ranks.
    """
    chip, model = setting.chip, setting.model
    found = [a for a in model.attention.values() if a.kind == "mla" and not a.sparse]
    if not found or s.kv_layout == "latent_sharded":
        return None
    a = found[0]
    heads = min(ceil_div(a.heads, s.tp // s.cp) * s.dcp, a.heads)
    sequences = ceil_div(ceil_div(s.batch, min(s.pp, s.batch)), 1 + s.two_batch_overlap)
    dtype = s.kv_dtype if s.kv_dtype != "fp16" else "bf16"
    return local_plan(
        chip,
        a,
        int(heads),
        int(sequences),
        int(local_tokens(context, s.dcp, setting.engine.merge.interleave)),
        1 + s.mtp,
        dtype,
    )
