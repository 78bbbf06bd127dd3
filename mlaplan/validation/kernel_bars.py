"""Bars on the measured kernel and collective tables of the aiconfigurator-core package, rows that no fit has seen.

The scores are those of the calibration: the fits that a plan would use, on the half of each table held out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mlaplan.validation.bars import Bar
from mlaplan.validation.peers import elsewhere
from mlaplan.validation.silicon import path

if TYPE_CHECKING:
    from mlaplan.calibration.score import Score

CHIPS = ("h100-sxm", "h200-sxm")
ENGINES = ("sglang", "trtllm")
NO_SILICON = "needs the extra `silicon` (aiconfigurator-core)"
WORST_TABLE = 0.12
NCCL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
TABLE_HEADS = 128  # of the published H800 tables


@dataclass(frozen=True, slots=True)
class Ask:
    """A limit on the pooled error of some tables."""

    id: str
    set: str
    title: str
    limit: float
    peers: tuple[str, ...]  # groups of the same rows that other tools were run on
    wanted: Callable[[Score], bool]
    each: float | None = None  # no single table above this


ASKED = (
    Ask("mla-decode", "kernels", "decode MLA kernel, H100 and H200, SGLang and TensorRT-LLM, bf16 and fp8", 0.08,
        ("mla_decode",), lambda s: s.set == "mla_decode", WORST_TABLE),
    Ask("mla-decode-long", "kernels", "the same at contexts of 1024 and more", 0.06, (),
        lambda s: s.set.startswith("mla_decode context")),
    Ask("mla-module", "kernels", "MLA decode module of TensorRT-LLM, never fitted: the sum of its parts", 0.06,
        ("mla_module",), lambda s: s.set == "mla_module"),
    Ask("gemm-bf16", "kernels", "GEMM bf16, H100 and H200", 0.09, ("gemm:sglang:bf16", "gemm:trtllm:bf16"),
        lambda s: s.set == "gemm" and s.dtype == "bf16"),
    Ask("gemm-fp8-block", "kernels", "GEMM fp8 in blocks, H100 and H200", 0.14,
        ("gemm:sglang:fp8_block", "gemm:trtllm:fp8_block"),
        lambda s: s.set == "gemm" and s.dtype == "fp8_block"),
    Ask("mla-prefill", "kernels", "context MLA of TensorRT-LLM, H100 and H200", 0.08, ("mla_prefill:trtllm:bf16",),
        lambda s: s.set == "mla_prefill" and s.dtype == "bf16"),
    Ask("collectives", "collectives", "NCCL, 2 to 8 ranks, the four kinds pooled", 0.08, NCCL,
        lambda s: s.set == "collectives" and s.engine == "sglang"),
    Ask("deepep-tables", "collectives", "DeepEP low latency, held-out rows", 0.04, (),
        lambda s: s.set.startswith(("dispatch", "combine")) and s.engine == "sglang"),
)  # fmt: skip


@lru_cache(maxsize=1)
def scores() -> tuple[Score, ...]:
    """The scores of every chip and engine with tables; nothing where the package is not installed."""
    if path() is None or find_spec("mlaplan.calibration.score") is None:
        return ()
    from mlaplan.calibration.score import score_kernels

    return tuple(s for c in CHIPS for e in ENGINES for s in score_kernels(c, e, cache_modes(c, e)))


def cache_modes(chip: str, engine: str) -> dict[str, str]:
    """How an engine's first MLA backend on a chip reads each cache, which says what its decode table measures."""
    from mlaplan.engines.load import load_profile
    from mlaplan.specs.lookup import load_chip

    return load_profile(engine).cache_modes(load_chip(chip).efficiency_class, "mla")


def bars() -> list[Bar]:
    """Every bar on tables, and the transfer of one chip's constants to another's rows."""
    found = [_bar(ask, [s for s in scores() if ask.wanted(s)]) for ask in ASKED]
    return [*found, transfer()]


def _bar(ask: Ask, tables: Sequence[Score]) -> Bar:
    limit = f"MAPE <= {ask.limit:.0%}" + (f", no table above {ask.each:.0%}" if ask.each else "")
    others = elsewhere(*ask.peers)
    if not tables:
        return Bar(ask.id, ask.set, ask.title, limit, NO_SILICON, None, others)
    rows = sum(s.n for s in tables)
    pooled = sum(s.mape * s.n for s in tables) / rows
    worst = sorted(tables, key=lambda s: -s.mape)
    met = pooled <= ask.limit and (ask.each is None or worst[0].mape <= ask.each)
    value = f"{pooled:.1%} (n={rows}, worst table {worst[0].mape:.0%})"
    missed = [s for s in worst if s.mape > ask.limit][:4]
    why = tuple(
        f"{s.set} {s.dtype}, {s.chip}, {s.engine}: {s.mape:.1%} (median {s.median:.1%}, nine in ten {s.p90:.0%})"
        for s in missed
    )
    return Bar(ask.id, ask.set, ask.title, limit, value, met, others, () if met else why)


def transfer() -> Bar:
    """Constants fitted on H800 tables, on published H100 rows of the same die: decode attention in bf16."""
    from dataclasses import replace

    from mlaplan.validation.bars import on_mape
    from mlaplan.validation.points import published
    from mlaplan.validation.score import score

    rows = [
        replace(p, chip="h800-sxm", engine="generic", fitted=False)
        for p in published()
        if p.group == "mla-decode" and p.chip == "h100-sxm" and p.strategy.get("kv_dtype") == "bf16"
    ]
    scored = score(rows)
    found = on_mape("transfer", "kernels", "constants from H800 tables on published H100 rows", scored, 0.10)
    if found.met is not False:
        return found
    alike = [s for s in scored if s.point.workload["heads"] == TABLE_HEADS]
    mean = sum(abs(s.error) for s in alike) / len(alike)
    told = (
        f"the H800 tables hold {TABLE_HEADS} heads only, where compute and memory bind together: they cannot tell the "
        f"share of bandwidth that fewer heads show. On the {len(alike)} rows of {TABLE_HEADS} heads: {mean:.1%}"
    )
    return replace(found, why=(told, *found.why))
