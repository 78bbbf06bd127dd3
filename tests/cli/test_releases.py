"""`--engine trtllm@1.1.0`: every verb takes the kernels of that release, `trtllm` those of the newest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlaplan.lint import names
from mlaplan.specs import lookup
from tests.cli.conftest import Run

H200 = "h200-sxm"
R1 = ("deepseek-r1", H200)
LOAD = ("--isl", "1k", "--osl", "256")
QUICK = ("--devices", "8", *LOAD, "--concurrency", "16", "--top", "1")
NEWEST, OLDER = "h200-sxm.trtllm.cal.yaml", "h200-sxm.trtllm@1.0.cal.yaml"


@pytest.fixture
def laid(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The calibrations that were laid over a chip."""
    found: set[str] = set()
    lay_over = lookup._lay_over

    def seen(document: Any, overlay: Any) -> None:
        found.add(Path(overlay.file).name)
        lay_over(document, overlay)

    monkeypatch.setattr(lookup, "_lay_over", seen)
    names.chip.cache_clear()  # of other tests
    return found


@pytest.mark.parametrize(
    "command",
    [
        ("explain", *R1, "--tp", "8", *LOAD, "--concurrency", "16"),
        ("recommend", *R1, *QUICK),
        ("size", *R1, *LOAD, "--rate", "5/s", "--tpot", "100ms"),
        ("kv", *R1, "--tp", "8", *LOAD),
        ("recommend", *R1, "--devices", "16", *LOAD, "--rate", "5/s", "--disagg", "on", "--top", "1"),
        ("sweep", *R1, "--devices", "8", *LOAD, "--concurrency", "16"),
    ],
    ids=lambda c: " ".join(c[:1]) + (" --disagg" if "--disagg" in c else ""),
)  # fmt: skip
def test_the_release_asked_for_has_its_kernels(run: Run, laid: set[str], command: tuple[str, ...]) -> None:
    for engine, wanted in (("trtllm@1.1.0", OLDER), ("trtllm@1.3.0", NEWEST), ("trtllm", NEWEST)):
        laid.clear()
        done = run(*command, "--engine", engine)
        assert done.code == 0, done.err
        assert laid == {wanted}


def test_a_chip_laid_over_is_another_one_and_the_newest_release_is_the_same() -> None:
    newest, older, same = (lookup.load_chip(H200, (), "trtllm", release) for release in (None, "1.1.0", "1.3.0"))
    assert newest == same != older
    for op, dtype in (("grouped_gemm", "fp8_block"), ("gemm", "fp8_block"), ("mla_decode", "fp8")):
        assert newest.kernel(op, dtype) != older.kernel(op, dtype)


def test_predictions_differ_with_the_release(run: Run) -> None:
    found = {
        engine: json.loads(
            run("explain", *R1, "--tp", "8", *LOAD, "--concurrency", "16", "--engine", engine, "--format", "json").out
        )
        for engine in ("trtllm@1.1.0", "trtllm@1.3.0", "trtllm")
    }
    assert found["trtllm"] == found["trtllm@1.3.0"]
    newest, older = (found[engine]["served"]["tpot_s"]["value"] for engine in ("trtllm", "trtllm@1.1.0"))
    assert 1.05 < older / newest < 1.25  # kernels of 1.0 are 5 to 20 % slower


def test_plans_that_were_saved_keep_the_kernels_they_were_made_with(run: Run) -> None:
    for engine in ("trtllm@1.1.0", "trtllm"):
        assert run("recommend", *R1, *QUICK, "--engine", engine, "--save-plan", f"{engine}.json").code == 0
    older, newest = (json.loads(Path(f"{e}.json").read_text("utf-8"))["chip"] for e in ("trtllm@1.1.0", "trtllm"))
    wanted = lookup.load_chip(H200, (), "trtllm", "1.1.0").kernel("grouped_gemm", "fp8_block")
    assert older["efficiency"]["grouped_gemm"]["fp8_block"]["memory"] == wanted.memory
    assert older["efficiency"] != newest["efficiency"]


@pytest.mark.parametrize(("version", "wanted"), [("1.1.0", OLDER), ("1.2.1", "h200-sxm.trtllm@1.2.cal.yaml"),
                                                 ("1.3.4", NEWEST)])  # fmt: skip
def test_a_deployment_is_checked_with_the_kernels_of_its_release(
    run: Run, laid: set[str], version: str, wanted: str
) -> None:
    Path("serve.sh").write_text("trtllm-serve deepseek-ai/DeepSeek-R1 --backend pytorch --tp_size 8\n", "utf-8")
    run("check", "serve.sh", "--chip", H200, "--engine-version", f"trtllm@{version}")
    assert wanted in laid


def test_versions_of_an_extension_are_not_those_of_its_engine(laid: set[str]) -> None:
    assert names.chip(H200, "vllm", None, None, "0.9.2").calibration.endswith("h200-sxm.vllm.cal.yaml")
    assert laid == {"h200-sxm.vllm.cal.yaml"}
