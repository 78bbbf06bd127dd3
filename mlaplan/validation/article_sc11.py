"""Numbers beside the claims of the SC11 article."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from mlaplan.costs import bounds, mapping, mla
from mlaplan.costs.mapping import Buffered, Decode
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.specs.model import MLA
from mlaplan.strategy import Strategy
from mlaplan.validation.articles import figures

if TYPE_CHECKING:
    from mlaplan.explain import Explanation

SC11 = figures("sc11")
MIB = 2.0**20
CARDS = 4
BF16_SHARE = 0.7  # of the matrix peak if scores run in bf16, as the note of the chip's mla_decode fit says


def attention() -> MLA:
    return load_model("deepseek-v3").attention["mla"]  # type: ignore[return-value]


def hidden() -> int:
    return load_model("deepseek-v3").hidden_size


def mean_tokens() -> int:
    """Cached tokens of all sequences on average: from isl to isl + osl each."""
    return SC11["batch"] * (SC11["isl"] + SC11["osl"] // 2)


def double_buffer(weights: bool, copies: bool, shared: bool = False) -> Buffered:
    """128 x 512 on one chip of eight, scores in bf16."""
    a = attention()
    up = mla.attention_weight_elements(a, hidden())[0] * 2 / SC11["chips"] if weights else 0.0
    d = Decode(a, a.heads // SC11["chips"], SC11["batch"], SC11["context"])
    return mapping.double_buffered(
        load_chip("sc11"), d, up, copies=copies, compute_share=BF16_SHARE, shared_memory=shared
    )


@cache
def step() -> Explanation:
    """The whole decode step at the mean context, on eight chips under TP8 EP8, generic engine."""
    from mlaplan.engines.load import load_profile
    from mlaplan.explain import explain
    from mlaplan.plan import question
    from mlaplan.workload import Overrides, Workload

    work = Workload(SC11["isl"], SC11["osl"], SC11["batch"])
    q = question(load_chip("sc11"), load_model("deepseek-v3"), load_profile("generic"), work, Overrides())
    s = Strategy(tp=8, ep=8, weight_dtype="fp8", batch=SC11["batch"])
    return explain(q, s, decode_context=mean_tokens() // SC11["batch"], served=False)


def rate() -> float:
    found = step().decode
    assert found is not None
    return float(bounds.tokens_per_s(SC11["batch"], found.step_s.value))


def tp_over_dp() -> float:
    found = mapping.sizes(attention(), hidden(), mean_tokens(), CARDS, 1.0)
    return found.tp_bytes / found.dp_bytes


COMPUTED: dict[str, Callable[[], float]] = {
    "absorb-flops": lambda: (2 * 512 * 256 + 640) / 2176,
    "heads": lambda: attention().heads / CARDS,
    "weights-over-cache": lambda: mapping.sizes(attention(), hidden(), mean_tokens(), CARDS, 2.0).cache_bytes / 1e6,
    "tp-or-dp": tp_over_dp,
    "table-1": lambda: mapping.sizes(attention(), hidden(), mean_tokens(), CARDS, 1.0).cache_bytes / 1e6,
    "table-2": lambda: float(mapping.table(load_chip("sc11"), attention(), 16, (1,), (2048,))[1, 2048][0].parts),
    "double-buffer": lambda: double_buffer(False, True).saving,
    "buffers": lambda: 8 * 2 * SC11["context"] * 1152 / MIB,
    "rate": rate,
    "fits": lambda: step().memory.total_bytes / 1e9,
}
