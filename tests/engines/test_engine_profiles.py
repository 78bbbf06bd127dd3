"""Engine profiles: every version is valid and says what the engine's source says."""

from __future__ import annotations

import pytest

from mlaplan.engines import engine_names, engine_versions, load_profile, split_name
from mlaplan.engines.additional_config import config_keys, lifetimes
from mlaplan.engines.load import at_version, default_engine, spelled
from mlaplan.engines.profile import ATTENTION_KINDS, Profile, attention_kind
from mlaplan.errors import MlaplanError, SpecError, UnknownName
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.specs.source import parse
from mlaplan.specs.validate import build
from mlaplan.strategy import Strategy

EVERY = [f"{name}@{version}" for name in engine_names() for version in engine_versions(name)]


def test_versions_are_the_ones_promised():
    assert engine_names() == ("generic", "sglang", "trtllm", "vllm", "vllm_ascend")
    assert engine_versions("vllm") == ("0.9.2", "0.11.0", "0.15.1", "0.26.0", "0.33.0")
    assert engine_versions("sglang") == ("0.5.5", "0.5.23")
    assert engine_versions("trtllm") == ("1.1.0", "1.3.0")
    assert engine_versions("vllm_ascend") == ("0.11.0", "0.13.0", "0.18.0", "0.23.0")


@pytest.mark.parametrize("name", EVERY)
def test_every_version_is_valid_and_whole(name):
    profile = load_profile(name)
    assert f"{profile.name}@{profile.version}" == name
    assert profile.memory.fraction is not None or profile.memory.reserve is not None
    assert {row.role for row in profile.all_to_all} >= {"default", "low_latency", "high_throughput"}
    for figure in (profile.host.step_overhead, profile.host.front_end, profile.memory.context):
        low, value, high = figure.bounds
        assert 0 <= low < value < high
    for chip in profile.runs_on:
        for attention in ATTENTION_KINDS:
            for dtype in profile.kv_dtypes(chip, attention):
                blocks = profile.kv_blocks(chip, attention, dtype)
                assert blocks == tuple(sorted(set(blocks)))
                for block in blocks:
                    kernel = profile.kernel(chip, attention, dtype, block)
                    assert kernel is not None and block in kernel.blocks
                assert profile.default_block(chip, attention, dtype) in blocks


@pytest.mark.parametrize("name", EVERY)
def test_capacity_decides_the_budget(name):
    profile = load_profile(name)
    tokens = [profile.budget(gib * 2**30).tokens for gib in (0, 24, 40, 80, 141, 180)]
    assert tokens == sorted(tokens)


def test_without_a_version_it_is_the_newest():
    assert split_name("vllm") == ("vllm", "0.33.0")
    assert load_profile("sglang").version == "0.5.23"


def test_unknown_engine_and_version_name_the_nearest():
    with pytest.raises(UnknownName, match=r"unknown engine 'vlm'; did you mean 'vllm'\?"):
        load_profile("vlm")
    with pytest.raises(MlaplanError, match=r"unknown version '0.34.0' of vllm; did you mean '0.33.0'\?; known"):
        load_profile("vllm@0.34.0")


BLOCKS = [
    # vllm-project/vllm vllm/v1/attention/backends/mla/*.py, vllm/platforms/cuda.py
    ("vllm@0.33.0", "nvidia-hopper", "mla", "bf16", "FLASH_ATTN_MLA", (16, 32, 64, 128)),
    ("vllm@0.33.0", "nvidia-hopper", "mla", "fp8", "FLASHMLA", (64, 128)),
    ("vllm@0.33.0", "nvidia-blackwell", "mla", "fp8", "FLASHINFER_MLA", (32, 64, 128)),
    ("vllm@0.33.0", "nvidia-ampere", "mla", "bf16", "TRITON_MLA", (16, 32, 64, 128)),
    ("vllm@0.33.0", "nvidia-hopper", "mla_sparse", "fp8_ds_mla", "FLASHMLA_SPARSE", (64,)),
    ("vllm@0.11.0", "nvidia-hopper", "mla", "bf16", "FLASHMLA", (64,)),
    ("vllm@0.11.0", "nvidia-blackwell", "mla", "bf16", "CUTLASS_MLA", (32, 64, 128)),
    ("vllm@0.9.2", "nvidia-hopper", "mla", "bf16", "FLASHMLA", (64,)),
    ("vllm@0.15.1", "amd-cdna3", "mla", "bf16", "ROCM_AITER_MLA", (1,)),
    ("sglang@0.5.23", "nvidia-hopper", "mla", "bf16", "fa3", (1, 16, 32, 64, 128)),
    ("sglang@0.5.23", "nvidia-blackwell", "mla", "fp8", "trtllm_mla", (32, 64)),
    ("sglang@0.5.5", "nvidia-blackwell", "mla", "bf16", "trtllm_mla", (32, 64, 128)),
    ("sglang@0.5.23", "nvidia-hopper", "mla_sparse", "bf16", "dsa", (64,)),
    ("sglang@0.5.23", "ascend", "mla", "bf16", "ascend", (128,)),
    ("vllm-ascend@0.23.0", "ascend", "mla", "bf16", "AscendMLA", (128,)),
    ("vllm-ascend@0.11.0", "ascend", "mla_sparse", "bf16", "AscendSFA", (128,)),
    ("vllm-ascend@0.13.0", "ascend", "gqa", "fp16", "AscendAttention", (128,)),
]


@pytest.mark.parametrize(("engine", "chip", "attention", "dtype", "backend", "blocks"), BLOCKS)
def test_kernel_blocks(engine, chip, attention, dtype, backend, blocks):
    profile = load_profile(engine)
    assert profile.kv_blocks(chip, attention, dtype) == blocks
    kernel = profile.kernel(chip, attention, dtype)
    assert kernel is not None and kernel.name == backend


def test_named_kernels_have_their_native_block():
    newest = {k.name: k for k in load_profile("vllm").kernels}
    assert newest["FLASHMLA"].default_block == 64
    assert newest["CUTLASS_MLA"].blocks == (128,)
    assert "fp8" not in newest["FLASH_ATTN_MLA"].kv_dtypes
    gone = {k.name for k in load_profile("sglang@0.5.5").kernels} - {k.name for k in load_profile("sglang").kernels}
    assert gone == {"cutlass_mla", "nsa"}


def test_sglang_casts_the_pool_of_an_fp8_cache_unless_flashmla_reads_it():
    profile = load_profile("sglang")
    cast = profile.kernel("nvidia-hopper", "mla", "fp8", 1)
    assert cast is not None and cast.name == "fa3" and cast.kv_compute == "cast_pool"
    assert cast.cast is not None and 0.22 <= float(cast.cast.bandwidth) <= 0.30
    native = profile.kernel("nvidia-hopper", "mla", "fp8", 64)
    assert native is not None and native.name == "flashmla" and native.kv_compute == "native"
    automatic = profile.automatic("nvidia-hopper", "mla", "fp8", 64)
    assert automatic is not None and automatic.name == "fa3"


def test_what_an_engine_cannot_read_has_no_blocks():
    vllm = load_profile("vllm")
    assert vllm.kv_dtypes("ascend", "mla") == ()
    assert vllm.kv_blocks("nvidia-ampere", "mla", "fp8") == ()
    assert vllm.kv_dtypes("nvidia-ampere", "mla_sparse") == ()  # no sparse kernels before Hopper
    assert vllm.kernel("nvidia-hopper", "mla", "fp8", 16, dcp=True) is not None  # the Triton fallback
    assert load_profile("vllm@0.11.0").kernel("nvidia-hopper", "mla", "fp8", 64, dcp=True) is None


def test_memory_fraction_and_defaults_by_version():
    assert float(load_profile("vllm@0.15.1").memory.fraction) == 0.9
    assert float(load_profile("vllm@0.26.0").memory.fraction) == 0.92
    assert load_profile("sglang").memory.fraction is None
    workspace = load_profile("vllm").memory.prefill_workspace
    assert workspace is not None
    assert workspace.rows(4096, 128, 64) == 32768
    assert workspace.rows(131072, 128, 64) == 65536
    vllm = load_profile("vllm")
    assert vllm.budget(85e9, "h100-sxm").tokens == 8192
    assert vllm.budget(85e9, "a100-sxm-80g").tokens == 2048
    assert vllm.budget(192e9).tokens == 16384
    assert load_profile("vllm@0.26.0").budget(192e9).tokens == 8192


def test_workspace_takes_columns():
    import numpy as np

    workspace = load_profile("vllm").memory.prefill_workspace
    assert workspace is not None
    rows = workspace.rows(np.array([4096, 131072]), np.array([128, 128]), np.array([64, 64]))
    assert rows.tolist() == [32768, 65536]


def test_all_reduce_limits():
    hopper = load_profile("vllm")
    assert hopper.all_reduce_max("nvidia-hopper", 8) == 64 * 2**20
    assert hopper.all_reduce_max("nvidia-hopper", 16) == 0
    assert load_profile("sglang").all_reduce_max("nvidia-hopper", 8) == 8 * 2**20


def test_attention_kind_of_shipped_models():
    kinds = {name: attention_kind(load_model(name)) for name in ("deepseek-v3", "deepseek-v3.2", "llama-3-70b")}
    assert kinds == {"deepseek-v3": "mla", "deepseek-v3.2": "mla_sparse", "llama-3-70b": "gqa"}


SMALL = """
kind: engine
name: toy
versions: [1.0.0, 2.0.0]
kernels:
  - {name: old, until: 1.0.0}
  - {name: new, since: 2.0.0, blocks: {by_version: {1.0.0: [16], 2.0.0: [64, oops]}}}
host: {by_version: {2.0.0: {step_overhead: 3}}}
"""


def test_versions_are_resolved_and_positions_kept():
    document = parse(SMALL, "toy.yaml")
    first, second = at_version(document, "1.0.0"), at_version(document, "2.0.0")
    assert first.data["kernels"] == [{"name": "old"}] and first.data["host"] is None
    assert second.data["kernels"] == [{"name": "new", "blocks": [64, "oops"]}]
    assert second.data["host"] == {"step_overhead": 3} and second.data["version"] == "2.0.0"
    assert second.mark(("kernels", 0, "blocks", 1)) == document.mark(("kernels", 1, "blocks", "by_version", "2.0.0", 1))
    with pytest.raises(SpecError) as told:
        build(Profile, second)
    assert "toy.yaml:7:78: kernels[0].blocks[1]: got 'oops'" in str(told.value)


def test_expresses_knows_the_model_and_the_chip():
    v3, v32, minicpm = (load_model(name) for name in ("deepseek-v3", "deepseek-v3.2", "minicpm3-4b"))
    h200 = load_chip("h200-sxm")
    vllm = load_profile("vllm")
    assert vllm.expresses(Strategy(tp=8, kv_dtype="fp8"), v3, h200) == []
    assert vllm.expresses(Strategy(tp=16, ep=4), v3, h200) == [
        "ep=4 of 16 ranks: vLLM 0.33.0 has EP over all TP x DP ranks or none"
    ]
    sharded = {"kv_layout": "sequence_sharded", "kv_dtype": "fp8_ds_mla"}
    assert vllm.expresses(Strategy(tp=8, dcp=8, **sharded), v32, h200) == []
    (few,) = vllm.expresses(Strategy(tp=4, dcp=4, **sharded), v32, h200)
    assert few.startswith("dcp=4 with 32 heads a rank: vLLM 0.33.0 takes at most 31")
    assert vllm.expresses(Strategy(), minicpm, h200) == [
        "attention: vLLM 0.33.0 caches minicpm3-4b as full keys and values, not as latents"
    ]
    assert load_profile("sglang").expresses(Strategy(), minicpm, h200) == []
    old = load_profile("vllm@0.15.1")
    (heads,) = old.expresses(Strategy(tp=4, block_size=1), v3, "amd-cdna3")
    assert heads == (
        "tp=4: 32 heads a rank, vLLM 0.15.1 has kernels for 16 and 128 with blocks of 1 for bf16 on amd-cdna3"
    )
    assert old.expresses(Strategy(tp=4, block_size=16), v3, "amd-cdna3") == []  # Triton takes any number
    assert old.expresses(Strategy(tp=8, block_size=1), v3, "amd-cdna3") == []


def test_generic_expresses_all_but_a_contradiction():
    generic = load_profile("generic")
    everything = Strategy(
        tp=8, dp=2, pp=2, ep=4, dcp=8, kv_layout="sequence_sharded", mtp=2, two_batch_overlap=1, batch=64
    )
    assert generic.expresses(everything, load_model("deepseek-v3"), load_chip("h200-sxm")) == []
    assert generic.expresses(Strategy(tp=8, kv_layout="latent_sharded"), None, "sophgo") == []
    assert generic.expresses(Strategy(tp=8, dcp=2), None, "sophgo") == [
        "kv_layout=replicated with dcp=2: sequence_sharded goes with dcp above 1"
    ]


@pytest.mark.parametrize(
    ("chip", "engine"),
    [("ascend-910b3", "vllm_ascend"), ("ascend-910c-die", "vllm_ascend"), ("ascend-910a", "generic"),
     ("h200-sxm", "generic"), ("sc11", "generic")],
)  # fmt: skip
def test_chips_are_planned_for_the_engine_of_their_class(chip, engine):
    assert default_engine(load_chip(chip)) == engine


def test_what_vllm_ascend_refuses():
    strategy = Strategy(tp=8, dp=2, cp=2, ep=16, block_size=128, kv_dtype="bf16")
    told = load_profile("vllm-ascend").expresses(strategy, load_model("deepseek-v3"), load_chip("ascend-910b3"))
    assert told == ["cp=2 with dp=2: vLLM-Ascend 0.23.0 has one or the other"]
    drafts = Strategy(tp=8, pp=2, ep=8, mtp=1, block_size=128, kv_dtype="bf16")
    for version, refused in (("0.18.0", False), ("0.23.0", True)):
        profile = load_profile(f"vllm-ascend@{version}")
        assert bool(profile.expresses(drafts, load_model("deepseek-v3"), load_chip("ascend-910b3"))) is refused
    assert load_profile("vllm-ascend@0.11.0").parallel.dcp is None


def test_keys_of_the_additional_config():
    assert "torchair_graph_config" in config_keys("0.11.0") and "torchair_graph_config" not in config_keys("0.13.0")
    assert config_keys("0.18.0")["eplb_config"].strict and not config_keys("0.13.0")["eplb_config"].strict
    assert "eplb_heat_collection_stage" in config_keys("0.23.0")["eplb_config"].keys
    assert lifetimes()["mix_placement"] == ("0.13.0", "0.23.0")
    for version in engine_versions("vllm_ascend"):
        assert {"refresh", "weight_prefetch_config", "enable_cpu_binding"} <= set(config_keys(version))


@pytest.mark.parametrize("name", ["vllm_ascend", "vllm-ascend", "vllm-ascend@0.23.0"])
def test_an_engine_goes_by_one_spelling_and_is_read_in_both(name):
    assert load_profile(name).name == "vllm_ascend"
    assert spelled("vllm_ascend") == "vllm-ascend"
    with pytest.raises(
        MlaplanError, match=r"^unknown engine 'vllm-ascent'; did you mean 'vllm-ascend'\?; known are .*, vllm-ascend$"
    ):
        load_profile("vllm_ascent")
