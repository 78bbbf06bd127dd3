"""`mlaplan show`: what was understood of a chip or a model, for people and for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlaplan.specs.lookup import chip_names, model_names
from tests.cli.conftest import Run

FIXTURES = Path(__file__).parents[1] / "fixtures"
CHIP = str(FIXTURES / "toy-chip.yaml")
MODEL = str(FIXTURES / "toy-model.yaml")


def test_a_chip_shows_each_figure_with_range_basis_and_source(run: Run) -> None:
    result = run("show", CHIP)
    assert (result.code, result.err) == (0, "")
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert lines[0] == "Toy chip (toy-chip)"
    assert lines[1] == f"file: {CHIP}"
    assert "memory.bandwidth 2.00 TB/s 1.80..2.10 TB/s derived [1]" in lines
    assert "memory.capacity 80.0 GB 74.5 GiB assumed [1]" in lines
    assert "all_reduce 4 10.0 us 160 GB/s 20 % measured [1]" in lines
    assert "gemm bf16 0.75 0.85 3.00 us 3 15 % measured [1]" in lines
    assert "[1] made up" in lines
    assert any(line.startswith("[2] class default: generic;") for line in lines)


def figures(data: Any) -> list[dict[str, Any]]:
    """Every figure anywhere in the data."""
    if isinstance(data, dict):
        own = [data] if "confidence" in data and "value" in data else []
        return own + [figure for item in data.values() for figure in figures(item)]
    return [figure for item in data for figure in figures(item)] if isinstance(data, list) else []


def test_a_chip_as_json_is_in_si_with_the_unit_in_each_key(run: Run) -> None:
    data = json.loads(run("show", CHIP, "--format", "json").out)
    assert data["schema"] == "mlaplan.chip/1"
    assert (data["name"], data["class"], data["file"]) == ("toy-chip", "generic", CHIP)
    assert data["memory"]["bandwidth_bytes_per_s"] == {
        "value": 2e12, "low": 1.8e12, "high": 2.1e12, "source": "made up", "confidence": "derived"
    }  # fmt: skip
    assert data["clock_hz"]["value"] == data["clock_hz"]["low"] == data["clock_hz"]["high"] == 1.5e9
    assert data["peak_flop_per_s"]["fp8"]["value"] == 200e12
    assert data["on_chip"][0]["capacity_bytes"]["value"] == 50 * 2**20
    assert data["overheads"]["kernel_s"]["value"] == 3e-6
    assert data["scale_up"]["collectives"]["all_reduce"]["alpha_s"] == [7e-6, 10e-6, 17e-6]
    assert data["scale_up"]["collectives"]["all_reduce"]["bandwidth_bytes_per_s"][0] == 150e9
    assert data["efficiency"]["gemm"]["bf16"]["floor_s"] == 3e-6
    assert data["price_usd_per_h"]["value"] == 2.5
    assert data["scale_out"] is None
    assert data["power_w"] is None
    assert len(figures(data)) == 11
    for figure in figures(data):
        assert figure["source"]
        assert figure["confidence"] in ("datasheet", "measured", "derived", "assumed")
        assert figure["low"] <= figure["value"] <= figure["high"]


def test_overrides_and_warnings_are_shown(run: Run) -> None:
    result = run("show", CHIP, "--set", "memory.bandwidth=x0.5", "--set", "peak.fp8=400 TFLOPS")
    assert result.code == 0
    assert "x0.5 on the command line, of: made up" in " ".join(result.out.split())
    assert result.err == (
        "--set peak.fp8=400 TFLOPS: warning: peak.fp8: 400 TFLOPS looks like a sparsity figure, "
        "2.0 x what its bf16 rate implies; expected the dense rate\n"
    )
    result = run("show", MODEL, "--set", "hidden_size=3")
    assert result.code == 2
    assert "only figures of a chip can be set" in result.err


def test_a_model_shows_what_was_understood(run: Run) -> None:
    result = run("show", "deepseek-v3")
    assert result.code == 0
    text = " ".join(result.out.split())
    for part in (
        "multi-head latent attention, 128 heads, cached per token 512 latent + 64 rope",
        "256 experts of 2048, 8 a token, 1 shared (total 2048), chosen from 4 of 8 groups",
        "layers 61: 3 x (mla + dense), 58 x (mla + moe)",
        "total 671.0 B published 671.0 B, off by 0",
        "bf16 1,152 B 70,272 B",
        "fp8 576 B 35,136 B",
    ):
        assert part in text


def test_the_machine_contract_of_a_model(run: Run) -> None:
    data = json.loads(run("show", "deepseek-v3", "--format", "json").out)
    assert data["schema"] == "mlaplan.model/1"
    assert data["attention"] == "mla"
    assert data["params_total"] == pytest.approx(671e9, rel=0.005)
    assert data["params_active"] == pytest.approx(36.6e9, rel=0.005)
    assert data["kv_bytes_per_token_layer"]["bf16"] == 1152
    assert data["kv_bytes_per_token"]["bf16"] == 70272
    assert data["kv_bytes_per_token"]["fp8"] == 35136
    assert all(type(value) is int for value in data["kv_bytes_per_token"].values())
    sparse = json.loads(run("show", "deepseek-v3.2", "--format", "json").out)
    assert sparse["kv_bytes_per_token"]["fp8_ds_mla"] == 48068
    assert sparse["indexer_bytes_per_token"] == 61 * 132
    llama = json.loads(run("show", "llama-3-70b", "--format", "json").out)
    assert llama["attention"] == "gqa"
    assert llama["kv_bytes_per_token"]["bf16"] == 327680


@pytest.mark.parametrize("file", [str(Path(file).resolve()) for _, file in chip_names() + model_names()])
def test_every_sheet_fits_80_columns_and_is_json(run: Run, file: str) -> None:
    lines = run("show", file).out.splitlines()
    assert [line for line in lines if len(line) > 80 and not line.startswith("file: ") and " " in line.strip()] == []
    assert json.loads(run("show", file, "--format", "json").out)["file"] == file


def test_an_unknown_name(run: Run) -> None:
    result = run("show", "h100-sxn")
    assert result.code == 2
    assert result.err.startswith("unknown chip or model 'h100-sxn'; did you mean 'h100-sxm'?; known are ")
    assert result.err.count("\n") == 1
