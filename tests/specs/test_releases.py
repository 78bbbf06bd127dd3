"""Which calibration serves which release of an engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.errors import SpecError
from mlaplan.specs.lookup import load_chip, overlay_file
from mlaplan.specs.releases import Line, chosen, line_of, text
from tests.specs.releases_table import rows

HARDWARE = Path(__file__).resolve().parents[2] / "hardware"
FIT = "{compute: 0.5, memory: 0.6, floor: %s us, residual: 0.1, source: timed here, confidence: measured}"
PAGE = HARDWARE.parent / "docs" / "calibration.md"
LINES = st.tuples(st.integers(0, 9), st.integers(0, 30))


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    """A chip of a user's own, in a folder of its own."""
    path = tmp_path / "my.chip.yaml"
    written = (HARDWARE / "h100-sxm.yaml").read_text("utf-8").replace("name: h100-sxm", "name: my.chip")
    path.write_text(written, "utf-8")
    return path


def overlay(chip: Path, name: str, release: str | None, floor: int = 7) -> Path:
    """A calibration for `trtllm` or `trtllm@1.0` that says to be of this release."""
    path = chip.with_name(f"my.chip.{name}.cal.yaml")
    engine = name.partition("@")[0]
    versions = "" if release is None else f"versions: {{{engine}: {release}}}\n"
    body = f"efficiency:\n  gemm:\n    bf16: {FIT % floor}\n"
    path.write_text(f"kind: calibration\nchip: my.chip\nengine: {engine}\n{versions}{body}", "utf-8")
    return path


def laid(chip: Path, release: str | None, engine: str = "trtllm") -> str:
    """The part of the file's name that tells the calibrations of a chip apart."""
    found = overlay_file(str(chip), engine, release)
    return "" if found is None else Path(found).name.removeprefix("my.chip.").removesuffix(".cal.yaml")


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ("1.0.0rc3", (1, 0)), ("0.20.0", (0, 20)), ("v1.2", (1, 2)), ("0.5.6.post2", (0, 5)), ("1.10.0", (1, 10)),
        ("1", None), ("latest", None), ("", None), (None, None), ("1.x", None),
    ],
)  # fmt: skip
def test_a_release_belongs_to_its_minor_line(release: str | None, line: Line | None) -> None:
    assert line_of(release) == line
    assert line is None or line_of(text(line)) == line


@given(LINES, st.lists(LINES, min_size=1))
def test_no_line_is_newer_than_asked_unless_it_is_the_oldest_and_none_is_nearer(asked: Line, lines: list[Line]) -> None:
    found = chosen(asked, lines)
    assert found in lines
    assert found <= asked or found == min(lines)
    assert not any(found < line <= asked for line in lines)


@given(LINES, LINES, st.lists(LINES, min_size=1))
def test_a_newer_release_never_takes_an_older_line(one: Line, other: Line, lines: list[Line]) -> None:
    older, newer = sorted((one, other))
    assert chosen(older, lines) <= chosen(newer, lines)


@pytest.mark.parametrize(
    ("release", "taken"),
    [
        (None, "trtllm"), ("nightly", "trtllm"), ("1.4.0", "trtllm"), ("1.3.0rc20", "trtllm"), ("1.3.2", "trtllm"),
        ("1.2.9", "trtllm@1.2"), ("1.2.0rc5", "trtllm@1.2"), ("1.1.0", "trtllm@1.0"), ("1.0.0", "trtllm@1.0"),
        ("0.21.0", "trtllm@0.20"), ("0.20.0", "trtllm@0.20"), ("0.18.2", "trtllm@0.20"),
    ],
)  # fmt: skip
def test_a_release_takes_the_newest_line_that_is_not_newer(chip: Path, release: str | None, taken: str) -> None:
    for name, of in (("trtllm", "1.3.0rc20"), ("trtllm@0.20", "0.20.0"), ("trtllm@1.0", "1.0.0rc3"),
                     ("trtllm@1.2", "1.2.0rc5")):  # fmt: skip
        overlay(chip, name, of)
    assert laid(chip, release) == taken
    loaded = load_chip(str(chip), (), "trtllm", release)
    assert loaded.calibration == str(chip.with_name(f"my.chip.{taken}.cal.yaml"))


def test_one_file_serves_every_release(chip: Path) -> None:
    overlay(chip, "trtllm", "1.3.0")
    assert {laid(chip, release) for release in (None, "0.18.0", "1.3.0", "9.0")} == {"trtllm"}


def test_a_file_that_does_not_say_its_release_is_newer_than_those_that_do(chip: Path) -> None:
    overlay(chip, "trtllm", None)
    overlay(chip, "trtllm@1.0", "1.0.0")
    assert [laid(chip, release) for release in (None, "1.1.0", "1.0.3", "0.20.0")] == [
        "trtllm", "trtllm", "trtllm@1.0", "trtllm@1.0"
    ]  # fmt: skip


def test_older_lines_alone_serve_too_and_before_the_fits_of_no_engine(chip: Path) -> None:
    overlay(chip, "generic", None)
    assert laid(chip, "1.1.0") == "generic"
    overlay(chip, "trtllm@1.0", "1.0.0")
    overlay(chip, "trtllm@1.2", "1.2.0")
    assert [laid(chip, r) for r in (None, "1.1.0", "1.3.0")] == ["trtllm@1.2", "trtllm@1.0", "trtllm@1.2"]
    assert laid(chip, "1.1.0", "sglang") == "generic"


def test_lines_of_another_engine_or_chip_do_not_count(chip: Path) -> None:
    overlay(chip, "trtllm", "1.3.0")
    overlay(chip, "sglang@0.4", "0.4.3")
    overlay(chip, "trtllm@1.0", "1.0.0").rename(chip.with_name("my.trtllm@1.0.cal.yaml"))
    assert laid(chip, "1.0.0") == "trtllm"


@pytest.mark.parametrize(
    ("named", "release", "told"),
    [
        ("trtllm@1.0", "1.2.0", r"@1.0.cal.yaml:4:20: these are the kernels of trtllm 1.2.0; expected a release of"),
        ("trtllm@1.0", None, r"@1.0.cal.yaml:1:1: versions has no release of trtllm; expected a release of 1.0"),
        ("trtllm@new", "1.0.0", r"@new.cal.yaml: the name of this calibration has no line; expected my.chip.trtllm@"),
        ("trtllm@1.0.0", "1.0.0", r"@1.0.0.cal.yaml: the name of this calibration has no line"),
    ],
)  # fmt: skip
def test_a_name_that_is_not_what_is_inside_is_told(chip: Path, named: str, release: str | None, told: str) -> None:
    overlay(chip, named, release)
    with pytest.raises(SpecError, match=told):
        load_chip(str(chip), (), "trtllm", "1.0.0")


def test_the_engine_is_that_of_the_name_before_its_line(chip: Path) -> None:
    overlay(chip, "vllm@0.9", "0.9.2").rename(chip.with_name("my.chip.trtllm@0.9.cal.yaml"))
    with pytest.raises(
        SpecError, match=r"@0.9.cal.yaml:3:9: these are the kernels of vllm; expected trtllm, as the name"
    ):
        load_chip(str(chip), (), "trtllm", "0.9.2")


def test_a_broken_newest_file_tells_it_when_it_is_used(chip: Path) -> None:
    overlay(chip, "trtllm@1.0", "1.0.0")
    chip.with_name("my.chip.trtllm.cal.yaml").write_text("kind: [", "utf-8")
    assert laid(chip, "1.0.0") == "trtllm@1.0"
    with pytest.raises(SpecError, match=r"my.chip.trtllm.cal.yaml:2:1: not valid YAML"):
        load_chip(str(chip), (), "trtllm")


def test_the_page_has_every_shipped_calibration_with_its_errors() -> None:
    table = "\n".join(rows())
    assert f"\n{table}\n" in PAGE.read_text("utf-8"), "run: python -m tests.specs.releases_table"


def test_the_fits_are_those_of_the_line(chip: Path) -> None:
    overlay(chip, "trtllm", "1.3.0", 7)
    overlay(chip, "trtllm@1.0", "1.0.0", 9)
    floors = [load_chip(str(chip), (), "trtllm", r).kernel("gemm", "bf16").floor for r in ("1.1.0", "1.3.0", None)]
    assert floors == pytest.approx([9e-6, 7e-6, 7e-6])
