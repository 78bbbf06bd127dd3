"""config.json to model: nesting, other key names, keys that look like sizes and are none, positions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlaplan.costs.kv import kv_bytes_per_token, kv_bytes_per_token_layer
from mlaplan.errors import SpecError
from mlaplan.specs import source
from mlaplan.specs.hf import model_from_config
from mlaplan.specs.lookup import load_model
from mlaplan.specs.model import Model

CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"
SHAPES = (
    "hidden_size",
    "vocab_size",
    "max_position",
    "tied_embeddings",
    "attention",
    "ffn",
    "layers",
    "weights",
)


def fixture(name: str) -> dict[str, Any]:
    return json.loads((CONFIGS / f"{name}.json").read_text())


def model(config: dict[str, Any], file: str = "some-model/config.json") -> Model:
    return model_from_config(source.parse(json.dumps(config), file))


def refusal(config: dict[str, Any]) -> SpecError:
    with pytest.raises(SpecError) as caught:
        model(config)
    return caught.value


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ("v3_shape", "deepseek-v3"),
        ("v3_shape", "deepseek-r1"),
        ("k25_nested", "kimi-k2.5"),
        ("longcat_keys", "longcat-flash"),
        ("glm5_head_dim", "glm-5"),
    ],
)
def test_config_and_shipped_model_describe_the_same_shapes(config: str, name: str) -> None:
    read, shipped = load_model(str(CONFIGS / f"{config}.json")), load_model(name)
    for field in SHAPES:
        assert getattr(read, field) == getattr(shipped, field), field


def test_mtp_comes_from_the_config_with_an_acceptance_interval() -> None:
    read, shipped = model(fixture("v3_shape")), load_model("deepseek-v3")
    assert read.mtp is not None and shipped.mtp is not None
    assert (read.mtp.layers, read.mtp.attention, read.mtp.ffn) == (1, "mla", "moe")
    assert read.mtp.acceptance.bounds == shipped.mtp.acceptance.bounds == (0.6, 0.8, 0.9)
    assert model(fixture("v3_shape") | {"num_nextn_predict_layers": 0}).mtp is None
    assert model(fixture("longcat_keys")).mtp is None


def test_nested_text_model_says_that_the_tower_is_not_counted() -> None:
    read = model(fixture("k25_nested"))
    assert read.attention["mla"].heads == 64
    assert any("tower is not" in note for note in read.notes)


def test_nested_text_model_may_be_called_deepseek_v3_with_64_heads() -> None:
    config = fixture("k25_nested")
    config["text_config"]["model_type"] = "deepseek_v3"
    assert model(config).attention == load_model("kimi-k2.5").attention


def test_longcat_counts_attention_blocks_twice_a_layer() -> None:
    read = model(fixture("longcat_keys"))
    assert read.layer_count == 28
    assert kv_bytes_per_token(read)["bf16"] == 28 * 2 * 1152
    assert read.ffn["moe"].zero_experts == 256


@pytest.mark.parametrize("heads", [1, 8, 128])
def test_kv_heads_of_an_mla_config_size_nothing(heads: int) -> None:
    config = fixture("v3_shape") | {"num_key_value_heads": heads}
    assert model(config) == model(fixture("v3_shape"))


@pytest.mark.parametrize("head_dim", [64, 192, 256])
def test_head_dim_of_an_mla_config_sizes_nothing(head_dim: int) -> None:
    read = model(fixture("glm5_head_dim") | {"head_dim": head_dim})
    assert kv_bytes_per_token_layer(read) == {"bf16": 1152, "fp8": 576, "fp8_ds_mla": 656}


def test_head_dim_of_a_gqa_config_is_used_and_may_differ_from_hidden_over_heads() -> None:
    assert model(fixture("gqa_small")).attention["gqa"].head_dim == 64
    assert model(fixture("gqa_small") | {"head_dim": 128}).attention["gqa"].head_dim == 128


def test_kv_heads_default_to_heads_in_gqa() -> None:
    config = fixture("gqa_small")
    del config["num_key_value_heads"]
    assert model(config).attention["gqa"].kv_heads == 8


def test_qwen2_has_qkv_bias_and_qwen3_norms_without_saying_so() -> None:
    assert model(fixture("gqa_small") | {"model_type": "qwen2"}).attention["gqa"].qkv_bias
    qwen3 = model(fixture("gqa_small") | {"model_type": "qwen3"}).attention["gqa"]
    assert qwen3.qk_norm and not qwen3.qkv_bias


def test_mixtral_experts_take_the_only_width_there_is() -> None:
    config = fixture("gqa_small") | {
        "model_type": "mixtral",
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
    moe = model(config).ffn["moe"]
    assert (moe.experts, moe.experts_per_token, moe.intermediate_size, moe.shared_experts) == (8, 2, 1024, 0)


def schedule(read: Model) -> str:
    """One letter a layer: d dense, m moe; upper case where the indexer is another layer's."""
    letters = {
        ("mla", "dense"): "d",
        ("mla", "moe"): "m",
        ("mla_shared", "dense"): "D",
        ("mla_shared", "moe"): "M",
    }
    runs = [letters[run.attention[0].replace("gqa", "mla"), run.ffn[0]] * run.count for run in read.layers]
    return "".join(runs)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "dmmm"),
        ({"first_k_dense_replace": 0}, "mmmm"),
        ({"first_k_dense_replace": 2, "moe_layer_freq": 2}, "ddmd"),
        ({"moe_layer_freq": [0, 0, 1, 0]}, "ddmd"),
        ({"mlp_layer_types": ["dense", "sparse", "dense", "sparse"]}, "dmdm"),
        ({"first_k_dense_replace": 4}, "dddd"),
    ],
)
def test_dense_and_moe_layers(change: dict[str, Any], expected: str) -> None:
    assert schedule(model(fixture("mla_small") | change)) == expected


def test_qwen3_moe_counts_sparse_steps_from_one() -> None:
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
    config = fixture("gqa_small") | experts | {"model_type": "qwen3_moe", "decoder_sparse_step": 2}
    assert schedule(model(config)) == "dmdm"
    assert schedule(model(config | {"mlp_only_layers": [1]})) == "dddm"


SPARSE = {"index_topk": 64, "index_n_heads": 4, "index_head_dim": 32}


def test_shared_indexers_become_a_second_attention_kind() -> None:
    config = fixture("mla_small") | SPARSE | {"indexer_types": ["full", "shared", "shared", "full"]}
    read = model(config | {"num_nextn_predict_layers": 1})
    assert schedule(read) == "dMMm"
    assert read.attention["mla"].sparse.indexer.heads == 4
    assert read.attention["mla_shared"].sparse.indexer is None
    assert read.attention["mla_shared"].sparse.top_k == 64
    assert read.mtp is not None and read.mtp.attention == "mla"


def test_first_indexer_cannot_be_shared() -> None:
    error = refusal(fixture("mla_small") | SPARSE | {"indexer_types": ["shared", "full", "full", "full"]})
    assert "indexer_types[0] is 'shared'" in str(error)


def test_all_full_indexers_leave_one_attention_kind() -> None:
    read = model(fixture("mla_small") | SPARSE | {"indexer_types": ["full"] * 4})
    assert list(read.attention) == ["mla"]


def test_sparse_frequency_without_the_list_is_not_guessed() -> None:
    assert "missing key 'indexer_types'" in str(refusal(fixture("mla_small") | SPARSE | {"index_topk_freq": 4}))


def test_minicpm3_takes_v_head_dim_from_hidden_over_heads_and_ties_embeddings() -> None:
    config = fixture("mla_small") | {"model_type": "minicpm3", "q_lora_rank": 96}
    for key in ("v_head_dim", "n_routed_experts", "n_shared_experts", "num_experts_per_tok"):
        del config[key]
    read = model(config)
    assert read.attention["mla"].v_head_dim == 256 // 4
    assert read.tied_embeddings
    assert list(read.ffn) == ["dense"]


def test_model_type_of_a_repository_falls_back_to_the_class_engines_dispatch_on() -> None:
    assert model(fixture("v3_shape") | {"model_type": "my_finetune"}).ffn == load_model("deepseek-v3").ffn
    config = fixture("v3_shape")
    del config["model_type"]
    assert model(config).ffn == load_model("deepseek-v3").ffn


def test_pangu_names_its_keys_otherwise() -> None:
    renamed = {
        "kv_lora_rank": "attention_kv_lora_dim",
        "q_lora_rank": "attention_q_lora_dim",
        "qk_nope_head_dim": "attention_qk_dim",
        "qk_rope_head_dim": "attention_qk_rope_dim",
        "v_head_dim": "attention_v_dim",
        "first_k_dense_replace": "num_dense_layers",
        "n_routed_experts": "num_routed_experts",
        "n_shared_experts": "num_shared_experts",
        "num_nextn_predict_layers": "num_mtp_layers",
    }
    config = {renamed.get(key, key): value for key, value in fixture("v3_shape").items()}
    read = model(config | {"model_type": "pangu_ultra_moe"})
    assert (read.attention, read.ffn, read.layers) == tuple(
        getattr(load_model("deepseek-v3"), field) for field in ("attention", "ffn", "layers")
    )
    assert read.mtp is not None


# Mistakes: all at once, each at its place.


@pytest.mark.parametrize(
    "key",
    [
        "hidden_size",
        "num_attention_heads",
        "num_hidden_layers",
        "vocab_size",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
        "n_routed_experts",
        "num_experts_per_tok",
        "n_shared_experts",
        "moe_intermediate_size",
        "intermediate_size",
        "first_k_dense_replace",
        "max_position_embeddings",
    ],
)
def test_a_missing_key_that_sizes_something_is_named(key: str) -> None:
    config = fixture("v3_shape")
    del config[key]
    assert f"missing key '{key}'" in str(refusal(config))


def test_a_missing_key_of_a_nested_model_says_where() -> None:
    config = fixture("k25_nested")
    del config["text_config"]["kv_lora_rank"]
    (problem,) = refusal(config).problems
    assert problem.message == "missing key 'kv_lora_rank' in text_config"


def test_every_mistake_is_told_at_its_line() -> None:
    text = json.dumps(fixture("v3_shape"), indent=1)
    bad = {"kv_lora_rank": '"512"', "vocab_size": "-1", "n_group": "0", "num_hidden_layers": "1e9"}
    lines = text.splitlines()
    for key, value in bad.items():
        (index,) = (i for i, line in enumerate(lines) if line.startswith(f' "{key}"'))
        lines[index] = f' "{key}": {value},'
    with pytest.raises(SpecError) as caught:
        model_from_config(source.parse("\n".join(lines), "x/config.json"))
    found = {lines[p.line - 1].split('"')[1] for p in caught.value.problems if p.line}
    assert found == set(bad)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"num_experts_per_tok": 257}, "num_experts_per_tok"),
        ({"topk_group": 9}, "topk_group"),
        ({"n_group": 7}, "n_group"),
    ],
)
def test_sizes_that_do_not_fit_each_other_are_told_at_their_key(change: dict[str, int], key: str) -> None:
    text = json.dumps(fixture("v3_shape") | change, indent=1)
    with pytest.raises(SpecError) as caught:
        model_from_config(source.parse(text, "x/config.json"))
    line = caught.value.problems[0].line
    assert line is not None and f'"{key}"' in text.splitlines()[line - 1]


def test_lists_of_layers_must_have_the_right_length() -> None:
    error = refusal(fixture("mla_small") | {"mlp_layer_types": ["dense"]})
    assert "mlp_layer_types has 1 entries; expected a list of 4" in str(error)


@pytest.mark.parametrize("value", [True, 1.5, "4", [4], {}, -4, 10**12])
@pytest.mark.parametrize("key", ["num_attention_heads", "first_k_dense_replace", "num_nextn_predict_layers"])
def test_no_value_escapes_as_another_exception(key: str, value: Any) -> None:
    assert refusal(fixture("v3_shape") | {key: value}).problems


def test_absurd_products_are_still_told_in_words() -> None:
    assert refusal(fixture("v3_shape") | {"moe_intermediate_size": 10**9, "n_shared_experts": 10**9}).problems


# Names


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("DeepSeek-V3/config.json", "DeepSeek-V3"),
        ("/hub/models--org--Some-Model/snapshots/0123456789abcdef/config.json", "Some-Model"),
        ("checkpoints/my-model_config.json", "my-model"),
        ("config.json", "Base-Model"),
    ],
)
def test_a_model_is_named_after_where_it_lies(file: str, expected: str) -> None:
    read = model(fixture("v3_shape") | {"_name_or_path": "org/Base-Model/"}, file)
    assert read.name == expected
    assert read.served_names == ()


def test_origin_is_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "Tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(fixture("mla_small")))
    for given in (folder, folder / "config.json"):
        read = load_model(str(given))
        assert (read.name, read.origin) == ("Tiny", str(folder / "config.json"))
