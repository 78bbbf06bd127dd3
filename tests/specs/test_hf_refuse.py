"""Architectures without a cost model: the refusal names the architecture, the key that shows it, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlaplan.errors import SpecError
from mlaplan.specs import source
from mlaplan.specs.hf import model_from_config
from mlaplan.specs.lookup import load_model
from mlaplan.specs.model import Model

CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"


def fixture(name: str) -> dict[str, Any]:
    return json.loads((CONFIGS / f"{name}.json").read_text())


def model(config: dict[str, Any]) -> Model:
    return model_from_config(source.parse(json.dumps(config), "some-model/config.json"))


def refusal(config: dict[str, Any]) -> SpecError:
    with pytest.raises(SpecError) as caught:
        model(config)
    return caught.value


def test_linear_hybrid_is_refused_at_the_key_that_shows_it() -> None:
    with pytest.raises(SpecError) as caught:
        load_model(str(CONFIGS / "linear_hybrid.json"))
    (problem,) = caught.value.problems
    assert problem.code == "not-priced"
    lines = (CONFIGS / "linear_hybrid.json").read_text().splitlines()
    assert problem.line is not None and "linear_attn_config" in lines[problem.line - 1]
    for word in ("kimi_linear", "KimiLinearForCausalLM", "can be read but not priced", "state per request"):
        assert word in problem.message


def test_compressed_mqa_is_refused_whatever_it_calls_itself() -> None:
    for name in ("deepseek_v4", "deepseek_ref", "deepseek_v3"):
        error = refusal(fixture("compressed_mqa") | {"model_type": name})
        assert name in str(error) and "'compress_ratios'" in str(error) and "compressed MQA" in str(error)


def test_wrapper_of_a_refused_text_model_names_both() -> None:
    config = {"model_type": "kimi_k3", "text_config": fixture("linear_hybrid"), "vision_config": {"depth": 2}}
    assert "'kimi_k3 / kimi_linear'" in str(refusal(config))


@pytest.mark.parametrize(
    "key",
    [
        "o_lora_rank",
        "compress_rope_theta",
        "kv_b_lora_rank",
        "mamba_d_state",
        "hc_mult",
        "mla_use_output_gate",
    ],
)
def test_mla_with_keys_of_another_mechanism_is_refused(key: str) -> None:
    error = refusal(fixture("v3_shape") | {key: 4})
    assert f"'{key}'" in str(error) and "can be read but not priced" in str(error)


@pytest.mark.parametrize("value", [None, False, 0, [], {}])
def test_a_mechanism_that_is_switched_off_is_no_reason(value: Any) -> None:
    assert model(fixture("v3_shape") | {"linear_attn_config": value, "o_lora_rank": value}).layer_count == 61


def test_sliding_window_is_refused_only_where_it_is_in_use() -> None:
    mistral = fixture("gqa_small") | {"model_type": "mistral"}
    assert "sliding window of 512 tokens" in str(refusal(mistral | {"sliding_window": 512}))
    assert model(mistral | {"sliding_window": None}).layer_count == 4
    assert model(mistral | {"sliding_window": 2048}).layer_count == 4
    qwen = fixture("gqa_small") | {"model_type": "qwen2", "sliding_window": 512}
    assert model(qwen | {"use_sliding_window": False}).layer_count == 4
    assert model(qwen).layer_count == 4
    assert "'sliding_window'" in str(refusal(qwen | {"use_sliding_window": True}))
    kinds = ["full_attention", "sliding_attention"] * 2
    assert "'layer_types[1]'" in str(refusal(qwen | {"layer_types": kinds}))
    assert model(qwen | {"layer_types": ["full_attention"] * 4}).layer_count == 4


def test_unknown_architecture_is_refused_with_the_covered_ones() -> None:
    error = refusal(fixture("gqa_small") | {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"]})
    (problem,) = error.problems
    assert "gemma3_text" in problem.message and problem.code == "not-priced"
    assert problem.expected is not None and "deepseek_v3" in problem.expected
    misspelt = refusal(fixture("gqa_small") | {"model_type": "lama", "architectures": None})
    assert misspelt.problems[0].hint == "did you mean 'llama'?"


def test_experts_in_a_dense_architecture_are_refused() -> None:
    assert "'num_local_experts'" in str(refusal(fixture("gqa_small") | {"num_local_experts": 8}))


def test_no_model_type_at_all() -> None:
    config = fixture("gqa_small")
    del config["model_type"], config["architectures"]
    assert "missing key 'model_type'" in str(refusal(config))
