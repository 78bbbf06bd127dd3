"""Every rule on a good and a bad example, as one strategy and as columns."""

import re

import numpy as np
import pytest
from costs import round as r
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar.cases import question
from scalar.cases import strategies as random_strategies

from mlaplan import plan
from mlaplan.engines.load import load_profile
from mlaplan.rules import all_rules, of_stage
from mlaplan.rules.legality import LEGALITY
from mlaplan.strategy import Strategy, to_table
from mlaplan.workload import Overrides, Workload

RULES = {rule.code: rule for rule in all_rules()}
V3 = ("deepseek-v3", "h200-sxm")


def cells(strategy, **columns):
    row = {name: column[0] for name, column in to_table([strategy]).items()}
    return row | columns


def broken(code, q, strategy, **columns):
    return bool(np.any(RULES[code].violated(q, cells(strategy, **columns))))


GOOD = Strategy(tp=8, ep=8, weight_dtype="fp8")
EXAMPLES = [
    # code, model, chip, engine, good, bad, what the words must name
    ("MLA101", *V3, "generic", GOOD, Strategy(tp=3), "128 attention heads"),
    ("MLA101", "minicpm3-4b", "h200-sxm", "generic", Strategy(tp=8), Strategy(tp=16), "40"),
    ("MLA102", *V3, "generic", Strategy(tp=8, dcp=4, kv_layout="sequence_sharded"),
     Strategy(tp=8, dcp=3, kv_layout="sequence_sharded"), "DCP 3"),
    # 8 KV heads over 16 ranks repeat twice, over 8 not at all
    ("MLA102", "llama-3-70b", "h200-sxm", "generic", Strategy(tp=16, dcp=2, kv_layout="sequence_sharded"),
     Strategy(tp=8, dcp=2, kv_layout="sequence_sharded"), "8 KV heads"),
    # over 16 ranks 18432 and 2048 columns are 9 blocks of 128 and 1, over 32 they are halves of blocks
    ("MLA103", *V3, "generic", Strategy(tp=16, weight_dtype="fp8"), Strategy(tp=32, weight_dtype="fp8"),
     "18432 / 32 = 576"),
    ("MLA103", *V3, "generic", Strategy(tp=32, weight_dtype="bf16"), Strategy(tp=32, weight_dtype="fp8"), "128"),
    ("MLA104", *V3, "generic", Strategy(dp=64, ep=64), Strategy(dp=24, ep=24), "256 experts"),
    ("MLA105", *V3, "generic", Strategy(tp=8, dp=2, ep=16), Strategy(tp=8, dp=2, ep=32), "EP 32"),
    ("MLA105", "llama-3-70b", "h200-sxm", "generic", Strategy(tp=8), Strategy(tp=8, ep=8), "EP 8"),
    # 6 ranks leave a node with 2 over; 4 + 4 fill it; 12 is no whole number of nodes
    ("MLA106", *V3, "generic", Strategy(tp=4, pp=4), Strategy(tp=6, pp=2), "nodes of 8"),
    ("MLA106", *V3, "generic", Strategy(tp=4, dp=4), Strategy(tp=4, dp=3), "nodes of 8"),
    ("MLA106", *V3, "generic", Strategy(tp=2, pp=3), Strategy(tp=2, pp=5, dp=3), "nodes of 8"),
    ("MLA107", "deepseek-v2-lite", "k3", "generic", Strategy(tp=8), Strategy(tp=8, pp=2), "16 chips in one replica"),
    ("MLA108", "deepseek-v2-lite", "h200-sxm", "generic", Strategy(pp=27), Strategy(pp=28), "27 layers"),
    ("MLA109", "deepseek-v3", "a100-sxm-80g", "generic", Strategy(weight_dtype="int8"), Strategy(weight_dtype="fp8"),
     "int8 or bf16"),
    ("MLA109", "deepseek-v3", "ascend-910a", "generic", Strategy(weight_dtype="fp16"), Strategy(weight_dtype="bf16"),
     "no bf16"),
    ("MLA110", "deepseek-v3", "a100-sxm-80g", "generic", Strategy(kv_dtype="bf16"), Strategy(kv_dtype="fp8"), "no fp8"),
    ("MLA110", "deepseek-v3.2", "ascend-910b3", "generic", Strategy(), Strategy(kv_dtype="fp8_ds_mla"), "fp8_ds_mla"),
    ("MLA111", *V3, "generic", Strategy(tp=8, kv_layout="latent_sharded"),
     Strategy(tp=24, kv_layout="latent_sharded"), "TP 24"),
    ("MLA111", "llama-3-70b", "h200-sxm", "generic", Strategy(tp=8),
     Strategy(tp=8, kv_layout="latent_sharded"), "TP 8"),
    ("MLA120", *V3, "vllm", GOOD, Strategy(tp=8, ep=8, kv_layout="latent_sharded"), "kv_layout"),
    ("MLA120", *V3, "vllm", GOOD, Strategy(tp=8, ep=4), "ep=4"),
    ("MLA120", "deepseek-v3", "ascend-910b3", "vllm", None, GOOD, "ascend"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "model", "chip", "engine", "good", "bad", "words"), EXAMPLES)
def test_a_rule_on_a_good_and_a_bad_example(code, model, chip, engine, good, bad, words):
    q = question(model, chip, engine)
    assert good is None or not broken(code, q, good)
    assert broken(code, q, bad)
    assert words in RULES[code].detail(q, cells(bad))


def test_codes_are_unique_and_told():
    codes = [rule.code for rule in all_rules()]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"MLA[123]\d\d", code) for code in codes)
    assert len({rule.slug for rule in all_rules()}) == len(codes)
    for rule in all_rules():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.slug)
        assert rule.reason
        assert rule.why.endswith(".")
    stages = {"1": ("structure", "choice"), "2": ("capacity",), "3": ("service",)}
    assert all(rule.stage in stages[rule.code[3]] for rule in all_rules())
    assert sum(len(of_stage(s)) for s in ("structure", "choice", "capacity", "service")) == len(codes)


def test_every_legality_rule_has_an_example():
    assert {code for code, *_ in EXAMPLES} == {c for c in RULES if c.startswith("MLA1")}


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_mask_over_columns_is_the_rule_on_each_row(data):
    q = question(*data.draw(st.sampled_from([("deepseek-v3", "h100-sxm", "vllm"), ("deepseek-v3", "h20", "sglang"),
                                             ("llama-3-70b", "sc11", "generic")])))  # fmt: skip
    rows = data.draw(st.lists(random_strategies(q.setting.model, q.setting.chip), min_size=1, max_size=8))
    table = to_table(rows)
    for rule in (*of_stage("structure"), *of_stage("choice")):
        mask = np.broadcast_to(rule.violated(q, table), len(rows))
        assert mask.tolist() == [broken(rule.code, q, one) for one in rows], rule.name

    for rule in LEGALITY:  # a row in plain numbers and words, as `check` asks: no array is made of it
        plain = [rule.violated(q, one.to_dict()) for one in rows]
        assert plain == [broken(rule.code, q, one) for one in rows], rule.name
        assert all(type(said) is bool for said in plain), rule.name


def test_redundant_experts_may_fill_up_a_count():
    # 256 over 24 ranks leaves 16; 8 more are 264 = 11 x 24
    assert broken("MLA104", question(*V3), Strategy(dp=24, ep=24))
    assert not broken("MLA104", question(*V3, redundant_experts=8), Strategy(dp=24, ep=24))


def test_ranks_of_shared_experts_hold_no_routed_ones():
    # 256 and 32 copies over 320 ranks, of which 32 have the shared expert
    q = question("deepseek-v3", "ascend-910c-die", redundant_experts=32, shared_ranks=32)
    assert not broken("MLA104", q, Strategy(dp=320, ep=320))
    assert broken("MLA104", q, Strategy(dp=288, ep=288))
    assert broken("MLA104", q, Strategy(dp=32, ep=32))


# ---- capacity and service ----


def test_weights_and_cache_say_what_is_short():
    given = Overrides(memory_fraction=0.9)
    q = plan.question(r.chip(), r.model(), load_profile("generic"), Workload(1000, 24), given)
    known = {"weight_bytes": 88e9, "other_bytes": 4e9, "kv_tokens": -5.0}
    assert broken("MLA201", q, Strategy(), **known)
    words = RULES["MLA201"].detail(q, cells(Strategy(), **known))
    # 92 of 90 GB
    for part in ("88.0 GB", "4.0 GB", "92.0 GB", "90.0 GB", "2.0 GB short"):
        assert part in words
    assert not broken("MLA202", q, Strategy(), **known)
    # 3 sequences of 1024 tokens, in blocks of 64
    assert broken("MLA202", q, Strategy(batch=3), kv_tokens=3071.0)
    assert not broken("MLA202", q, Strategy(batch=3), kv_tokens=3072.0)
    assert "3,072" in RULES["MLA202"].detail(q, cells(Strategy(batch=3), kv_tokens=3071.0))
    # DCP4 rounds each up to 4 x 64: nothing changes; blocks of 128 over 16 ranks make 2048 of 1024
    sharded = Strategy(batch=1, tp=16, dcp=16, block_size=128, kv_layout="sequence_sharded")
    assert broken("MLA202", q, sharded, kv_tokens=2047.0)
    assert not broken("MLA202", q, sharded, kv_tokens=2048.0)


@pytest.mark.parametrize(
    ("code", "asked", "column", "limit"),
    [("MLA301", {"ttft_s": 2.0}, "ttft_s", 2.0), ("MLA302", {"tpot_s": 0.05}, "tpot_s", 0.05)],
)
def test_service_levels_are_upper_limits(code, asked, column, limit):
    q = question(*V3, work=Workload(100, 10, **asked))
    assert not broken(code, q, Strategy(), **{column: limit})
    assert broken(code, q, Strategy(), **{column: limit * 1.01})
    assert not broken(code, question(*V3), Strategy(), **{column: 1e9})


def test_a_rate_above_what_completes_is_missed():
    q = question(*V3, work=Workload(100, 10, rate=5.0))
    assert broken("MLA303", q, Strategy(), capacity_per_s=4.9)
    assert not broken("MLA303", q, Strategy(), capacity_per_s=5.0)
    assert not broken("MLA303", question(*V3), Strategy(), capacity_per_s=0.0)
    assert "4.90" in RULES["MLA303"].detail(q, cells(Strategy(), capacity_per_s=4.9))


def test_no_time_per_token_misses_no_limit():
    q = question(*V3, work=Workload(100, 1, tpot_s=0.05))
    assert not broken("MLA302", q, Strategy(), tpot_s=float("nan"))
