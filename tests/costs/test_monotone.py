"""What must hold whatever the numbers: more work never takes less time, a faster chip never more.

Left out is what is meant to fall. Two-batch overlap: the way of tokens to their experts is chosen by its own time,
before any of it is hidden, so that the overlapped step jumps where the choice changes. Split sequences: their merge
ends when a batch fills the cores. Tiles of a causal prefill: a chunk that fills its tiles wastes less.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scalar.cases import examples, question, strategies

from mlaplan import plan
from mlaplan.costs import phases
from mlaplan.costs.operators import Prefill
from mlaplan.costs.table import Table
from mlaplan.strategy import Strategy, to_table
from mlaplan.workload import Workload

PAIRS = [
    ("deepseek-v3", "h200-sxm", "generic"),
    ("deepseek-v3", "h200-sxm:sglang", "sglang"),
    ("deepseek-r1", "h100-sxm:trtllm", "generic"),
    ("deepseek-v3", "h100-sxm", "vllm"),
    ("deepseek-v3.2", "b200-sxm", "sglang"),
    ("longcat-flash", "h800-sxm", "generic"),
    ("llama-3-70b", "ascend-910b3", "generic"),
    ("deepseek-v2-lite", "mi300x", "generic"),
]
ROUNDING = 1 - 1e-12
WORK = Workload(4096, 1024)


def assert_rises(values):
    values = np.asarray(values)
    assert np.all(values[1:] >= values[:-1] * ROUNDING), values


def plain(q):
    return strategies(q.setting.model, q.setting.chip).map(lambda one: replace(one, two_batch_overlap=0))


def smooth(*names):
    """The question, on a chip whose fits only rise."""
    q = question(*names, work=WORK)
    fits = {
        op: {
            dtype: fit.model_copy(update={"split": 0.0, "tile": None if op == "mla_prefill" else fit.tile})
            for dtype, fit in of_dtype.items()
        }
        for op, of_dtype in q.setting.chip.efficiency.items()
    }
    chip = q.setting.chip.model_copy(update={"efficiency": fits})
    return replace(q, setting=replace(q.setting, chip=chip))


def decode_s(q, rows, context=4608):
    """Decode rounds with any cut that is fastest: the cache need not hold the batch."""
    table = Table(to_table(rows))
    return phases.decode(q.setting, table, context, q.budget, np.zeros(len(rows)))["decode_s"]


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
@settings(max_examples=examples(8), deadline=None)
@given(data=st.data())
def test_a_larger_batch_never_takes_less_time(names, data):
    q = smooth(*names)
    one = data.draw(plain(q))
    batches = sorted(data.draw(st.sets(st.integers(1, 40) | st.integers(1, 3000), min_size=2, max_size=12)))
    assert_rises(decode_s(q, [replace(one, batch=b) for b in batches]))


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
@settings(max_examples=examples(8), deadline=None)
@given(data=st.data())
def test_a_longer_context_never_takes_less_time(names, data):
    q = smooth(*names)
    one = data.draw(plain(q))
    contexts = sorted(data.draw(st.sets(st.integers(1, 200_000), min_size=2, max_size=4)))
    assert_rises([float(decode_s(q, [one], context)[0]) for context in contexts])


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
@settings(max_examples=examples(8), deadline=None)
@given(data=st.data())
def test_more_prefill_tokens_never_take_less_time(names, data):
    q = smooth(*names)
    one = data.draw(plain(q))
    tokens = np.array(sorted(data.draw(st.sets(st.integers(1, 40_000), min_size=2, max_size=10))))
    prompts = Prefill(data.draw(st.integers(1, 20_000)), data.draw(st.sampled_from([0, 5000])))
    n = len(tokens)
    table = Table(to_table([one] * n))
    found = phases.prefill(q.setting, table, tokens, prompts, np.zeros(n, dtype=int))
    assert_rises(found["prefill_s"])
    assert_rises(found["prefill_pass_s"])


def faster_memory(chip):
    bandwidth = chip.memory.bandwidth
    memory = chip.memory.model_copy(update={"bandwidth": bandwidth.model_copy(update={"value": 2 * bandwidth.value})})
    return chip.model_copy(update={"memory": memory})


def faster_links(chip):
    def twice(link):
        if link is None:
            return None
        fits = {
            op: fit.model_copy(update={"bandwidth": tuple(2 * b for b in fit.bandwidth)})
            for op, fit in link.collectives.items()
        }
        value = link.bandwidth.model_copy(update={"value": 2 * link.bandwidth.value})
        return link.model_copy(update={"bandwidth": value, "collectives": fits})

    return chip.model_copy(update={"scale_up": twice(chip.scale_up), "scale_out": twice(chip.scale_out)})


def faster_cores(chip):
    peak = {dtype: p.model_copy(update={"value": 2 * p.value}) for dtype, p in chip.peak.items()}
    return chip.model_copy(update={"peak": peak})


@pytest.mark.parametrize("faster", [faster_memory, faster_links, faster_cores])
@pytest.mark.parametrize("names", PAIRS[:3] + PAIRS[4:5], ids="-".join)
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_a_faster_part_never_hurts(names, faster, data):
    q = smooth(*names)
    rows = data.draw(st.lists(plain(q), min_size=1, max_size=6))
    better = replace(q, setting=replace(q.setting, chip=faster(q.setting.chip)))
    old, new = (plan.price(one, to_table(rows)) for one in (q, better))
    assert np.all(new["decode_s"] <= old["decode_s"] / ROUNDING)
    # the cut into stages is the one that is best for decode: another one may cost prefill what decode gains
    same = new["cut"] == old["cut"]
    for name in ("prefill_pass_s", "tpot_s"):
        assert np.all(new[name][same] <= old[name][same] / ROUNDING), name
    for name in ("tok_s_chip", "requests_per_s"):
        assert np.all(new[name][same] >= old[name][same] * ROUNDING), name


# ---- capacity ----


def kv_tokens(q, **degrees):
    one = Strategy(weight_dtype="fp8", batch=8, **degrees)
    return float(plan.price(q, to_table([one]))["kv_tokens"][0])


@settings(max_examples=examples(15), deadline=None)
@given(
    st.sampled_from(["h200-sxm", "b200-sxm", "mi300x"]), st.sampled_from([2, 4, 8]), st.sampled_from([1, 2, 4]),
    st.booleans(), st.sampled_from(["bf16", "fp8"]), st.sampled_from(["tp", "pp", "dcp"]),
)  # fmt: skip
def test_more_chips_never_hold_fewer_tokens(chip, tp, pp, expert_parallel, kv_dtype, widened):
    q = question("deepseek-v3", chip, work=WORK)
    before = {"tp": tp, "pp": pp, "dcp": 1}
    after = before | ({"dcp": 2} if widened == "dcp" else {widened: 2 * before[widened]})
    found = []
    for degrees in (before, after):
        layout = "sequence_sharded" if degrees["dcp"] > 1 else "replicated"
        ep = degrees["tp"] if expert_parallel else 1
        found.append(kv_tokens(q, ep=ep, kv_layout=layout, kv_dtype=kv_dtype, **degrees))
    assume(found[0] >= 0)  # below, the number says how many are missing
    assert found[1] >= found[0]


def test_decode_context_parallel_multiplies_capacity_and_tensor_parallel_does_not():
    q = question("deepseek-r1", "h200-sxm", work=WORK)
    one = kv_tokens(q, tp=8, ep=8)
    for dcp in (2, 4, 8):
        found = kv_tokens(q, tp=8, ep=8, dcp=dcp, kv_layout="sequence_sharded")
        assert found == pytest.approx(dcp * one, rel=1e-4)
    # TP16 holds more than TP8 only by the weights that left the chip
    weights = {tp: weight_bytes(q, tp=tp, ep=tp) for tp in (8, 16)}
    gained = (kv_tokens(q, tp=16, ep=16) - one) * 70_272
    assert gained == pytest.approx(weights[8] - weights[16], rel=0.1)


def weight_bytes(q, **degrees):
    one = Strategy(weight_dtype="fp8", batch=8, **degrees)
    return float(plan.price(q, to_table([one]), detail=True)["weight_bytes"][0])


def test_replicas_change_nothing_in_a_replica():
    q = question("deepseek-v3", "h200-sxm", work=WORK)
    one, three = (
        plan.price(q, to_table([Strategy(tp=8, ep=8, weight_dtype="fp8", batch=8, replicas=n)])) for n in (1, 3)
    )
    for name in ("decode_s", "kv_tokens", "prefill_s", "tpot_s", "tok_s_chip"):
        assert one[name] == three[name]
    assert three["requests_per_s"] == pytest.approx(3 * one["requests_per_s"])
