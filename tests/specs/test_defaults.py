"""Kernel defaults: by class, then generic, always told as assumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlaplan.errors import MlaplanError, SpecError
from mlaplan.specs import source
from mlaplan.specs.chip import EFFICIENCY_CLASSES
from mlaplan.specs.defaults import ClassFits, class_fits, default_kernel, kernels
from mlaplan.specs.lookup import load_chip
from mlaplan.specs.validate import build

FILE = Path(__file__).parents[1] / "fixtures" / "toy-chip.yaml"


@pytest.mark.parametrize("efficiency_class", EFFICIENCY_CLASSES)
def test_every_class_has_what_a_dense_model_needs(efficiency_class: str) -> None:
    for op in ("gemm", "bmm", "grouped_gemm", "mla_decode", "mla_prefill", "gqa_decode", "elementwise"):
        fit = default_kernel(efficiency_class, op, "bf16")
        assert 0 < fit.compute <= 1
        assert 0 < fit.memory <= 0.95
        assert fit.confidence == "assumed"
        assert fit.source.startswith("class default: ")


def test_the_source_says_whose_default_it_is() -> None:
    own = {(c, op, d) for c in EFFICIENCY_CLASSES for op, fits in class_fits(c).items() for d in fits}
    for efficiency_class in EFFICIENCY_CLASSES:
        for owner, op, dtype in own:
            if owner == "generic" and (efficiency_class, op, dtype) not in own:
                told = default_kernel(efficiency_class, op, dtype).source
                assert told.startswith(f"class default: generic {op} {dtype}; ")


def test_what_no_class_has_is_told() -> None:
    with pytest.raises(
        MlaplanError, match="no efficiency is known for gemm in fp7 on class generic; fits of gemm exist for"
    ):
        default_kernel("generic", "gemm", "fp7")
    with pytest.raises(MlaplanError, match="no fit of nothing exists at all"):
        default_kernel("generic", "nothing", "bf16")


def test_a_bad_defaults_file_is_told_at_its_place() -> None:
    text = "gemm:\n  bf16: {compute: 2}\ngem: {}\n"
    with pytest.raises(SpecError) as caught:
        build(ClassFits, source.parse(text, "d.yaml"))
    lines = str(caught.value).splitlines()
    assert "d.yaml:2:19: gemm.bf16.compute: 2 is too large to be real; " \
        "expected a fraction above 0 and up to 1" in lines  # fmt: skip
    assert any(line.startswith("d.yaml:3:1: unknown key 'gem'; expected one of gemm, bmm") for line in lines)
    assert any(line.startswith("d.yaml:2:9: missing key 'memory' in gemm.bf16") for line in lines)


def test_fits_in_use_are_those_the_chip_can_run() -> None:
    found = kernels(load_chip(str(FILE)))
    assert found["gemm"]["bf16"].confidence == "measured"
    assert found["gemm"]["fp8"].confidence == "assumed"
    assert "int8" not in found["gemm"]  # the chip has no int8 rate
    assert "fp8" in found["mla_decode"]  # the dtype of a cache, not of a product
