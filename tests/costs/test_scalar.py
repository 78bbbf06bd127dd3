"""The vectorised pricing against plain Python: the same strategies, the same columns, to rounding."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar.cases import WORKLOADS, examples, question, strategies
from scalar.price import price as scalar_price

from mlaplan import plan
from mlaplan.strategy import to_table

PAIRS = [
    ("deepseek-v3", "h200-sxm", "generic", 64),
    ("deepseek-v3", "h200-sxm", "sglang", 64),
    # calibrations: between them they have every optional term of a kernel, and knees
    ("deepseek-v3", "h200-sxm:sglang", "sglang", 64),
    ("deepseek-v3", "h100-sxm:trtllm", "generic", 64),
    ("deepseek-v3", "h200-sxm:trtllm", "trtllm", 64),
    ("kimi-k2.5", "h100-sxm:vllm", "vllm", 64),
    ("deepseek-v3.2", "h800-sxm", "generic", 64),
    ("deepseek-v3.2", "h800-sxm", "vllm", 64),
    ("glm-5.2", "h20", "generic", 64),
    ("longcat-flash", "b200-sxm", "vllm", 64),
    ("llama-3-70b", "ascend-910b3", "generic", 64),
    # a dispatch by the engine's own rule
    ("deepseek-v3", "ascend-910b3", "vllm_ascend", 64),
    ("deepseek-v3", "ascend-910c-die", "vllm_ascend", 64),
    ("deepseek-v2-lite", "mi300x", "generic", 32),
    ("kimi-k2.5", "a100-sxm-80g", "generic", 64),
    ("deepseek-v3", "ascend-910a", "generic", 64),
    # no network between nodes
    ("deepseek-v3", "sc11", "generic", 8),
    ("deepseek-v2-lite", "k3", "generic", 8),
]


def conditioned(values, work):
    """With a given rate, the load for the wait: near the capacity w = t a / 2 (1 - a) multiplies every rounding by
    1 / (1 - a), while w / (t + w) does not. Differences are rounded as what they are differences of."""
    of = {"prefill_late_s": values["prefill_pass_s"], "prefill_share": 1.0}
    of |= dict.fromkeys(("decode_core_s", "decode_gain_s"), values["decode_s"])
    values = values | {name: values[name] + whole for name, whole in of.items()}
    if work.rate is None:
        return values
    t = values["prefill_s"]
    return values | {name: values[name] / (t + values[name]) for name in ("queue_s", "ttft_s")}


def assert_same(got: float, expected: float, what: str) -> None:
    if math.isnan(expected) or math.isinf(expected):
        assert got == expected or (math.isnan(got) and math.isnan(expected)), what
    elif what.startswith("kv_tokens"):  # a floor: a rounding error can move it by one
        assert abs(got - expected) <= 1, f"{what}: {got} and {expected}"
    else:
        assert abs(got - expected) <= 1e-12 * abs(expected), f"{what}: {got} and {expected}"


@pytest.mark.parametrize("names", PAIRS, ids=lambda names: "-".join(map(str, names[:3])))
@settings(max_examples=examples(8), deadline=None)
@given(data=st.data())
def test_a_table_of_random_strategies_costs_what_plain_python_says(names, data):
    *specs, chips = names
    q = question(*specs, data.draw(WORKLOADS))
    rows = data.draw(st.lists(strategies(q.setting.model, q.setting.chip, chips), min_size=1, max_size=6))
    columns = plan.price(q, to_table(rows), detail=True)
    for i, strategy in enumerate(rows):
        expected = scalar_price(q, strategy)
        assert set(expected) == set(columns)
        got = conditioned({name: float(column[i]) for name, column in columns.items()}, q.workload)
        for name, value in conditioned(expected, q.workload).items():
            assert_same(got[name], value, f"{name} of {strategy}")


def test_redundant_experts_and_the_users_own_memory_and_imbalance_enter_alike():
    q = question(
        "deepseek-v3", "h200-sxm", redundant_experts=32, imbalance=1.4, memory_fraction=0.85, reserve_bytes=3e9
    )
    strategy = strategies_of_note()[0]
    columns = plan.price(q, to_table([strategy]), 1.7, detail=True)
    got = conditioned({name: float(column[0]) for name, column in columns.items()}, q.workload)
    for name, value in conditioned(scalar_price(q, strategy, 1.7), q.workload).items():
        assert_same(got[name], value, name)


@pytest.mark.parametrize("chip", ["ascend-910c-die", "h800-sxm"])
@settings(max_examples=examples(6), deadline=None)
@given(data=st.data())
def test_shared_experts_on_ranks_of_their_own_cost_what_plain_python_says(chip, data):
    q = question("deepseek-v3", chip, redundant_experts=8, shared_ranks=8)
    rows = data.draw(st.lists(strategies(q.setting.model, q.setting.chip, 64), min_size=1, max_size=6))
    columns = plan.price(q, to_table(rows), detail=True)
    for i, strategy in enumerate(rows):
        got = conditioned({name: float(column[i]) for name, column in columns.items()}, q.workload)
        for name, value in conditioned(scalar_price(q, strategy), q.workload).items():
            assert_same(got[name], value, f"{name} of {strategy}")


@pytest.mark.parametrize(
    ("model", "chip", "dtype"), [("deepseek-v3", "h200-sxm:sglang", "bf16"), ("glm-5.2", "b200-sxm", "fp8")]
)
@settings(max_examples=examples(6), deadline=None)
@given(data=st.data())
def test_an_mtp_layer_in_a_dtype_of_its_own_costs_what_plain_python_says(model, chip, dtype, data):
    q = question(model, chip)
    own = q.setting.model.model_copy(update={"weights": q.setting.model.weights.model_copy(update={"mtp": dtype})})
    q = replace(q, setting=replace(q.setting, model=own))
    rows = data.draw(st.lists(strategies(own, q.setting.chip, 64), min_size=1, max_size=6))
    rows = [replace(row, mtp=max(row.mtp, 1)) for row in rows]
    columns = plan.price(q, to_table(rows), detail=True)
    for i, strategy in enumerate(rows):
        got = conditioned({name: float(column[i]) for name, column in columns.items()}, q.workload)
        for name, value in conditioned(scalar_price(q, strategy), q.workload).items():
            assert_same(got[name], value, f"{name} of {strategy}")


@pytest.mark.parametrize(
    ("model", "engine", "pattern", "interleave"),
    [
        ("kimi-k2.5", "vllm", "a2a", 64),
        ("deepseek-v3.2", "generic", "a2a", 7),
        ("llama-3-70b", "vllm", "a2a", 16),
        ("deepseek-v3", "sglang", "a2a", 1),
    ],
)
@settings(max_examples=examples(4), deadline=None)
@given(data=st.data())
def test_every_merge_of_decode_context_parallelism_costs_what_plain_python_says(
    model, engine, pattern, interleave, data
):
    q = question(model, "h200-sxm", engine, dcp_merge=pattern, dcp_interleave=interleave)
    rows = data.draw(st.lists(strategies(q.setting.model, q.setting.chip), min_size=1, max_size=4))
    rows = [replace(row, dcp=row.tp, kv_layout="sequence_sharded") for row in rows]
    columns = plan.price(q, to_table(rows), detail=True)
    for i, strategy in enumerate(rows):
        got = conditioned({name: float(column[i]) for name, column in columns.items()}, q.workload)
        for name, value in conditioned(scalar_price(q, strategy), q.workload).items():
            assert_same(got[name], value, f"{name} of {strategy}")


def strategies_of_note():
    from mlaplan.strategy import Strategy

    return [Strategy(tp=2, dp=16, ep=32, batch=64, mtp=2, weight_dtype="fp8", two_batch_overlap=1)]
