"""What a weight dtype means on a chip."""

import pytest
from scalar.cases import chip as shipped
from scalar.cases import model as shipped_model

from mlaplan.costs import precision

from . import round as r

FP8 = r.model(weights={"default": "fp8", "block": [128, 128], "scale_bytes": 4, "attention": "bf16"})
INT4 = r.model(weights={"default": "bf16", "routed": "int4", "group": 32, "scale_bytes": 2}, ffn=r.MOE)


def test_bytes_of_a_weight_include_its_scale():
    assert precision.stored_bytes(FP8, "fp8") == 1 + 4 / 16384
    assert precision.stored_bytes(FP8, "bf16") == 2
    # converted to int8: one scale per channel, not counted
    assert precision.stored_bytes(FP8, "int8") == 1
    assert precision.stored_bytes(INT4, "int4") == 0.5 + 2 / 32


def test_the_checkpoints_quantised_dtype():
    assert precision.quantised(FP8) == "fp8"
    assert precision.quantised(INT4) == "int4"
    assert precision.quantised(r.model()) == "bf16"
    assert precision.quantised(shipped_model("kimi-k2.5")) == "int4"


def test_conversion_touches_the_quantised_parts_only():
    assert precision.part_dtype(FP8, "dense", "fp8") == "fp8"
    assert precision.part_dtype(FP8, "dense", "bf16") == "bf16"
    assert precision.part_dtype(FP8, "dense", "int8") == "int8"
    assert precision.part_dtype(FP8, "attention", "int8") == "bf16"
    assert precision.part_dtype(FP8, "norm", "int8") == "bf16"
    # the target never lowers a 16-bit checkpoint by itself
    assert precision.part_dtype(r.model(), "dense", "fp8") == "bf16"


@pytest.mark.parametrize(
    ("chip", "targets"),
    [
        ("h200-sxm", ("fp8",)),
        ("mi300x", ("fp8",)),
        # no fp8: int8 where there is int8, and 16 bit, which doubles the weights
        ("a100-sxm-80g", ("int8", "bf16")),
        ("ascend-910b3", ("int8", "bf16")),
        ("ascend-910c-die", ("int8", "bf16")),
        # and no bf16 either
        ("ascend-910a", ("int8", "fp16")),
    ],
)
def test_an_fp8_checkpoint_is_converted_where_the_chip_has_no_fp8(chip, targets):
    found = precision.weight_targets(shipped(chip), shipped_model("deepseek-v3"))
    assert found == targets
    stored = [precision.stored_bytes(shipped_model("deepseek-v3"), t) for t in found]
    assert stored == pytest.approx([2.0 if t in ("bf16", "fp16") else 1.0 for t in targets], rel=1e-3)


def test_weight_only_dtypes_run_at_the_16_bit_rate():
    mm = precision.matmul(shipped("h200-sxm"), shipped_model("kimi-k2.5"), "routed", "int4")
    assert mm.key == "int4"
    assert mm.peak_flops == float(shipped("h200-sxm").peak["bf16"])
    assert mm.weight_bytes < 0.6


def test_a_dtype_the_chip_multiplies_has_its_own_rate():
    h200 = shipped("h200-sxm")
    mm = precision.matmul(h200, FP8, "dense", "fp8")
    assert (mm.key, mm.peak_flops) == ("fp8_block", float(h200.peak["fp8"]))
    assert precision.matmul(h200, FP8, "attention", "fp8").key == "bf16"
    assert precision.matmul(shipped("ascend-910a"), FP8, "dense", "fp16").key == "fp16"


def test_peak_of_a_core():
    h200, a100 = shipped("h200-sxm"), shipped("a100-sxm-80g")
    assert precision.attention_peak(h200, "fp8") == float(h200.peak["fp8"])
    # widened to 16 bit before the products
    assert precision.attention_peak(h200, "fp8_ds_mla") == float(h200.peak["bf16"])
    assert precision.attention_peak(a100, "fp8") == float(a100.peak["bf16"])
    assert precision.attention_peak(shipped("ascend-910a"), "bf16") == float(shipped("ascend-910a").peak["fp16"])
