"""Bytes of a cached token. The numbers of published models are exact."""

import pytest
from scalar.cases import model as shipped

from mlaplan.costs import kv

from . import round as r


def test_a_row_by_hand():
    mla = r.model().attention["a"]
    # 100 latent and 20 rotary numbers
    assert kv.row_bytes(mla, "bf16") == 240
    assert kv.row_bytes(mla, "fp8") == 120
    # 4 fp32 scales, rotary keys in 16 bit
    assert kv.row_bytes(mla, "fp8_ds_mla") == 100 + 16 + 40
    # 2 x 2 heads x 50; int8 with an fp16 scale per 128 numbers
    gqa = r.model(r.GQA).attention["a"]
    assert kv.row_bytes(gqa, "bf16") == 400
    assert kv.row_bytes(gqa, "int8") == 200 + 200 / 128 * 2


def test_an_indexer_keeps_a_key_and_a_scale():
    assert kv.indexer_row_bytes(r.model(r.SPARSE).attention["a"]) == 24
    assert kv.indexer_row_bytes(r.model().attention["a"]) == 0
    assert kv.indexer_row_bytes(shipped("glm-5.2").attention["mla_shared"]) == 0


@pytest.mark.parametrize(
    ("name", "dtype", "per_layer", "per_token"),
    [
        ("deepseek-v3", "bf16", 1152, 70_272),
        ("deepseek-v3", "fp8", 576, 35_136),
        ("deepseek-r1", "bf16", 1152, 70_272),
        ("deepseek-v3.2", "fp8_ds_mla", 656, 48_068),
        ("deepseek-v3.2", "bf16", 1152, 78_324),
        ("deepseek-v2-lite", "bf16", 1152, 31_104),
        ("moonlight-16b-a3b", "bf16", 1152, 31_104),
        ("deepseek-v2", "bf16", 1152, 69_120),
        ("kimi-k2", "bf16", 1152, 70_272),
        # 78 layers, 21 with an indexer
        ("glm-5.2", "fp8_ds_mla", 656, 53_940),
        ("glm-5.2", "bf16", 1152, 89_856 + 2_772),
        ("glm-5", "fp8_ds_mla", 656, 61_464),
        # two attentions in each of 28 layers
        ("longcat-flash", "bf16", 1152, 64_512),
        ("glm-4.7-flash", "bf16", 1152, 54_144),
        # 256 and 32
        ("minicpm3-4b", "bf16", 576, 35_712),
        ("llama-3-70b", "bf16", 4096, 327_680),
    ],
)
def test_published_models(name, dtype, per_layer, per_token):
    assert kv.kv_bytes_per_token_layer(shipped(name))[dtype] == per_layer
    assert kv.kv_bytes_per_token(shipped(name))[dtype] == per_token


def test_a_block_of_64_tokens_is_72_kib_per_layer():
    # blocks of 16, 32 and 64 tokens: 18, 36 and 72 KiB
    row = kv.row_bytes(shipped("deepseek-v3").attention["mla"], "bf16")
    assert [row * n / 1024 for n in (16, 32, 64)] == [18, 36, 72]


def test_mla_against_multi_head_and_grouped_queries():
    # as MHA: 2 x 128 heads x 128 numbers, 56.9 times the row; GQA-8: 2048 numbers, 3.56 times
    row = kv.row_bytes(shipped("deepseek-v3").attention["mla"], "bf16")
    assert 2 * 128 * 128 * 2 / row == pytest.approx(56.9, abs=0.05)
    assert kv.row_bytes(shipped("llama-3-70b").attention["gqa"], "bf16") / row == pytest.approx(3.56, abs=0.01)


def test_dtypes_that_make_sense():
    assert kv.kv_dtypes(shipped("deepseek-v3").attention["mla"]) == ("bf16", "fp8")
    assert "fp8_ds_mla" in kv.kv_dtypes(shipped("deepseek-v3.2").attention["mla"])
    assert "int8" in kv.kv_dtypes(shipped("llama-3-70b").attention["gqa"])
