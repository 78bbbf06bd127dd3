"""The shipped calibrations of older releases are what `calibrate` finds in older wheels of aiconfigurator.

Read from the folder named by MLAPLAN_OLDER_TABLES, which holds the wheels of 0.4.0 and 0.6.0:
`pip download --no-deps -d FOLDER aiconfigurator==0.4.0`, and again with 0.6.0.
"""

import functools
import os
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="needs the silicon extra")
pytest.importorskip("pyarrow", reason="needs the silicon extra")
pytest.importorskip("aiconfigurator_core", reason="needs the silicon extra")

from mlaplan.__main__ import main
from mlaplan.calibration import older, run
from mlaplan.specs.lookup import load_calibration, load_chip
from mlaplan.validation.kernel_bars import cache_modes

HARDWARE = Path(__file__).resolve().parents[2] / "hardware"
SHIPPED = sorted(HARDWARE.glob("*@*.cal.yaml"))
FOLDER = os.environ.get("MLAPLAN_OLDER_TABLES")
PACKED_IN = {"0.20.0": "0.4.0", "1.0.0rc3": "0.4.0", "1.0.0rc6": "0.4.0", "1.2.0rc5": "0.6.0"}  # release -> wheel
LEFT_OUT = ("residual", "source", "note", "dropped", "confidence")

needs_wheels = pytest.mark.skipif(not FOLDER, reason="MLAPLAN_OLDER_TABLES names no folder of wheels of aiconfigurator")


def wheel(release):
    found = sorted(Path(FOLDER).glob(f"aiconfigurator-{PACKED_IN[release]}-*.whl"))
    assert found, f"no wheel of aiconfigurator {PACKED_IN[release]} in {FOLDER}"
    return str(found[0])


@functools.cache
def opened(chip, engine, release):
    return older.opened(wheel(release), chip, engine, release, load_chip(chip).names)


@needs_wheels
@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name.removesuffix(".cal.yaml"))
def test_an_older_calibration_is_reproduced_from_its_wheel(path):
    shipped = load_calibration(str(path))
    by = opened(shipped.chip, shipped.engine, shipped.versions[shipped.engine])
    found = run.from_tables(load_chip(shipped.chip), shipped.engine, cache_modes(shipped.chip, shipped.engine), by)
    assert by.told == {}  # every row is of the chip, engine and release of its folder
    assert {(f.op, f.dtype) for f in found.kernels} == {
        (op, d) for op, fits in shipped.efficiency.items() for d in fits
    }
    for fitted in found.kernels:
        fit = shipped.efficiency[fitted.op][fitted.dtype]
        for name, value in fitted.values.items():
            assert getattr(fit, name) == pytest.approx(value, rel=0.02, abs=1e-12), f"{fitted.op} {fitted.dtype} {name}"
        assert fit.residual == pytest.approx(max(fitted.errors.mape, 0.01), rel=0.02)
        assert (fit.rows, fit.held) == (fitted.rows, fitted.held)
    assert {f.op for f in found.scale_up} == set(shipped.scale_up)
    for link in found.scale_up:
        for name in ("ranks", "alpha", "bandwidth", "knee"):
            assert list(getattr(shipped.scale_up[link.op], name)) == pytest.approx(list(getattr(link, name)), rel=0.02)


# pooled over an engine's older lines, on the rows that no fit has seen; these keep the fits from getting worse
@pytest.mark.parametrize(
    ("op", "hopper", "blackwell"),
    [("mla_decode", 0.075, 0.125), ("mla_prefill", 0.08, 0.08), ("gemm", 0.12, 0.11), ("bmm", 0.12, 0.10)],
)
def test_held_out_errors_of_older_lines(op, hopper, blackwell):
    for chips, bar in ((("h100-sxm", "h200-sxm"), hopper), (("b200-sxm", "gb200"), blackwell)):
        fits = [
            fit
            for path in SHIPPED
            if path.name.startswith(chips)
            for fit in load_calibration(str(path)).efficiency[op].values()
        ]
        assert sum(f.residual * f.rows for f in fits) / sum(f.rows for f in fits) <= bar


def calibrate(capsys, *arguments):
    code = main(["calibrate", *arguments])
    return code, capsys.readouterr()


@needs_wheels
def test_the_command_writes_the_shipped_file(capsys, tmp_path):
    path = tmp_path / "gb200.trtllm@1.0.cal.yaml"
    code, said = calibrate(
        capsys, "gb200", "--from", "aiconfigurator", "--engine", "trtllm", "--release", "1.0.0rc6",
        "--tables", wheel("1.0.0rc6"), "-o", str(path),
    )  # fmt: skip
    assert code == 0 and "mla_decode" in said.out
    assert load_calibration(str(path)).versions == {"trtllm": "1.0.0rc6", "nccl": "2.29.2"}
    assert path.read_text("utf-8").count("TensorRT-LLM 1.0.0rc6") >= 10


TABLES = ("--from", "aiconfigurator", "--engine", "trtllm")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((*TABLES, "--release", "1.0.0"), "--release 1.0.0 needs --tables; expected an older wheel of aiconfigurator"),
        ((*TABLES, "--tables", "x.whl"), "--tables x.whl needs --release; expected one of those in it"),
        ((*TABLES, "--tables", "x.whl", "--release", "1.0.0"), "--tables x.whl: no such file or folder"),
        (("--from", "mine.csv", "--tables", "x.whl", "--release", "1.0.0"), "--tables goes with --from aiconfigurator"),
        (("--from", "mine.csv", "--release", "1.0.0"), "--release goes with --from aiconfigurator: a CSV file of"),
        (("--from", "aiconfigurator", "--tables", "x.whl", "--release", "1"), "--from aiconfigurator needs --engine"),
    ],
)  # fmt: skip
def test_half_a_question_is_refused_in_a_line(capsys, arguments, told):
    code, said = calibrate(capsys, "h200-sxm", *arguments)
    assert code == 2 and said.out == ""
    assert said.err.count("\n") == 1 and told in said.err
