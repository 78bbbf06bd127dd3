"""Launch commands: what they say, on how many nodes, and what is refused by name."""

from __future__ import annotations

import pytest

from mlaplan.engines import EmitRequest, bench_command, emit, parse
from mlaplan.engines.launch import split_commands
from mlaplan.errors import MlaplanError, UnknownName
from mlaplan.strategy import Strategy

V3 = {
    "model": "deepseek-ai/DeepSeek-V3",
    "chip_class": "nvidia-hopper",
    "weight_dtype": "fp8",
    "max_model_len": 5376,
    "batch": 64,
}


def request(**given) -> EmitRequest:
    return EmitRequest(**{**V3, **given})


def flags(text: str) -> dict[str, str]:
    """Flags of the last command of a text, each with the word after it."""
    words = split_commands(text)[-1]
    return {w: (words[i + 1] if i + 1 < len(words) else "") for i, w in enumerate(words) if w.startswith("--")}


def test_one_node_is_one_command():
    (text,) = emit("vllm", request(tp=8, memory_fraction=0.92))
    assert text == (
        "# vLLM 0.33.0\n"
        "vllm serve deepseek-ai/DeepSeek-V3 \\\n"
        "    --tensor-parallel-size 8 \\\n"
        "    --kv-cache-dtype auto \\\n"
        "    --block-size 64 \\\n"
        "    --gpu-memory-utilization 0.92 \\\n"
        "    --max-model-len 5376 \\\n"
        "    --max-num-seqs 64 \\\n"
        "    --max-num-batched-tokens 8192"
    )


def test_counts_are_per_rank_in_vllm_and_for_all_ranks_in_sglang():
    plan = request(dp=8, ep=8, batch=32, prefill_chunk=1024)
    vllm, sglang = flags(emit("vllm", plan)[0]), flags(emit("sglang", plan)[0])
    assert (vllm["--max-num-seqs"], vllm["--max-num-batched-tokens"]) == ("32", "1024")
    assert (sglang["--max-running-requests"], sglang["--chunked-prefill-size"]) == ("256", "8192")
    assert (vllm["--tensor-parallel-size"], vllm["--data-parallel-size"]) == ("1", "8")
    assert (sglang["--tp-size"], sglang["--attn-dp-size"], sglang["--ep-size"]) == ("8", "8", "8")


def test_attention_dp_in_both_dialects_of_sglang():
    plan = request(tp=2, dp=4)
    assert "--enable-dp-attention" in flags(emit("sglang@0.5.5", plan)[0])
    assert flags(emit("sglang@0.5.5", plan)[0])["--dp-size"] == "4"
    new = flags(emit("sglang@0.5.23", plan)[0])
    assert "--enable-dp-attention" not in new and "--dp-size" not in new


def test_mtp():
    plan = request(tp=8, mtp=2)
    assert '{"method": "mtp", "num_speculative_tokens": 2}' in emit("vllm", plan)[0]
    assert '{"method": "deepseek_mtp", "num_speculative_tokens": 2}' in emit("vllm@0.9.2", plan)[0]
    got = flags(emit("sglang", plan)[0])
    assert (got["--speculative-num-steps"], got["--speculative-num-draft-tokens"]) == ("2", "3")


def test_pipeline_partition_only_where_it_is_uneven():
    assert (
        emit("vllm", request(tp=4, pp=2, pp_layers=(31, 30)))[0]
        .splitlines()[1]
        .startswith("VLLM_PP_LAYER_PARTITION=31,30 vllm serve")
    )
    assert "SGLANG_PP_LAYER_PARTITION=31,30" in emit("sglang", request(tp=4, pp=2, pp_layers=(31, 30)))[0]
    assert "PARTITION" not in emit("vllm", request(tp=4, pp=2, pp_layers=(30, 30)))[0]


NODES = [
    ("vllm", {"tp": 8}, 1),
    ("vllm", {"tp": 8, "pp": 2}, 2),
    ("vllm", {"dp": 16, "ep": 16}, 2),
    ("vllm", {"tp": 4, "dp": 3}, 2),  # one node holds two ranks of 4 chips, the other one
    ("vllm", {"tp": 16, "dp": 2}, 4),
    ("vllm@0.11.0", {"tp": 8, "pp": 2}, 2),
    ("vllm@0.9.2", {"dp": 32, "ep": 32}, 4),
    ("sglang", {"dp": 16, "ep": 16}, 2),
    ("sglang", {"tp": 8, "pp": 4}, 4),
    ("sglang@0.5.5", {"tp": 4, "dp": 4, "ep": 4}, 2),
    ("sglang", {"tp": 6, "pp": 2, "chips_per_node": 5}, 4),  # 3 nodes would cut a stage
    ("vllm", {"tp": 4, "pp": 3}, 3),  # 2 nodes of 6 would cut a tensor-parallel group
]


@pytest.mark.parametrize(("engine", "degrees", "nodes"), NODES)
def test_one_text_per_node(engine, degrees, nodes):
    texts = emit(engine, request(**degrees))
    assert len(texts) == nodes
    for number, text in enumerate(texts, 1):
        assert (f"node {number} of {nodes}" in text) == (nodes > 1)
        assert ("HEAD_ADDR: " in text) == (nodes > 1)


def test_attention_dp_ranks_are_dealt_to_nodes():
    first, second = emit("vllm", request(tp=4, dp=3))
    assert flags(first)["--data-parallel-size-local"] == "2" and "--headless" not in first
    assert flags(second)["--data-parallel-size-local"] == "1"
    assert flags(second)["--data-parallel-start-rank"] == "2" and "--headless" in second


def test_ray_starts_old_workers():
    head, worker = emit("vllm@0.11.0", request(tp=8, pp=2))
    assert "ray start --head --port=6379\n" in head and flags(head)["--distributed-executor-backend"] == "ray"
    assert worker.splitlines()[-1] == "ray start --block --address=$HEAD_ADDR:6379"
    new_head, new_worker = emit("vllm@0.15.1", request(tp=8, pp=2))
    assert flags(new_head)["--node-rank"] == "0" and flags(new_worker)["--node-rank"] == "1"
    assert "ray" not in new_head


def test_decode_context_parallelism():
    plan = request(tp=8, dcp=8, kv_layout="sequence_sharded")
    assert flags(emit("vllm", plan)[0])["--decode-context-parallel-size"] == "8"
    got = flags(emit("sglang", plan)[0])
    assert got["--dcp-size"] == "8" and got["--attention-backend"] == "flashmla"  # fa3 has none


def test_prefill_context_parallelism_divides_tp():
    got = flags(emit("vllm", request(tp=8, cp=4))[0])
    assert (got["--tensor-parallel-size"], got["--prefill-context-parallel-size"]) == ("2", "4")
    got = flags(emit("sglang", request(tp=8, cp=8, ep=8))[0])
    assert (got["--tp-size"], got["--attn-cp-size"], got["--moe-a2a-backend"]) == ("8", "8", "deepep")


def test_two_batch_overlap_brings_an_all_to_all():
    plan = request(dp=8, ep=8, two_batch_overlap=1)
    new = emit("vllm", plan)[0]
    assert flags(new)["--all2all-backend"] == "deepep_high_throughput" and "turns CUDA graphs off" in new
    small = emit("vllm", request(dp=8, ep=8, two_batch_overlap=1, prefill_chunk=256))[0]
    assert flags(small)["--all2all-backend"] == "deepep_low_latency"
    assert "VLLM_ALL2ALL_BACKEND=deepep_low_latency" in emit("vllm@0.11.0", plan)[0]
    got = flags(emit("sglang", plan)[0])
    assert got["--deepep-mode"] == "auto" and "--enable-two-batch-overlap" in got


def test_low_latency_dispatch_is_sized_for_the_batch():
    plan = request(dp=8, ep=8, batch=100, mtp=1, all_to_all="low_latency")
    assert "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=256" in emit("sglang", plan)[0]
    assert "DISPATCH" not in emit("sglang", request(dp=8, ep=8, batch=100, all_to_all="low_latency"))[0]
    with pytest.raises(MlaplanError, match=r"1200 tokens a rank and step, SGLang 0\.5\.23 dispatches at most 1024"):
        emit("sglang", request(dp=8, ep=8, batch=400, mtp=2, all_to_all="low_latency"))


def test_a_backend_is_named_only_where_the_engine_would_take_another():
    assert "attention-backend" not in emit("sglang", request(tp=8))[0]
    assert flags(emit("sglang", request(tp=8, kv_dtype="fp8"))[0])["--attention-backend"] == "flashmla"
    assert "attention-backend" not in emit("vllm", request(tp=8, kv_dtype="fp8"))[0]
    old = request(tp=8, chip_class="nvidia-blackwell", block_size=64)
    assert "VLLM_ATTENTION_BACKEND=FLASHINFER_MLA" in emit("vllm@0.11.0", old)[0]


def test_aiter_is_turned_on():
    amd = request(tp=8, chip_class="amd-cdna3", block_size=64)
    assert "VLLM_ROCM_USE_AITER=1 vllm serve" in emit("vllm", amd)[0]
    assert "SGLANG_USE_AITER=1 python3" in emit("sglang", amd)[0]


def test_large_chunks_lift_the_prefill_batch_of_sglang():
    assert "--max-prefill-tokens 32768" in emit("sglang", request(tp=8, prefill_chunk=32768))[0]
    assert "max-prefill-tokens" not in emit("sglang", request(tp=8, prefill_chunk=16384))[0]


def test_large_batches_keep_their_graphs():
    assert flags(emit("vllm", request(tp=8, batch=600))[0])["--max-cudagraph-capture-size"] == "600"
    assert flags(emit("vllm@0.11.0", request(tp=8, batch=600))[0])["--cuda-graph-sizes"] == "600"
    assert flags(emit("sglang", request(tp=8, batch=600))[0])["--cuda-graph-max-bs-decode"] == "600"
    assert "graph" not in emit("vllm", request(tp=8, batch=512))[0]


SPARSE = [
    ("vllm@0.11.0", "fp8_ds_mla", "fp8"),
    ("vllm@0.11.0", "bf16", "bfloat16"),
    ("vllm@0.15.1", "fp8_ds_mla", "fp8_ds_mla"),
    ("vllm@0.33.0", "bf16", "bfloat16"),
    ("sglang@0.5.23", "fp8_ds_mla", "fp8_e4m3"),
    ("sglang@0.5.23", "bf16", "bf16"),
]


@pytest.mark.parametrize(("engine", "dtype", "word"), SPARSE)
def test_the_cache_dtype_of_a_sparse_model_is_always_said(engine, dtype, word):
    got = flags(emit(engine, request(tp=8, attention="mla_sparse", kv_dtype=dtype))[0])
    assert got["--kv-cache-dtype"] == word


def test_a_converted_checkpoint_is_a_named_placeholder():
    text = emit("vllm", request(tp=8, chip_class="nvidia-ampere", weight_dtype="int8", weight_conversion=True))[0]
    assert "# MODEL_PATH: a copy of deepseek-ai/DeepSeek-V3 converted to int8 weights" in text
    assert "vllm serve $MODEL_PATH" in text and "--served-model-name deepseek-ai/DeepSeek-V3" in text


def test_copies_are_noted():
    assert "# 4 copies of this, up to 2 on a node" in emit("vllm", request(tp=4, replicas=4))[0]
    assert "# 2 copies of this, each on its own nodes" in emit("sglang", request(tp=8, replicas=2))[0]


REFUSED = [
    ("vllm", {"tp": 16, "ep": 4}, "ep=4 of 16 ranks: vLLM 0.33.0 has EP over all TP x DP ranks or none"),
    ("vllm", {"kv_layout": "latent_sharded"}, "kv_layout=latent_sharded: vLLM 0.33.0 has replicated and"),
    ("vllm", {"chip_class": "ascend"}, "chip: vLLM 0.33.0 does not run on ascend chips; vllm-ascend does"),
    ("sglang", {"chip_class": "sophgo"}, "chip: SGLang 0.5.23 does not run on sophgo chips"),
    ("vllm@0.9.2", {"tp": 8, "dcp": 8, "kv_layout": "sequence_sharded"}, "has no decode context parallelism"),
    (
        "vllm@0.11.0",
        {"tp": 8, "dcp": 8, "kv_layout": "sequence_sharded", "mtp": 1},
        "dcp=8 with mtp=1: vLLM 0.11.0 has one or the other",
    ),
    (
        "vllm@0.11.0",
        {"tp": 8, "dcp": 8, "kv_layout": "sequence_sharded", "kv_dtype": "fp8"},
        "dcp=8: vLLM 0.11.0 has no backend for it with blocks of 64 in fp8",
    ),
    (
        "vllm@0.26.0",
        {"tp": 8, "dcp": 8, "kv_layout": "sequence_sharded", "attention": "mla_sparse"},
        "dcp=8: vLLM 0.26.0 has no backend",
    ),
    ("vllm", {"tp": 8, "kv_dtype": "fp8", "block_size": 8}, "block_size=8: vLLM 0.33.0 has blocks of 16"),
    ("vllm@0.11.0", {"kv_dtype": "fp8", "block_size": 128}, "block_size=128: vLLM 0.11.0 has blocks of 64"),
    ("vllm", {"dp": 8, "ep": 8, "two_batch_overlap": 1, "mtp": 1}, "two_batch_overlap: not with MTP"),
    ("vllm", {"tp": 8, "two_batch_overlap": 1}, "two_batch_overlap: not without attention DP"),
    ("vllm@0.9.2", {"dp": 8, "ep": 8, "two_batch_overlap": 1}, "two_batch_overlap: vLLM 0.9.2 has none"),
    ("sglang", {"tp": 4, "pp": 2, "mtp": 1}, "mtp=1 with pp=2: SGLang 0.5.23 does not serve drafts"),
    (
        "sglang@0.5.5",
        {"tp": 8, "attention": "mla_sparse"},
        "tp=8: SGLang 0.5.5 runs sparse attention on whole heads",
    ),
    ("sglang", {"prefill_chunk": 100}, "prefill_chunk=100: SGLang 0.5.23 wants a multiple of block_size=64"),
    ("vllm", {"batch": 512, "prefill_chunk": 256}, "prefill_chunk=256 below batch=512"),
    ("vllm@0.26.0", {"tp": 2, "cp": 2, "dp": 2, "ep": 4}, "cp=2 with dp=2: vLLM 0.26.0 has one or the other"),
    ("vllm@0.15.1", {"tp": 2, "cp": 2}, "cp=2: vLLM 0.15.1 has no prefill context parallelism for mla"),
    ("sglang", {"tp": 8, "cp": 4, "ep": 8}, "cp=4 of tp=8: SGLang 0.5.23 spans all ranks"),
    ("vllm", {"moe": False, "dp": 2, "ep": 2}, "ep=2: the model has no experts"),
    (
        "vllm@0.11.0",
        {"tp": 16, "dp": 2},
        "dp=2: in vLLM 0.11.0 an attention-DP rank of 16 chips cannot span nodes",
    ),
    (
        "sglang",
        {"tp": 7, "chips_per_node": 4},
        "chips_per_node=4: SGLang 0.5.23 cannot lay 1 x 1 x 7 (dp, pp, tp) ranks onto 2 nodes",
    ),
    ("vllm", {"tp": 8, "devices": 16}, "devices=16: replicas x pp x dp x tp is 1 x pp 1 x dp 1 x tp 8 = 8"),
    ("vllm", {"dp": 2, "ep": 2, "all_to_all": "auto"}, "all_to_all=auto: vLLM 0.33.0 has one all-to-all"),
    (
        "sglang",
        {"tp": 8, "ep": 4, "all_to_all": "auto"},
        "all_to_all=auto: SGLang 0.5.23 uses DeepEP with EP over all",
    ),
]


@pytest.mark.parametrize(("engine", "given", "words"), REFUSED)
def test_what_cannot_be_expressed_is_named(engine, given, words):
    with pytest.raises(MlaplanError) as told:
        emit(engine, request(**given))
    assert words in str(told.value)


def test_all_parts_are_named_at_once():
    with pytest.raises(MlaplanError) as told:
        emit("vllm", request(tp=8, ep=4, kv_layout="latent_sharded", kv_dtype="int8"))
    assert [line.split("=")[0] for line in str(told.value).splitlines()] == ["ep", "kv_layout", "kv_dtype"]


def test_generic_cannot_be_launched():
    with pytest.raises(UnknownName, match="unknown engine to launch 'generic'"):
        emit("generic", request())


def test_request_of_a_strategy():
    strategy = Strategy(tp=8, pp=2, kv_dtype="fp8", batch=16)
    made = EmitRequest.from_strategy(strategy, model="m", chip_class="nvidia-hopper", max_model_len=4096)
    assert (made.tp, made.pp, made.kv_dtype, made.batch, made.world) == (8, 2, "fp8", 16, 16)


def test_bench_command():
    plan = request(tp=8)
    vllm = bench_command("vllm", plan, isl=4096, osl=1024, concurrency=32, prefix_tokens=1024)
    assert vllm == (
        "vllm bench serve --port 8000 --dataset-name random --ignore-eos "
        "--random-input-len 3072 --random-output-len 1024 --random-range-ratio 0 --random-prefix-len 1024 "
        "--model deepseek-ai/DeepSeek-V3 --max-concurrency 32 --num-prompts 320"
    )
    sglang = bench_command("sglang", plan, isl=4096, osl=1024, concurrency=32)
    assert sglang.startswith("python3 -m sglang.bench_serving --backend sglang")
    assert "--random-range-ratio 1 " in sglang
    shared = bench_command("sglang", plan, isl=4096, osl=1024, concurrency=32, prefix_tokens=1024)
    assert "--gsp-system-prompt-len 1024 --gsp-question-len 3072 --gsp-output-len 1024" in shared


def test_parse_reads_what_people_write():
    line = "VLLM_X=1 python3 -m vllm.entrypoints.openai.api_server --model m -tp 8 --data_parallel_size 2 -ep"
    got = parse("vllm", line)
    assert (got["model"], got["tp"], got["dp"], got["ep"], got["env"]) == ("m", 8, 2, 16, {"VLLM_X": "1"})
    assert got["batch"] is None and got["kv_dtype"] == "bf16"
    got = parse("sglang@0.5.5", ["python3", "-m", "sglang.launch_server", "--model", "m", "--tp", "8", "--dp", "2"])
    assert (got["tp"], got["dp"], got["replicas"]) == (8, 1, 2)
    got = parse("sglang", "sglang serve --model-path m --tp 16 --dp 8 --enable-dp-attention --moe-a2a-backend deepep")
    assert (got["tp"], got["dp"], got["ep"], got["all_to_all"]) == (2, 8, 16, "auto")


def test_parse_refuses_what_the_engine_would():
    with pytest.raises(MlaplanError, match="did you mean '--block-size'"):
        parse("vllm", "vllm serve m --blok-size 16")
    with pytest.raises(MlaplanError, match="no vllm command found: expected 'vllm serve'"):
        parse("vllm", "echo a\necho b")
    with pytest.raises(MlaplanError, match="cannot read the command line"):
        parse("vllm", "vllm serve 'm")


ASCEND = {**V3, "chip_class": "ascend", "block_size": 128, "weight_dtype": "int8"}


def test_vllm_ascend_on_one_node():
    (text,) = emit("vllm-ascend", EmitRequest(**ASCEND, tp=16, chips_per_node=16, weight_conversion=True, mtp=1))
    assert text == (
        "# vLLM-Ascend 0.23.0\n"
        "# MODEL_PATH: a copy of deepseek-ai/DeepSeek-V3 converted to int8 weights\n"
        "vllm serve $MODEL_PATH \\\n"
        "    --served-model-name deepseek-ai/DeepSeek-V3 \\\n"
        "    --tensor-parallel-size 16 \\\n"
        "    --quantization ascend \\\n"
        "    --block-size 128 \\\n"
        "    --max-model-len 5376 \\\n"
        "    --max-num-seqs 64 \\\n"
        "    --max-num-batched-tokens 8192 \\\n"
        '    --speculative-config \'{"method": "mtp", "num_speculative_tokens": 1}\' \\\n'
        '    --compilation-config \'{"cudagraph_mode": "FULL_DECODE_ONLY"}\''
    )


def test_the_flag_for_quantised_weights_goes_with_those_of_modelslim():
    own = emit("vllm-ascend", EmitRequest(**ASCEND, tp=8))[0]  # the checkpoint says itself how it is quantised
    bf16 = emit("vllm-ascend", EmitRequest(**{**ASCEND, "weight_dtype": "bf16"}, tp=8, weight_conversion=True))[0]
    assert "--quantization" not in own + bf16


def test_vllm_ascend_has_no_flag_for_the_all_to_all():
    plan = EmitRequest(**ASCEND, dp=8, ep=8, all_to_all="low_latency")
    with pytest.raises(MlaplanError, match=r"all_to_all=low_latency: vLLM-Ascend 0\.23\.0 picks one by the tokens"):
        emit("vllm-ascend", plan)


@pytest.mark.parametrize("version", ["0.11.0", "0.23.0"])
def test_vllm_ascend_names_the_network_of_each_node(version):
    texts = emit(f"vllm-ascend@{version}", EmitRequest(**ASCEND, tp=8, pp=2))
    assert len(texts) == 2 and all("HCCL_IF_IP" in text for text in texts)
    assert ("ray start" in texts[1]) == (version == "0.11.0")
