"""Bars on measured tables: pooled by rows, the worst table told, nothing where the package is missing."""

from __future__ import annotations

from typing import Any

import pytest

from mlaplan.validation import kernel_bars


class Table:
    """What a score of the calibration says of one table."""

    def __init__(self, set_: str, mape: float, n: int = 100, dtype: str = "bf16", engine: str = "sglang") -> None:
        self.set, self.chip, self.engine, self.dtype, self.n = set_, "h100-sxm", engine, dtype, n
        self.mape = self.median = self.p90 = self.worst = mape


def bar(name: str, tables: list[Any]) -> Any:
    ask = next(a for a in kernel_bars.ASKED if a.id == name)
    return kernel_bars._bar(ask, [t for t in tables if ask.wanted(t)])


def test_tables_are_pooled_by_rows() -> None:
    found = bar("gemm-bf16", [Table("gemm", 0.08, 300), Table("gemm", 0.10, 100), Table("gemm", 0.5, dtype="fp8")])
    assert found.met is True and found.value.startswith("8.5% (n=400")
    missed = bar("gemm-bf16", [Table("gemm", 0.08, 100), Table("gemm", 0.12, 300)])
    assert missed.met is False and "12.0%" in missed.why[0]


def test_no_table_may_be_far_off() -> None:
    assert bar("mla-decode", [Table("mla_decode", 0.05, 900), Table("mla_decode", 0.13, 100)]).met is False
    assert bar("mla-decode", [Table("mla_decode", 0.05, 900), Table("mla_decode", 0.11, 100)]).met is True


def test_long_contexts_are_scored_apart() -> None:
    tables = [Table("mla_decode", 0.20), Table("mla_decode context >= 1024", 0.05)]
    assert bar("mla-decode-long", tables).met is True


def test_without_tables_there_is_nothing_to_say() -> None:
    assert bar("mla-module", []).met is None


def test_the_installed_tables_have_scores() -> None:
    if not kernel_bars.scores():
        pytest.skip("aiconfigurator-core is not installed (extra silicon)")
    found = {b.id: b for b in kernel_bars.bars()}
    assert all(found[a.id].met is not None for a in kernel_bars.ASKED)
    assert found["transfer"].met is not None
