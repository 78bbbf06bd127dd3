"""`benchmarks/peers.py` reaches the committed figures, and asks aiconfigurator for what the rows hold."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("scipy", reason="needs the silicon extra")
pytest.importorskip("pyarrow", reason="needs the silicon extra")
pytest.importorskip("aiconfigurator_core", reason="needs the silicon extra")

from mlaplan.calibration import score, tables
from mlaplan.specs.lookup import load_chip
from mlaplan.validation import kernel_bars, peers, silicon

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from peer import aic, groups

ANEW = "run `python benchmarks/peers.py --update`"
CHIP, ENGINE = "h200-sxm", "trtllm"


def test_decode_figures_of_all_tools_are_reproduced():
    found = [g.data() for g in groups.of_tables(None, "mla_decode")]
    assert [g["id"] for g in found] == [g["id"] for g in peers.of("mla_decode")]
    for group in found:
        written = peers.of(group["id"])[0]
        assert group["rows"] == written["rows"]
        for tool in ("mlaplan", "aiconfigurator_sol", "aiconfigurator_default"):
            for name, value in group["figures"][tool].items():
                assert value == pytest.approx(written["figures"][tool][name], abs=1e-3), f"{group['id']} {tool}: {ANEW}"


@pytest.mark.parametrize(("mode", "tool"), [(aic.SOL, "aiconfigurator_sol"), (aic.SILICON, "aiconfigurator_default")])
@pytest.mark.parametrize(("kv", "suffix"), [(None, ""), ("bfloat16", ":bf16")])
def test_its_served_figures_are_reproduced(mode, tool, kv, suffix):
    rows = [p for p in silicon.points() if p.engine == "sglang"]
    for metric, column in (("tpot", 0), ("ttft", 1)):
        mine = [p for p in rows if p.metric == metric and (metric != "ttft" or not groups.at_the_edge(p))]
        error = (
            aic.served(CHIP, "sglang", mode, kv, [groups.run_of(p) for p in mine])[:, column] / [p.value for p in mine]
            - 1
        )
        written = peers.of(f"served:sglang:{metric}{suffix}")
        told = next(g for g in written if g["id"] == f"served:sglang:{metric}{suffix}")["figures"][tool]
        assert (np.abs(error).mean(), error.mean()) == pytest.approx((told["mape"], told["bias"]), abs=1e-4)


def own_rows():
    spec = load_chip(CHIP, engine=ENGINE)
    for p in score.predictions(spec, ENGINE, kernel_bars.cache_modes(CHIP, ENGINE)):
        table = aic.table_of(p.kind, ENGINE)
        if table is not None and table.folder != "nccl":  # of another version than its default
            few = np.zeros(len(p.rows), dtype=bool)
            few[:: max(len(p.rows) // 200, 1)] = True
            yield p.kind, p.dtype, table, p.rows.take(few)


def test_with_its_whole_tables_it_answers_what_they_hold():
    """The operators and shapes it is asked for are those of the rows: look-ups then have no error."""
    whole = aic.Peer(CHIP, ENGINE, aic.SILICON)
    seen = set()
    for kind, dtype, table, rows in own_rows():
        found = whole.seconds(table, rows)
        assert found == pytest.approx(rows.seconds, rel=2e-3), f"{kind} {dtype}"
        seen.add(kind)
    assert seen == {"mla_decode", "mla_prefill", "mla_module", "gemm", "bmm", "grouped_gemm", "all_reduce_custom"}


def test_no_row_that_it_is_scored_on_is_in_its_tables(tmp_path):
    kept = list(groups.seen(CHIP, ENGINE))
    aic.half_of(CHIP, kept, tmp_path)
    for dtype in ("bf16", "fp8"):
        rows = tables.mla_decode(CHIP, ENGINE, dtype)
        held = score.held_out(rows)
        table = aic.table_of("mla_decode", ENGINE)
        file = next(tmp_path.rglob(f"{table.name}.parquet"))
        left = pd.read_parquet(file)
        left = left[left.kv_cache_dtype == tables.THEIRS[dtype]]
        shapes = set(zip(left.num_heads, left.batch_size, left.step + 1, strict=True))
        asked = set(zip(*(held.columns[n] for n in ("heads", "batch", "context")), strict=True))
        assert len(shapes) == len(rows) - len(held) and not shapes & asked
