"""A chip from its file: SI values, ranges, what may be left out, and warnings of implausible peaks."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mlaplan.specs import source
from mlaplan.specs.chip import Chip
from mlaplan.specs.figure import Figure
from mlaplan.specs.lookup import load_chip
from mlaplan.specs.plausible import warnings
from mlaplan.specs.validate import build

FILE = Path(__file__).parents[1] / "fixtures" / "toy-chip.yaml"
TEXT = FILE.read_text()


@pytest.fixture
def chip() -> Chip:
    return load_chip(str(FILE))


def edited(good: str, bad: str) -> Chip:
    assert good in TEXT
    return build(Chip, source.parse(TEXT.replace(good, bad, 1), "f.yaml"))


def test_figures_are_si(chip: Chip) -> None:
    assert float(chip.memory.capacity) == 80e9
    assert float(chip.clock) == 1.5e9
    assert float(chip.peak["bf16"]) == 100e12
    assert float(chip.on_chip[0].capacity) == 50 * 2**20
    assert float(chip.overheads.kernel) == 3e-6
    assert chip.scale_up.collectives["all_reduce"].alpha == (7e-6, 10e-6, 17e-6)
    assert chip.scale_up.collectives["all_reduce"].bandwidth == (150e9, 160e9, 170e9)
    assert chip.price is not None
    assert float(chip.price) == 2.5


def test_a_figure_has_bounds_source_and_confidence(chip: Chip) -> None:
    bandwidth = chip.memory.bandwidth
    assert bandwidth.bounds == (1.8e12, 2e12, 2.1e12)
    assert chip.clock.bounds == (1.5e9, 1.5e9, 1.5e9)
    assert (bandwidth.source, bandwidth.confidence) == ("made up", "derived")
    assert bandwidth.dimension() == "bytes/s"
    assert isinstance(bandwidth, Figure)


def test_what_is_left_out_is_absent_not_zero(chip: Chip) -> None:
    assert "int8" not in chip.peak
    assert chip.scale_out is None
    assert chip.power is None
    assert chip.padding.attention_rows == 1


def test_a_chip_cannot_be_changed(chip: Chip) -> None:
    with pytest.raises(AttributeError):
        chip.title = "x"  # type: ignore[misc]


def test_a_chip_written_as_json_is_read_back_the_same(chip: Chip) -> None:
    data = chip.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert data["memory"]["bandwidth"]["low"] == "1.8 TB/s"
    assert data["class"] == "generic"
    assert Chip.model_validate(data).model_dump() == chip.model_dump()


@pytest.mark.parametrize(("text", "norm"), [("2", 2.0), (".inf", math.inf), ("hard", math.inf)])
def test_the_norm_may_be_hard(text: str, norm: float) -> None:
    assert edited("norm: 3", f"norm: {text}").efficiency["gemm"]["bf16"].norm == norm


def test_its_own_fit_comes_first(chip: Chip) -> None:
    own = chip.kernel("gemm", "bf16")
    assert (own.compute, own.confidence) == (0.75, "measured")
    other = chip.kernel("bmm", "bf16")
    assert other.confidence == "assumed"
    assert other.source.startswith("class default: generic bmm bf16; ")


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        (
            "fp8: {value: 200 TFLOPS",
            "fp8: {value: 400 TFLOPS",
            "f.yaml:11:16: warning: peak.fp8: 400 TFLOPS looks like a sparsity figure, "
            "2.0 x what its bf16 rate implies; expected the dense rate",
        ),
        (
            "fp8: {value: 200 TFLOPS",
            "int8: {value: 390 TOPS",
            "f.yaml:11:17: warning: peak.int8: 390 TFLOPS looks like a sparsity figure, "
            "1.9 x what its bf16 rate implies; expected the dense rate",
        ),
        (
            "fp8: {value: 200 TFLOPS",
            "tf32: {value: 100 TFLOPS",
            "f.yaml:11:17: warning: peak.tf32: 100 TFLOPS looks like a sparsity figure, "
            "2.0 x what its bf16 rate implies; expected the dense rate",
        ),
    ],
)
def test_a_peak_of_twice_the_dense_rate_is_a_warning(good: str, bad: str, message: str) -> None:
    document = source.parse(TEXT.replace(good, bad, 1), "f.yaml")
    assert [problem.text() for problem in warnings(build(Chip, document), document)] == [message]


# cores and clock of an H100: 132 x 1.83 GHz x 4096 FLOP a cycle = 989 TFLOPS dense
@pytest.mark.parametrize(("bf16", "count"), [("989 TFLOPS", 0), ("1979 TFLOPS", 1), ("148 TFLOPS", 0)])
def test_the_base_rate_is_held_against_cores_and_clock(bf16: str, count: int) -> None:
    text = TEXT.replace("class: generic", "class: nvidia-hopper").replace("value: 100,", "value: 132,")
    text = text.replace("1.5 GHz", "1830 MHz").replace("value: 100 TFLOPS", f"value: {bf16}")
    text = text.replace("  fp8: {value: 200 TFLOPS, source: made up, confidence: assumed}\n", "")
    document = source.parse(text, "f.yaml")
    found = warnings(build(Chip, document), document)
    assert len(found) == count
    assert all("what its cores and clock give at 4096 FLOP a cycle" in problem.message for problem in found)


def test_a_dense_chip_has_no_warning(chip: Chip) -> None:
    assert chip.warnings == ()
