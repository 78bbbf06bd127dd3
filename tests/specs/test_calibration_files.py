"""Overlays: laid over a chip's fits for their engine only, and refused where they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlaplan.errors import SpecError
from mlaplan.specs.lookup import chip_names, load_calibration, load_chip, validate_file
from mlaplan.specs.releases import line_of, text

HARDWARE = Path(__file__).resolve().parents[2] / "hardware"
SHIPPED = sorted(HARDWARE.glob("*.cal.yaml"))
FIT = "{compute: 0.5, memory: 0.6, floor: 7 us, residual: 0.1, source: timed here, confidence: measured}"


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    """A copy of a shipped chip in a folder of its own."""
    path = tmp_path / "h100-sxm.yaml"
    path.write_text((HARDWARE / "h100-sxm.yaml").read_text("utf-8"), "utf-8")
    return path


def overlay(chip: Path, engine: str, body: str = "", name: str = "h100-sxm") -> Path:
    path = chip.with_name(f"h100-sxm.{engine}.cal.yaml")
    text = f"kind: calibration\nchip: {name}\nengine: {engine}\n"
    path.write_text(text + (body or f"efficiency:\n  gemm:\n    bf16: {FIT}\n"), "utf-8")
    return path


CHIPS = ("a100-sxm-80g", "b200-sxm", "gb200", "h100-sxm", "h200-sxm")


OLDER = {
    **{(chip, line): "trtllm" for chip in ("h100-sxm", "h200-sxm") for line in ("0.20", "1.0", "1.2")},
    **{(chip, line): "trtllm" for chip in ("b200-sxm", "gb200") for line in ("1.0", "1.2")},
}


def test_the_shipped_ones_cover_five_chips_three_engines_and_older_lines_of_tensorrt_llm() -> None:
    newest = {f"{chip}.{engine}.cal.yaml" for chip in CHIPS for engine in ("sglang", "trtllm", "vllm")}
    assert {p.name for p in SHIPPED} == newest | {f"{c}.{e}@{line}.cal.yaml" for (c, line), e in OLDER.items()}


@pytest.mark.parametrize(("chip", "line"), OLDER)
def test_an_older_line_is_laid_over_its_chip_for_a_release_of_it(chip: str, line: str) -> None:
    for release in (line, f"{line}.7", f"{line}.0rc1"):
        laid = load_chip(chip, (), OLDER[chip, line], release)
        assert Path(laid.calibration).name == f"{chip}.trtllm@{line}.cal.yaml"


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm"])
@pytest.mark.parametrize("chip", ["b200-sxm", "gb200"])
def test_blackwell_has_fp4_kernels_and_reads_an_fp8_cache_as_it_is(chip: str, engine: str) -> None:
    found = load_calibration(str(HARDWARE / f"{chip}.{engine}.cal.yaml")).efficiency
    assert {op for op, fits in found.items() if "fp4" in fits} == {"gemm", "grouped_gemm"}
    assert "kv_cast" not in found
    # vLLM has no table of its core alone
    assert ("fp8" in found.get("mla_decode", {})) == (engine != "vllm")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_a_shipped_overlay_is_bounded_sourced_and_for_its_chip(path: Path) -> None:
    found = load_calibration(str(path))
    of_line = "@" in path.name
    line = f"@{text(line_of(found.versions[found.engine]) or (0, 0))}" if of_line else ""
    assert path.name == f"{found.chip}.{found.engine}{line}.cal.yaml"
    # int4 products and plain fp8 experts of TensorRT-LLM 1.0 and 1.2 are told no better by the forms
    bar = 0.23 if of_line else 0.2
    for fits in found.efficiency.values():
        for fit in fits.values():
            assert fit.memory <= 0.95
            assert fit.rows is not None and fit.rows >= 40
            assert fit.confidence == "measured" and 0 < fit.residual < bar
    assert validate_file(path) == []


def test_it_counts_for_its_engine_alone(chip: Path) -> None:
    path = overlay(chip, "sglang")
    plain = load_chip(str(chip))
    assert load_chip(str(chip), engine="vllm") == plain
    laid = load_chip(str(chip), engine="sglang")
    assert laid.kernel("gemm", "bf16").floor == pytest.approx(7e-6)
    assert laid.calibration == str(path) and plain.calibration == ""
    # everything else is the chip's own, the datasheet above all
    assert laid.kernel("gemm", "fp8_block") == plain.kernel("gemm", "fp8_block")
    assert (laid.peak, laid.memory, laid.scale_up) == (plain.peak, plain.memory, plain.scale_up)


def test_one_of_no_engine_serves_those_that_have_none(chip: Path) -> None:
    generic, own = overlay(chip, "generic"), overlay(chip, "vllm")
    assert load_chip(str(chip), engine="vllm").calibration == str(own)
    assert load_chip(str(chip), engine="sglang").calibration == str(generic)


def test_the_command_line_has_the_last_word(chip: Path) -> None:
    overlay(chip, "sglang")
    laid = load_chip(str(chip), ["efficiency.gemm.bf16.memory=0.7"], "sglang")
    assert laid.kernel("gemm", "bf16").memory == 0.7
    assert laid.kernel("gemm", "bf16").floor == pytest.approx(7e-6)


def test_it_is_no_chip_of_its_own(chip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overlay(chip, "sglang")
    monkeypatch.chdir(chip.parent)
    assert not any("cal" in name for name, _ in chip_names())


def test_mistakes_are_told_in_the_overlays_own_lines(chip: Path) -> None:
    path = overlay(chip, "sglang", f"efficiency:\n  gemm:\n    bf16: {FIT.replace('memory: 0.6', 'memory: 1.2')}\n")
    with pytest.raises(SpecError, match=rf"{path}:6:.*memory.*1.2"):
        load_chip(str(chip), engine="sglang")
    path = overlay(chip, "sglang", name="h200-sxm")
    with pytest.raises(SpecError, match=r"cal.yaml:2:7: this calibrates h200-sxm; expected h100-sxm"):
        load_chip(str(chip), engine="sglang")


def test_the_engine_is_that_of_the_files_name(chip: Path) -> None:
    overlay(chip, "vllm").rename(chip.with_name("h100-sxm.sglang.cal.yaml"))
    with pytest.raises(SpecError, match=r"cal.yaml:3:9: these are the kernels of vllm; expected sglang, as the name"):
        load_chip(str(chip), engine="sglang")


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("efficiency", "[1]", r"efficiency: got a list"),
        ("efficiency", "", r"efficiency: got an empty value"),
        ("efficiency", "{gemm: 3}", r"efficiency.gemm: got 3"),
        ("name", "", r"name: got an empty value"),
    ],
)
def test_a_mistake_in_the_chip_is_told_as_its_own(chip: Path, key: str, value: str, told: str) -> None:
    overlay(chip, "vllm", "efficiency: {}\nscale_up: {}\n")
    lines = chip.read_text("utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"{key}:"))
    end = next(n for n in range(start + 1, len(lines)) if not lines[n].startswith((" ", "#")))
    chip.write_text("\n".join([*lines[:start], f"{key}: {value}", *lines[end:]]) + "\n", "utf-8")
    with pytest.raises(SpecError, match=rf"{chip.name}:{start + 1}:.*{told}"):
        load_chip(str(chip), engine="vllm")
