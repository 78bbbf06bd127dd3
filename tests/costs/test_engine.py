"""What the cost model takes from an engine's profile."""

import numpy as np
import pytest
from scalar.cases import chip, question
from scalar.cases import model as shipped

from mlaplan.costs.engine import CoreMode, exactly, from_profile
from mlaplan.engines.load import load_profile
from mlaplan.specs.lookup import chip_names

from . import round as r

GIB = 2**30


def costs(engine, chip_name="h200-sxm", attention="mla"):
    return from_profile(load_profile(engine), chip(chip_name), attention)


def test_a_default_share_of_the_memory():
    assert costs("vllm").memory_fraction == pytest.approx(float(load_profile("vllm").memory.fraction))


def test_a_share_that_follows_from_what_is_left_free():
    # below 60 GiB: 0.5 GiB, 1.5 MiB x 2048 tokens, 128 MiB for each of 8 ranks: 4.5 GiB
    b4 = chip("ascend-910b4")
    assert float(b4.memory.capacity) < 60 * GIB
    kept = 4.5 * GIB
    assert costs("sglang", "ascend-910b4").memory_fraction == pytest.approx(1 - kept / float(b4.memory.capacity))
    # above it for a chunk of 8192 tokens and graphs of 512 sequences: 0.5 + 12 + 1 + 1 GiB, in any case 10
    h200 = float(chip("h200-sxm").memory.capacity)
    assert costs("sglang").memory_fraction == pytest.approx(1 - 14.5 * GIB / h200)


@pytest.mark.parametrize("name", [n for n, _ in chip_names()])
@pytest.mark.parametrize("engine", ["generic", "vllm", "sglang"])
def test_every_engine_leaves_most_of_every_chip(engine, name):
    assert 0.75 < costs(engine, name).memory_fraction < 1


def test_small_messages_have_a_kernel_of_their_own():
    vllm = costs("vllm")
    assert vllm.custom_all_reduce_bytes(8) == 64 * 2**20
    assert vllm.custom_all_reduce_bytes(16) == 0
    assert vllm.custom_all_reduce_bytes(np.array([1, 2, 4, 16])).tolist() == [0, 64 * 2**20, 32 * 2**20, 0]


def test_dispatch_pays_only_where_one_backend_serves_both_phases():
    assert costs("generic").dispatch
    assert costs("sglang").dispatch
    for engine in ("generic", "vllm", "sglang"):
        assert costs(engine).gather or costs(engine).dispatch


def test_how_a_cache_dtype_is_read():
    vllm = costs("vllm")
    assert vllm.core_mode("bf16") == CoreMode("native")
    # what no backend reads has no entry, and is taken as native
    assert vllm.core_mode("int8") == CoreMode("upcast")  # scales per group, whoever reads them
    assert costs("vllm", attention="mla_sparse").core_mode("fp8_ds_mla").compute == "upcast"


def test_intervals_and_the_users_own():
    generic = costs("generic")
    low, value, high = generic.imbalance.low, generic.imbalance.value, generic.imbalance.high
    assert low < value < high
    assert generic.with_imbalance(1.3).imbalance == exactly(1.3)
    # a profile's factor is that of a balancer, which runs where hot experts are stored several times
    assert not generic.balanced
    assert question("deepseek-v3", "h200-sxm", redundant_experts=8).setting.engine.balanced
    assert question("deepseek-v3", "h200-sxm", imbalance=1.7).setting.engine.balanced
    law = generic.routing_ends()
    assert [(a.rank_spread.value, b.rank_spread.value) for a, b in law[:1]] == [(0.63, 0.98)]
    ends = generic.with_balancer().routing_ends()
    assert [(a.imbalance.value, b.imbalance.value) for a, b in ends[:1]] == [(low, high)]
    assert law[1:] == [(a._replace(balanced=False), b._replace(balanced=False)) for a, b in ends[1:]]
    # the more uneven the experts' loads, the fewer are touched and read
    assert [(a.load_spread.value, b.load_spread.value) for a, b in ends[1:]] == [(0.98, 0.63)]
    assert generic.with_even_experts().routing_ends() == []
    assert float(exactly(2.5)) == 2.5
    assert question("deepseek-v3", "h200-sxm", imbalance=1.7).setting.engine.imbalance == exactly(1.7)


def test_the_workspace_grows_to_its_cap():
    rows = load_profile("vllm").memory.prefill_workspace.rows
    # 8 x the longest sequence, or 4 blocks of each sequence, up to 65,536
    assert rows(1000, 10, 64) == 8000
    assert rows(1000, 100, 64) == 25_600
    assert rows(10**6, 1, 64) == 65_536
    assert rows(np.array([1000, 10**6]), 10, 64).tolist() == [8000, 65_536]


def test_a_model_may_have_more_than_one_kind_of_attention():
    kinds = {a.sparse.indexer is None for a in shipped("glm-5.2").attention.values()}
    assert kinds == {True, False}
    assert r.engine().core_mode("bf16").compute == "native"
