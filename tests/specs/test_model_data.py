"""The shipped models: published sizes, cache bytes, and that every one is valid and sourced."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlaplan.costs.kv import kv_bytes_per_token, kv_bytes_per_token_layer
from mlaplan.costs.params import mtp_params, params_active, params_total
from mlaplan.specs.lookup import load_model, model_names

MODELS = Path(__file__).parents[2] / "models"
NAMES = sorted(path.stem for path in MODELS.glob("*.yaml"))


def test_all_models_of_the_folder_are_found() -> None:
    assert set(NAMES) <= {name for name, _ in model_names()}
    assert len(NAMES) >= 14


@pytest.mark.parametrize("name", NAMES)
def test_file_name_and_sources(name: str) -> None:
    model = load_model(name)
    assert model.name == name
    assert model.served_names
    assert model.published is not None
    assert (model.mtp is None) or model.mtp.acceptance.low is not None


def test_published_names_belong_to_one_model() -> None:
    served = [name for model in NAMES for name in load_model(model).served_names]
    assert len(served) == len(set(served))


@pytest.mark.parametrize("name", NAMES)
def test_total_parameters_are_the_published_ones(name: str) -> None:
    model = load_model(name)
    assert model.published is not None
    assert params_total(model) == pytest.approx(float(model.published.params_total), rel=0.005)


@pytest.mark.parametrize("name", [name for name in NAMES if load_model(name).published.params_active])
def test_active_parameters_are_the_published_ones(name: str) -> None:
    """Within 2 %, or inside the published rounding where that is coarser."""
    model = load_model(name)
    published = model.published.params_active
    low, value, high = published.bounds
    active = params_active(model)
    assert min(low, 0.98 * value) <= active <= max(high, 1.02 * value)


# Totals and active parameters in 1e9, by hand from the matrices of each paper
@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("deepseek-v3", 671.03, 36.63),
        ("deepseek-v2", 235.74, 20.85),
        ("deepseek-v2-lite", 15.71, 2.45),
        ("kimi-k2", 1026.41, 31.69),
        ("glm-5", 743.91, 40.83),
        ("longcat-flash", 560.67, 27.15),
        ("moonlight-16b-a3b", 15.96, 2.58),
        ("minicpm3-4b", 4.07, 4.07),
        ("llama-3-70b", 70.55, 69.50),
    ],
)
def test_parameters_by_hand(name: str, total: float, active: float) -> None:
    model = load_model(name)
    assert params_total(model) / 1e9 == pytest.approx(total, abs=0.006)
    assert params_active(model) / 1e9 == pytest.approx(active, abs=0.006)


def test_mtp_layer_of_v3_is_apart() -> None:
    """11.5 B of its own (DeepSeek-V3 README_WEIGHTS.md); the hub's 685 B has embedding and head twice."""
    v3 = load_model("deepseek-v3")
    assert mtp_params(v3) / 1e9 == pytest.approx(11.5, rel=0.02)
    copies = 2 * v3.vocab_size * v3.hidden_size
    assert (params_total(v3) + mtp_params(v3) + copies) / 1e9 == pytest.approx(685, rel=0.001)


@pytest.mark.parametrize(
    ("name", "bf16", "fp8", "fp8_ds_mla"),
    [
        ("deepseek-v2-lite", 31_104, 15_552, None),
        ("moonlight-16b-a3b", 31_104, 15_552, None),
        ("deepseek-v2", 69_120, 34_560, None),
        ("deepseek-v3", 70_272, 35_136, None),
        ("deepseek-v3.1", 70_272, 35_136, None),
        ("deepseek-r1", 70_272, 35_136, None),
        ("kimi-k2", 70_272, 35_136, None),
        ("kimi-k2.5", 70_272, 35_136, None),
        ("deepseek-v3.2", 70_272 + 61 * 132, 43_188, 48_068),
        ("glm-5", 100_152, 44_928 + 10_296, 61_464),
        ("glm-5.2", 89_856 + 2_772, 44_928 + 2_772, 53_940),
        ("longcat-flash", 64_512, 32_256, None),
        ("glm-4.7-flash", 54_144, 27_072, None),
        ("minicpm3-4b", 35_712, 17_856, None),
        ("llama-3-70b", 327_680, 163_840, None),
        ("llama-3.1-70b", 327_680, 163_840, None),
        ("qwen2.5-72b", 327_680, 163_840, None),
        ("mixtral-8x7b", 131_072, 65_536, None),
    ],
)
def test_cache_bytes_per_token(name: str, bf16: int, fp8: int, fp8_ds_mla: int | None) -> None:
    found = kv_bytes_per_token(load_model(name))
    assert (found["bf16"], found["fp8"], found.get("fp8_ds_mla")) == (bf16, fp8, fp8_ds_mla)


def test_cache_bytes_per_token_and_layer() -> None:
    assert kv_bytes_per_token_layer(load_model("deepseek-v3"))["bf16"] == 1152
    assert kv_bytes_per_token_layer(load_model("deepseek-v3.2"))["fp8_ds_mla"] == 656


def test_indexers_of_glm_5_2() -> None:
    model = load_model("glm-5.2")
    full = sum(run.count for run in model.layers if run.attention == ("mla",))
    assert (full, model.layer_count) == (21, 78)
    assert [run.count for run in model.layers[:3]] == [3, 3, 1]
