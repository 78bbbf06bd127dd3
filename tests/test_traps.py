"""Mistakes that are easy to make with these numbers, one test each, at the level of formulas and plans.

Those that concern a figure of a chip alone (dense against sparse peaks, one direction against both, clocks, names)
are in specs/test_hardware_data.py.
"""

import dataclasses

import pytest
from scalar.cases import chip, model, question

from mlaplan import plan, units
from mlaplan.costs import capacity, kv, memory, mla
from mlaplan.costs.collectives import Group, collective_s, volume_bytes
from mlaplan.costs.engine import CoreMode
from mlaplan.costs.machine import Machine
from mlaplan.costs.pipeline import layer_kinds
from mlaplan.costs.precision import weight_targets
from mlaplan.engines.load import load_profile
from mlaplan.explain import explain
from mlaplan.strategy import Strategy, to_table
from mlaplan.workload import Overrides, Workload

WORK = Workload(4096, 1024, concurrency=64)


def machine(model_name, chip_name, kv_dtype="bf16", engine="generic"):
    setting = question(model_name, chip_name, engine).setting
    return Machine(setting.chip, setting.model, setting.engine, "fp8", kv_dtype)


def core_s(m, heads, batch=128, context=4096):
    a = m.model.attention["mla"]
    ops = mla.decode_ops(m, a, mla.DecodeShape(batch, 1, context, a.heads // heads))
    return sum(float(op.time_s) for op in ops if op.name in ("attention_core", "kv_cache_cast"))


def test_devices_are_chips_not_cards():
    """Four SC11 cards are eight chips; tensor parallelism over all of them leaves an eighth of the weights on each."""
    q = question("deepseek-v3", "sc11", work=Workload(128, 1024, concurrency=128))
    assert q.setting.chip.scale_up.chips_per_node == 8
    one = Strategy(tp=8, ep=8, weight_dtype="fp8", batch=128)
    assert one.devices == 8
    found = explain(q, one).memory
    assert found.items["weight_bytes"] == pytest.approx(671e9 / 8, rel=0.03)
    assert found.total_bytes < found.usable_bytes


def test_gb_is_not_gib():
    """22 GB over 2.5 MB is 8,392, 8,800 or 9,011, by what is meant."""
    gb, gib = units.parse("22 GB", "bytes"), units.parse("22 GiB", "bytes")
    mb, mib = units.parse("2.5 MB", "bytes"), units.parse("2.5 MiB", "bytes")
    assert mib == 2 * 80 * 64 * 128 * 2
    assert [int(gb / mib), int(gb / mb), int(gib / mib)] == [8392, 8800, 9011]


def test_capacity_is_what_the_driver_reports():
    """80 GB is 81,559 MiB on an H100: a plan that takes 80e9 B loses 5.5 GB a chip."""
    q = question("deepseek-v3", "h100-sxm", memory_fraction=0.92)
    assert capacity.usable_bytes(q.setting, q.budget) == pytest.approx(0.92 * 81559 * 2**20)


def test_memory_and_compute_scale_apart():
    """A clock that sustains 0.8 of its burst takes 0.8 of the peak, and none of the bandwidth."""
    q = question("deepseek-v3", "sc11", work=Workload(128, 1024, concurrency=128))
    sc11 = q.setting.chip
    slower = {d: p.model_copy(update={"value": 0.8 * p.value}) for d, p in sc11.peak.items()}
    throttled = dataclasses.replace(q, setting=dataclasses.replace(
        q.setting, chip=sc11.model_copy(update={"peak": slower})
    ))  # fmt: skip
    one = Strategy(tp=8, ep=8, weight_dtype="fp8", batch=8)
    burst, sustained = (explain(x, one).decode for x in (q, throttled))
    stream = "routed_experts"
    by_name = [{op.name: op for op in phase.ops} for phase in (burst, sustained)]
    assert by_name[0][stream].memory_s == by_name[1][stream].memory_s
    assert by_name[1][stream].compute_s == pytest.approx(by_name[0][stream].compute_s / 0.8)
    assert burst.step_s.value < sustained.step_s.value < burst.step_s.value / 0.8


@pytest.mark.parametrize(
    ("name", "targets"),
    [("ascend-910b3", ["int8", "bf16"]), ("a100-sxm-80g", ["int8", "bf16"]), ("ascend-910a", ["int8", "fp16"])],
)
def test_an_fp8_checkpoint_is_converted_aloud_and_16_bit_doubles_it(name, targets):
    v3 = model("deepseek-v3")
    assert list(weight_targets(chip(name), v3)) == targets
    one = memory.Shards(1, 1, 1, 1, 1)
    sizes = [memory.layer_weight_bytes(v3, layer_kinds(v3)[1], one, t) for t in ("fp8", *targets)]
    assert sizes[1] / sizes[0] == pytest.approx(1.0, rel=1e-3)
    assert sizes[2] / sizes[0] == pytest.approx(2.0, rel=0.01)
    q = question("deepseek-v3", name)
    assert "no fp8" in plan.weights_note(q, Strategy(weight_dtype=targets[0]))
    assert targets[0] in plan.weights_note(q, Strategy(weight_dtype=targets[0]))


def test_an_all_reduce_is_no_reduce_scatter_and_all_gather():
    """SC11's library has no reduce-scatter: what would use one pays an all-reduce."""
    sc11 = chip("sc11")
    parts = sum(float(collective_s(sc11, op, 1e6, Group(8))) for op in ("reduce_scatter", "all_gather"))
    whole = float(collective_s(sc11, "all_reduce", 1e6, Group(8)))
    assert float(collective_s(sc11, "reduce_scatter", 1e6, Group(8))) == whole
    assert parts > whole


def test_a_pair_of_a_mesh_is_slower_than_the_mesh():
    mi300x = chip("mi300x")
    pair, all_of_it = (float(collective_s(mi300x, "all_reduce", 64e6, Group(n))) for n in (2, 8))
    assert pair > 2 * all_of_it
    # though eight send more
    assert volume_bytes("all_reduce", 64e6, 2) < volume_bytes("all_reduce", 64e6, 8)


def test_alpha_depends_on_operation_and_mode():
    """A small all-reduce in an engine's own kernel, in NCCL, and an all-gather start in different times."""
    m = machine("deepseek-v3", "h200-sxm", engine="vllm")
    own = float(m.collective("x", "all_reduce", 1e3, Group(8)).time_s)
    nccl = float(collective_s(m.chip, "all_reduce", 1e3, Group(8)))
    gather = float(collective_s(m.chip, "all_gather", 1e3, Group(8)))
    assert own < gather < nccl
    assert nccl - own > 5e-6


def test_an_fp8_cache_may_be_slower():
    """SGLang's own choice on Hopper widens the whole pool each step: half the bytes, several times the time."""
    profile = load_profile("sglang")
    assert profile.kernel_choice == "chip"
    own = next(k for k in profile.kernels_for("nvidia-hopper", "mla") if "fp8" in k.kv_dtypes)
    assert (own.name, own.kv_compute) == ("fa3", "cast_pool")
    casts = CoreMode("cast_pool", float(own.cast.bytes_per_element), float(own.cast.bandwidth))
    plain, fp8 = (machine("deepseek-v3", "h100-sxm", d, "sglang") for d in ("bf16", "fp8"))
    widened = fp8.engine._replace(core_modes={"fp8": casts})
    assert core_s(Machine(fp8.chip, fp8.model, widened, "fp8", "fp8"), 16) > 2 * core_s(plain, 16)
    # so plans take a backend that multiplies fp8 as it is, and that gains
    assert fp8.engine.core_mode("fp8").compute == "native"
    assert core_s(fp8, 16) < core_s(plain, 16)


def test_tensor_parallel_does_not_divide_the_latent():
    q = question("deepseek-v3", "h200-sxm", work=WORK)
    rows = [Strategy(tp=tp, weight_dtype="bf16", batch=8) for tp in (1, 8, 16)]
    found = plan.price(q, to_table(rows), detail=True)["kv_bytes_per_token"]
    assert found.tolist() == [70_272] * 3


def test_fewer_heads_than_a_tile_cost_the_tile():
    """16 heads take as long as 64 on the H20, which computes; on the H100, which streams, that is free."""
    for name in ("h20", "h100-sxm"):
        m = machine("deepseek-v3", name)
        assert core_s(m, 16) == pytest.approx(core_s(m, 64), rel=0.1)
    h20 = machine("deepseek-v3", "h20")
    assert core_s(h20, 128) > 1.7 * core_s(h20, 64)
    assert core_s(machine("deepseek-v3", "h100-sxm"), 128) < 1.4 * core_s(machine("deepseek-v3", "h100-sxm"), 64)


def test_dcp_is_decode_context_parallelism_alone():
    """Query chunking (an article's other 'DCP') has names of its own."""
    names = {f.name for f in dataclasses.fields(Strategy)}
    assert "dcp" in names
    assert not names & {"q_chunk", "recv_slice", "pipeline_depth"}
    sharded = Strategy(tp=8, dcp=8, kv_layout="sequence_sharded")
    q = question("deepseek-v3", "h200-sxm", work=WORK)
    per_token = plan.price(q, to_table([sharded]), detail=True)["kv_bytes_per_token"]
    assert per_token[0] == 70_272 / 8


def test_zero_is_a_value_not_a_default():
    """A reserve of nothing, no drafts, no cached prefix, and an imbalance of one."""
    free = question("deepseek-v3", "h200-sxm", work=WORK, reserve_bytes=0.0)
    usual = question("deepseek-v3", "h200-sxm", work=WORK)
    one = Strategy(tp=8, weight_dtype="fp8", batch=8)
    assert free.budget.reserve_bytes == 0.0
    assert explain(free, one).memory.kv_tokens > explain(usual, one).memory.kv_tokens
    assert "graph_bytes" not in explain(free, one).memory.items
    assert explain(usual, one).served.tokens_per_step.value == 1.0
    assert Workload(100, 10, prefix_tokens=0).new_tokens == 100
    even = question("deepseek-v3", "h200-sxm", work=WORK, imbalance=1.0)
    assert float(even.setting.engine.imbalance) == 1.0
    assert Overrides(memory_fraction=None).memory_fraction is None


def test_per_layer_is_not_per_model():
    v3 = model("deepseek-v3")
    assert kv.kv_bytes_per_token_layer(v3)["bf16"] == 1152
    assert kv.kv_bytes_per_token(v3)["bf16"] == 61 * 1152
    # 28 layers of two attentions
    assert kv.kv_bytes_per_token(model("longcat-flash"))["bf16"] == 56 * 1152


def test_microseconds_milliseconds_seconds():
    assert units.parse("17.4 us", "s") == pytest.approx(17.4e-6)
    assert units.parse("60ms", "s") == pytest.approx(0.06)
    # a step of V3 on 8 H200 takes milliseconds, its operators microseconds
    one = Strategy(tp=8, ep=8, weight_dtype="fp8", batch=8)
    found = explain(question("deepseek-v3", "h200-sxm", work=WORK), one).decode
    assert 5e-3 < found.step_s.value < 50e-3
    core = next(op for op in found.ops if op.name == "attention_core")
    assert 10e-6 < core.time_s / 61 < 200e-6


def test_tokens_per_second_say_of_whom_and_never_exceed_requests_over_the_step():
    """180 requests at 42.6 ms a step cannot make 8,420 tok/s without drafts: 4,225 is the bound."""
    assert round(180 / 0.0426) == 4225
    for strategy in (
        Strategy(tp=8, ep=8, weight_dtype="fp8", batch=64),
        Strategy(dp=8, ep=8, weight_dtype="fp8", batch=8),
        Strategy(tp=8, ep=8, weight_dtype="fp8", batch=64, mtp=1),
    ):
        found = explain(question("deepseek-v3", "h200-sxm", work=WORK), strategy)
        system = found.served.tok_s_chip.value * strategy.devices
        assert system <= 64 * found.served.tokens_per_step.value / found.decode.step_s.value
        # those in flight are in prefill part of the time
        assert system <= 64 * found.served.tok_s_user.value * 1.01
        assert found.served.tok_s_user.value == pytest.approx(1 / found.served.tpot_s.value)
