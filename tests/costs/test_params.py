"""Parameters matrix by matrix, by hand; what a shard holds adds up to the model."""

import pytest
from scalar.cases import model as shipped

from mlaplan.costs import params

from . import round as r


def by_name(matrices):
    return {m.name: m.params for m in matrices}


def test_mla_matrices_by_hand():
    found = by_name(params.attention_matrices(r.model(), "a"))
    assert found == {
        "q_a": 1000 * 200,
        "q_b": 200 * 8 * 80,
        "kv_a": 1000 * 120,
        "kv_b": 100 * 8 * 110,
        "o_proj": 8 * 50 * 1000,
        "norm": 1000 + 200 + 100,
    }


def test_without_a_query_latent():
    found = by_name(params.attention_matrices(r.model(r.MLA | {"q_lora_rank": None}), "a"))
    assert found["q_proj"] == 1000 * 640
    assert "q_a" not in found


def test_an_indexer_adds_its_own():
    found = by_name(params.attention_matrices(r.model(r.SPARSE), "a"))
    assert (found["indexer_q"], found["indexer_k"], found["indexer_weights"]) == (200 * 80, 1000 * 20, 1000 * 4)


def test_grouped_queries_by_hand():
    found = by_name(params.attention_matrices(r.model(r.GQA | {"qkv_bias": True, "qk_norm": True}), "a"))
    assert found == {"q_proj": 400_000, "kv_proj": 200_000, "o_proj": 400_000, "norm": 1000 + 100 + 600}


def test_experts_total_and_used():
    model = r.model(ffn=r.MOE)
    found = {m.name: m for m in params.ffn_matrices(model, "f")}
    assert found["experts"].params == 20 * 3 * 500_000
    assert found["experts"].active == 4 * 3 * 500_000
    assert found["shared_experts"].params == found["shared_experts"].active == 3 * 500_000
    assert found["router"].params == 20_000


def test_a_whole_model_by_hand():
    model = r.model(ffn=r.MOE, layers=4)
    attention = 200_000 + 128_000 + 120_000 + 88_000 + 400_000 + 1300
    block = 20_000 + 30_000_000 + 1_500_000 + 1000
    vocabulary = 10_000_000
    assert params.params_total(model) == 4 * (attention + block) + 2 * vocabulary + 1000
    used = block - 30_000_000 * 16 / 20
    # the input embedding multiplies nothing
    assert params.params_active(model) == pytest.approx(4 * (attention + used) + vocabulary + 1000)


@pytest.mark.parametrize("name", ["deepseek-v3", "glm-5.2", "longcat-flash", "llama-3-70b", "mixtral-8x7b"])
def test_parts_add_up_to_the_total(name):
    model = shipped(name)
    parts = params.breakdown(model)
    assert sum(parts.values()) - parts["mtp"] == params.params_total(model)
    assert 0 < params.params_active(model) <= params.params_total(model)


def test_tied_embeddings_are_counted_once():
    model = r.model().model_copy(update={"tied_embeddings": True})
    assert params.params_total(r.model()) - params.params_total(model) == 10_000_000
    assert params.params_active(r.model()) == params.params_active(model)


def test_deepseek_v3_is_671_billion_of_which_37_work():
    model = shipped("deepseek-v3")
    assert params.params_total(model) == pytest.approx(671.03e9, rel=1e-3)
    assert params.params_active(model) == pytest.approx(36.6e9, rel=0.01)
    assert params.mtp_params(model) == pytest.approx(11.5e9, rel=0.02)
