"""What fits on a chip: the budget by hand, in whole blocks, under every cut."""

import math

import numpy as np
import pytest
from scalar.cases import question

from mlaplan import plan
from mlaplan.costs import capacity, memory, phases
from mlaplan.costs.factor import Memo
from mlaplan.costs.pipeline import cuts
from mlaplan.costs.table import Table
from mlaplan.strategy import Strategy, to_table
from mlaplan.workload import Workload

from . import round as r

BUDGET = capacity.Budget(max_context=2000, memory_fraction=0.9)


def space(setting, **degrees):
    return capacity.Space(setting, Table(to_table([Strategy(**degrees)])), BUDGET, Memo())


def room(setting, **degrees):
    (cut,) = cuts(setting.model, degrees.get("pp", 1))[:1]
    return space(setting, **degrees).room(cut)


def test_room_by_hand():
    """0.9 of 100 GB, less 4 layers and two vocabularies, activations and logits, over 4 x 240 B a token."""
    s = r.setting(r.model(layers=4))
    found = room(s, prefill_chunk=1000, batch=2)
    weights = 4 * 2 * (937_300 + 88_000 + 6_001_000) + 2 * 2 * 10_000_000
    assert float(found.weight_bytes[0]) == weights
    assert float(found.kv_bytes_per_token[0]) == 960
    other = memory.activation_bytes(s.model, memory.Shards(1, 1, 1, 1, 1), 1000, 1.0, 1.0, False) + 2 * 10_000 * 6
    assert float(found.kv_tokens[0]) == math.floor((90e9 - weights - other) / 960)


def test_the_fullest_stage_decides():
    s = r.setting(r.model(layers=5))
    whole = space(s, pp=2)
    for cut in cuts(s.model, 2):
        found = whole.room(cut)
        alone = []
        for stage in cut.stages:
            weights = stage.counts[0] * 14_052_600 + 20_000_000 * (stage.first + stage.last)
            alone.append((whole.free[0] - weights) / (stage.counts[0] * 240))
        assert float(found.kv_tokens[0]) == math.floor(min(alone))
        assert float(whole.tokens(cut)[0]) == float(found.kv_tokens[0])


def test_the_cut_is_the_fastest_that_holds_or_else_the_roomiest():
    """Every row against the rule word by word; needs from far below what the cuts hold to beyond it."""
    q = question("deepseek-v3", "h200-sxm")
    seen = set()
    for pp in (2, 4, 8):
        table = Table(to_table([Strategy(pp=pp, tp=8, batch=b) for b in (1, 7, 64, 300)] * 40))
        memory, candidates = capacity.Space(q.setting, table, q.budget, Memo()), cuts(q.setting.model, pp)
        held = np.stack([memory.tokens(cut) for cut in candidates])
        pick = np.random.default_rng(pp)
        need = np.floor(held.max(axis=0) * pick.uniform(0.5, 1.1, held.shape[1]))
        rounds = [pick.integers(1, 4, held.shape[1]) * 1e-3 for _ in candidates]
        best, times = phases._fastest_that_holds(memory, candidates, need, list(rounds))
        for i in range(held.shape[1]):
            fits = [c for c in range(len(candidates)) if held[c][i] >= need[i]]
            by_hand = (
                min(fits, key=lambda c: rounds[c][i]) if fits else max(range(len(candidates)), key=lambda c: held[c][i])
            )
            assert best[i] == by_hand
            assert times[i] == rounds[by_hand][i]
            assert memory.tokens_under(candidates, best)[i] == held[by_hand][i]
            seen.add(len(fits) == len(candidates) if fits else None)
        assert np.all(held[:, memory.ample(need)] >= need[memory.ample(need)])
    assert seen == {True, False, None}


def test_a_fraction_of_what_is_left_is_the_caches():
    """0.9 of what weights, activations and logits leave of 100 GB."""
    plain, free = (r.setting(r.model(layers=4), of_free=of_free) for of_free in (False, True))
    whole = capacity.Budget(2000, 1.0)
    (cut,) = cuts(plain.model, 1)[:1]
    table = Table(to_table([Strategy()]))
    most = float(capacity.Space(plain, table, whole, Memo()).tokens(cut)[0])
    assert float(capacity.Space(free, table, BUDGET, Memo()).tokens(cut)[0]) == pytest.approx(0.9 * most, abs=1)
    assert capacity.usable_bytes(free, BUDGET) == 100e9


def test_negative_room_says_that_weights_do_not_fit():
    s = r.setting(r.model(layers=4))
    tight = capacity.Budget(2000, 0.0001)
    held = capacity.Space(s, Table(to_table([Strategy()])), tight, Memo()).tokens(cuts(s.model, 1)[0])
    assert held[0] < 0


def test_a_sequence_takes_whole_blocks_on_each_rank():
    rows = to_table([Strategy(block_size=64), Strategy(block_size=64, dcp=4), Strategy(block_size=1)])
    # 1000 tokens: 16 blocks of 64; 4 blocks of 64 on each of 4 ranks; 1000 of 1
    assert capacity.sequence_tokens(rows, 1000).tolist() == [1024, 1024, 1000]
    assert capacity.sequence_tokens(to_table([Strategy(block_size=128, dcp=8)]), 1000).tolist() == [1024]
    assert capacity.sequence_tokens(to_table([Strategy(block_size=128, dcp=8)]), 1025).tolist() == [2048]


def test_everything_else_is_named_and_a_reserve_replaces_what_it_stands_for():
    q = question("deepseek-v3", "h200-sxm", "sglang", Workload(4096, 1024))
    table = Table(to_table([Strategy(dp=8, ep=8, batch=4, weight_dtype="fp8")]))
    items = capacity.other_items(q.setting, table, q.budget, Memo())
    e = q.setting.engine
    assert float(np.ravel(items["graph_bytes"])[0]) == e.graph_bytes
    assert float(np.ravel(items["dispatch_buffer_bytes"])[0]) == e.dispatch_buffer_bytes > 0
    total = capacity.total_bytes(items, 1)
    assert float(total[0]) == pytest.approx(sum(float(np.ravel(x)[0]) for x in items.values()))
    own = capacity.other_items(q.setting, table, q.budget._replace(reserve_bytes=7e9), Memo())
    assert own["reserve_bytes"] == 7e9
    assert "graph_bytes" not in own
    assert {"activation_bytes", "workspace_bytes", "dispatch_buffer_bytes"} <= set(own)


def test_one_chip_needs_no_communication_buffers():
    q = question("deepseek-v2-lite", "h200-sxm")
    table = Table(to_table([Strategy(), Strategy(tp=2)]))
    found = capacity.other_items(q.setting, table, q.budget, Memo())["comm_buffer_bytes"]
    assert found.tolist() == [0, q.setting.engine.comm_buffer_bytes]


def test_drafts_take_weights_and_a_cache_of_their_own():
    q = question("deepseek-v3", "h200-sxm")
    rows = to_table([Strategy(tp=8, ep=8, weight_dtype="fp8", mtp=k) for k in (0, 1, 2)])
    found = plan.price(q, rows, detail=True)
    # one MTP layer of 11.5 B parameters, and a 62nd cache, however deep the drafts
    assert found["kv_bytes_per_token"].tolist() == [70_272, 71_424, 71_424]
    gained = found["weight_bytes"][1] - found["weight_bytes"][0]
    assert gained == pytest.approx(11.5e9 / 8, rel=0.1)
    assert found["weight_bytes"][2] == found["weight_bytes"][1]


def test_the_fastest_cut_that_holds_the_cache_is_taken():
    """A need that only some cuts hold changes the cut, and never makes the round faster."""
    q = question("llama-3-70b", "h200-sxm", work=Workload(1024, 1024))
    few, many = (plan.price(q, to_table([Strategy(tp=1, pp=4, batch=b)]), detail=True) for b in (4, 400))
    for found, batch in ((few, 4), (many, 400)):
        options = cuts(q.setting.model, 4)
        table = Table(to_table([Strategy(tp=1, pp=4, batch=batch)]))
        held = [float(capacity.Space(q.setting, table, q.budget, Memo()).tokens(c)[0]) for c in options]
        chosen = int(found["cut"][0])
        assert float(found["kv_tokens"][0]) == held[chosen]
        if max(held) >= batch * 2048:
            assert held[chosen] >= batch * 2048
        else:
            assert held[chosen] == max(held)
