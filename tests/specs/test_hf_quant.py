"""Weight formats of a config.json: which part is stored how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlaplan.errors import SpecError
from mlaplan.specs import source
from mlaplan.specs.hf import model_from_config
from mlaplan.specs.hf_modules import matcher
from mlaplan.specs.lookup import load_model
from mlaplan.specs.model import Model

SMALL = json.loads((Path(__file__).parents[1] / "fixtures" / "configs" / "mla_small.json").read_text())
PARTS = ("attention", "dense", "routed", "shared")


def model(quant: dict[str, Any] | None = None, **change: Any) -> Model:
    config = SMALL | ({"quantization_config": quant} if quant is not None else {}) | change
    return model_from_config(source.parse(json.dumps(config), "small/config.json"))


def dtypes(read: Model) -> dict[str, str]:
    return {part: read.weight_dtype(part) for part in PARTS}


def error_of(quant: dict[str, Any], **change: Any) -> str:
    with pytest.raises(SpecError) as caught:
        model(quant, **change)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bfloat16", "bf16"),
        ("float16", "fp16"),
        ("torch.bfloat16", "bf16"),
        ("float32", "bf16"),
        ("auto", "bf16"),
    ],
)
def test_unquantised_dtype(name: str, expected: str) -> None:
    for key in ("torch_dtype", "dtype"):
        read = model(**({"torch_dtype": None} | {key: name}))
        assert {read.weights.default, read.weight_dtype("embedding"), read.weight_dtype("attention")} == {expected}


def test_dtype_that_is_not_given_or_not_what_is_stored_is_noted() -> None:
    assert any("does not give the dtype" in note for note in model(torch_dtype=None).notes)
    assert any("float32" in note for note in model(torch_dtype="float32").notes)
    assert "is no dtype" in error_of({"quant_method": "fp8"}, torch_dtype="float24")


def test_fp8_blocks() -> None:
    read = model({"quant_method": "fp8", "weight_block_size": [128, 128]})
    assert dtypes(read) == dict.fromkeys(PARTS, "fp8")
    assert (read.weights.block, read.weights.group, read.weights.scale_bytes) == ((128, 128), None, 4)
    assert [read.weight_dtype(part) for part in ("embedding", "lm_head", "router")] == ["bf16"] * 3


def test_fp8_without_blocks_has_one_scale_a_matrix() -> None:
    read = model({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0})
    assert (read.weights.default, read.weights.block, read.weights.group) == ("fp8", None, None)


@pytest.mark.parametrize("pattern", ["self_attn", "self_attn.*", "re:.*self_attn.*", "model.layers.*.self_attn*"])
def test_modules_left_unquantised(pattern: str) -> None:
    read = model({"quant_method": "fp8", "modules_to_not_convert": ["lm_head", pattern]})
    assert dtypes(read) == dict.fromkeys(PARTS, "fp8") | {"attention": "bf16"}


def test_router_and_norm_entries_leave_the_parts_alone() -> None:
    listed = [f"model.layers.{i}.{name}" for i in range(5) for name in ("mlp.gate", "input_layernorm")]
    read = model({"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "model.embed_tokens", *listed]})
    assert dtypes(read) == dict.fromkeys(PARTS, "fp8")


def compressed(weights: dict[str, Any], ignore: list[str] | None = None, **more: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ignore or []} | more


def test_packed_int4_experts() -> None:
    ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|down)_proj.*"]
    read = model(compressed({"num_bits": 4, "type": "int", "group_size": 32}, ignore))
    assert dtypes(read) == dict.fromkeys(PARTS, "bf16") | {"routed": "int4"}
    assert (read.weights.default, read.weights.group, read.weights.scale_bytes) == ("int4", 32, 2)


def test_int8_activations_and_weights() -> None:
    read = model(compressed({"num_bits": 8, "type": "int", "strategy": "channel", "group_size": None}))
    assert dtypes(read) == dict.fromkeys(PARTS, "int8")
    assert (read.weights.block, read.weights.group) == (None, None)


def test_compressed_fp8_blocks_and_fp4_groups() -> None:
    read = model(compressed({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}))
    assert (read.weights.default, read.weights.block) == ("fp8", (128, 128))
    read = model(compressed({"num_bits": 4, "type": "float", "group_size": 16}))
    assert (read.weights.default, read.weights.group, read.weights.scale_bytes) == ("fp4", 16, 1)


def test_two_groups_of_targets() -> None:
    quant = compressed({"num_bits": 4, "type": "int", "group_size": 32})
    quant["config_groups"]["group_0"]["targets"] = ["re:.*experts.*"]
    quant["config_groups"]["group_1"] = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}
    assert dtypes(model(quant)) == {"attention": "fp8", "dense": "fp8", "routed": "int4", "shared": "int4"}


def nvfp4(ignore: list[str]) -> dict[str, Any]:
    return {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ignore,
        "kv_cache_scheme": {"num_bits": 8},
    }


def test_nvfp4_with_attention_left_out() -> None:
    read = model(nvfp4(["lm_head", "model.layers.0*", *(f"model.layers.{i}.self_attn*" for i in range(1, 4))]))
    assert dtypes(read) == {"attention": "bf16", "dense": "bf16", "routed": "fp4", "shared": "fp4"}
    assert (read.weights.group, read.weights.scale_bytes) == (16, 1)
    assert any("fp8 KV cache" in note for note in read.notes)


def test_nvfp4_with_attention_in_it() -> None:
    assert dtypes(model(nvfp4(["lm_head"]))) == dict.fromkeys(PARTS, "fp4")


def test_mtp_layer_left_out() -> None:
    read = model(nvfp4(["lm_head", "model.layers.4*"]), num_nextn_predict_layers=1)
    assert (read.weight_dtype("mtp"), read.weight_dtype("routed")) == ("bf16", "fp4")


def test_layer_1_is_not_layer_10() -> None:
    read = model(nvfp4(["model.layers.1.*"]), num_hidden_layers=24)
    assert dtypes(read)["routed"] == "fp4"


def test_a_part_in_two_dtypes_counts_as_the_wider_and_says_so() -> None:
    listed = [f"model.layers.{i}.self_attn.{name}" for i in range(4) for name in ("q_proj", "kv_b_proj")]
    read = model(nvfp4(listed))
    assert dtypes(read)["attention"] == "bf16"
    assert any(note.startswith("attention weights are mixed") for note in read.notes)


@pytest.mark.parametrize("algorithm", ["NVFP4", "FP8"])
def test_format_beside_the_config(tmp_path: Path, algorithm: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    quant = {
        "quant_algo": algorithm,
        "group_size": 16,
        "exclude_modules": ["lm_head", "model.layers.*.self_attn*"],
    }
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"producer": {}, "quantization": quant}))
    read = load_model(str(tmp_path))
    assert dtypes(read)["attention"] == "bf16"
    assert dtypes(read)["routed"] == {"NVFP4": "fp4", "FP8": "fp8"}[algorithm]
    assert any("hf_quant_config.json" in note for note in read.notes)


def test_a_broken_file_beside_the_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP3"}}')
    with pytest.raises(
        SpecError, match=r"hf_quant_config\.json:1:\d+: unknown quant_algo 'FP3'; expected one of NVFP4"
    ):
        load_model(str(tmp_path))


def test_mixed_precision_lists_its_modules() -> None:
    layers = {f"model.layers.{i}.mlp.experts": {"quant_algo": "NVFP4"} for i in range(1, 4)}
    read = model({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    assert dtypes(read) == dict.fromkeys(PARTS, "bf16") | {"routed": "fp4"}


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_weight_only_int4(method: str) -> None:
    skipped = {"modules_to_not_convert": ["self_attn"]} if method == "awq" else {"dynamic": {"-:.*self_attn.*": {}}}
    read = model({"quant_method": method, "bits": 4, "group_size": 128} | skipped)
    assert dtypes(read) == dict.fromkeys(PARTS, "int4") | {"attention": "bf16"}
    assert (read.weights.group, read.weights.scale_bytes) == (128, 2)
    assert model({"quant_method": method, "bits": 8, "group_size": -1}).weights.default == "int8"


def test_quantisation_may_be_nested_with_the_text_model() -> None:
    inner = SMALL | {"quantization_config": {"quant_method": "fp8"}}
    for config in (
        {"text_config": inner},
        {"text_config": SMALL, "quantization_config": {"quant_method": "fp8"}},
    ):
        read = model_from_config(source.parse(json.dumps({"model_type": "wrapper"} | config), "w/config.json"))
        assert read.weights.default == "fp8"


@pytest.mark.parametrize(
    "quant",
    [
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"quant_method": "quark"},
        {"bits": 4},
        {"quant_method": "modelopt", "quant_algo": "FP3"},
    ],
)
def test_unknown_method_names_the_supported_ones(quant: dict[str, Any]) -> None:
    error = error_of(quant)
    assert "unknown quant" in error and "expected one of" in error


@pytest.mark.parametrize(
    "quant",
    [
        {"quant_method": "fp8", "weight_block_size": 128},
        {"quant_method": "fp8", "modules_to_not_convert": "lm_head"},
        {"quant_method": "fp8", "modules_to_not_convert": [3]},
        {"quant_method": "fp8", "modules_to_not_convert": ["re:("]},
        {"quant_method": "fp8", "modules_to_not_convert": ["re:(a+)+$"]},
        {"quant_method": "gptq"},
        {"quant_method": "gptq", "bits": 3},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "compressed-tensors", "config_groups": {"g": None}},
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"targets": ["Linear"], "weights": None}},
        },
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"targets": 1, "weights": {"num_bits": 8}}},
        },
        {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 6}}}},
        {"quant_method": "modelopt"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {}}},
    ],
)
def test_a_broken_quantisation_is_told_and_does_not_crash(quant: dict[str, Any]) -> None:
    assert "small/config.json:1:" in error_of(quant)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("mlp.gate", "model.layers.0.mlp.gate", True),
        ("mlp.gate", "model.layers.0.mlp.gate_proj", False),
        ("model.layers.1", "model.layers.1.mlp.up_proj", True),
        ("model.layers.1.", "model.layers.1.mlp.up_proj", True),
        ("model.layers.1", "model.layers.11.mlp.up_proj", False),
        ("language_model.model.layers.0*", "model.layers.0.mlp.up_proj", True),
        ("language_model.model.layers.0.mlp", "model.layers.0.mlp.up_proj", True),
        ("vision_tower*", "model.layers.0.mlp.up_proj", False),
        ("re:self_attn", "model.layers.0.self_attn.q_proj", False),
        ("*", "anything", True),
    ],
)
def test_patterns(pattern: str, name: str, expected: bool) -> None:
    assert matcher([pattern], pytest.fail)(name) is expected
