"""The strategy space: all divisors, nothing twice, every chip used; batches below each row's own limit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan import space
from mlaplan.costs.table import Table, size
from mlaplan.strategy import KV_LAYOUTS, NAMES, Strategy, from_row, to_table

LAYOUT = {name: i for i, name in enumerate(KV_LAYOUTS)}


def structures(devices, heads=128, layers=61, moe=True, mla=True, long_prompt=False, **fixed):
    return space.structures(devices, heads, layers, moe, mla, long_prompt, fixed)


def rows(table):
    return list(zip(*(table[name].tolist() for name in space.STRUCTURE), strict=True))


def test_divisors():
    assert space.divisors(12) == [1, 2, 3, 4, 6, 12]
    assert space.divisors(1) == [1]
    assert space.divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert space.divisors(999_999_937) == [1, 999_999_937]  # a large prime takes no longer


def test_two_chips_by_hand():
    found = rows(structures(2))
    # replicas, pp, tp, dp, ep, dcp, cp, layout
    assert sorted(found) == sorted(
        [
            (2, 1, 1, 1, 1, 1, 1, LAYOUT["replicated"]),
            (1, 2, 1, 1, 1, 1, 1, LAYOUT["replicated"]),
            *((1, 1, 1, 2, ep, 1, 1, LAYOUT["replicated"]) for ep in (1, 2)),
            *((1, 1, 2, 1, ep, 1, 1, LAYOUT[w]) for ep in (1, 2) for w in ("replicated", "latent_sharded")),
            *((1, 1, 2, 1, ep, 2, 1, LAYOUT["sequence_sharded"]) for ep in (1, 2)),
        ]
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 96), st.booleans(), st.booleans(), st.booleans())
def test_every_structure_uses_all_chips_once_and_divides_what_it_must(devices, moe, mla, long_prompt):
    table = structures(devices, moe=moe, mla=mla, long_prompt=long_prompt)
    found = rows(table)
    assert len(set(found)) == len(found)
    width = table["tp"] * table["dp"]
    assert np.all(table["replicas"] * table["pp"] * width == devices)
    assert np.all(width % table["ep"] == 0)
    assert np.all(table["tp"] % table["dcp"] == 0)
    assert np.all((table["cp"] == 1) | (table["cp"] == table["tp"]))
    assert np.all((table["dcp"] > 1) == (table["kv_layout"] == LAYOUT["sequence_sharded"]))
    if not moe:
        assert np.all(table["ep"] == 1)
    if not mla:
        assert LAYOUT["latent_sharded"] not in table["kv_layout"]
    if not long_prompt:
        assert np.all(table["cp"] == 1)


def test_exhaustive_over_structure():
    """Counted another way: every ordered factorisation, times the splits of its groups."""
    devices, expected = 24, 0
    for replicas in space.divisors(devices):
        for pp in space.divisors(devices // replicas):
            width = devices // replicas // pp
            for tp in space.divisors(width):
                cache = len(space.divisors(tp)) - 1 + (2 if tp > 1 else 1)
                expected += len(space.divisors(width)) * cache
    assert size(structures(devices)) == expected


def test_pins_leave_only_what_they_name():
    table = structures(16, tp=8, pp=2, kv_layout="replicated")
    assert set(table["tp"]) == {8}
    assert set(table["pp"]) == {2}
    assert set(table["kv_layout"]) == {LAYOUT["replicated"]}
    assert size(structures(16, tp=7)) == 0
    assert size(structures(16, dp=4, tp=4, pp=1)) > 0


def test_no_more_ranks_than_heads_and_no_more_stages_than_layers():
    table = structures(64, heads=16, layers=4)
    assert table["tp"].max() == 16
    assert table["pp"].max() == 4


AXES = space.Axes((3,), (0, 2), (64, 128), (2048, 8192), (0, 1), (0, 1, 2))


def test_choices_are_laid_out_in_full():
    table = structures(4, tp=2, dp=2, ep=2, dcp=1, kv_layout="replicated")
    assert size(table) == 1
    found = space.expand(table, AXES)
    assert AXES.count == 1 * 2 * 2 * 2 * 3 == size(found)
    combinations = {tuple(int(found[n][i]) for n in space.CHOICES) for i in range(size(found))}
    assert len(combinations) == AXES.count
    # the block is that of the cache dtype's kernel
    assert set(zip(found["kv_dtype"].tolist(), found["block_size"].tolist(), strict=True)) == {(0, 64), (2, 128)}


def test_two_batches_overlap_only_where_tokens_are_dispatched():
    found = space.expand(structures(8), AXES)
    alone = (found["ep"] == 1) | (found["dp"] == 1)
    assert not np.any(found["two_batch_overlap"][alone])
    assert np.any(found["two_batch_overlap"])


def test_batches_grow_by_a_half_and_a_third():
    assert space.batch_grid(100).tolist() == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]
    assert space.batch_grid(96).tolist()[-1] == 64
    assert space.batch_grid(1).tolist() == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-1, 5000), min_size=1, max_size=10))
def test_each_row_gets_every_batch_below_its_limit_and_the_limit(limits):
    table = Table({"row": np.arange(len(limits)), "batch": np.ones(len(limits), dtype=np.int64)})
    found = space.with_batches(table, np.array(limits))
    for row, limit in enumerate(limits):
        batches = found["batch"][found["row"] == row].tolist()
        expected = [*space.batch_grid(limit).tolist(), limit] if limit >= 1 else []
        assert batches == expected


def test_a_fixed_batch_and_the_limit_alone():
    table = Table({"row": np.arange(3), "batch": np.ones(3, dtype=np.int64)})
    limits = np.array([0, 7, 100])
    fixed = space.with_batches(table, limits, fixed_batch=32)
    assert (fixed["row"].tolist(), fixed["batch"].tolist()) == ([1, 2], [32, 32])
    alone = space.with_batches(table, limits, only_limit=True)
    assert alone["batch"].tolist() == [7, 100]


def test_a_table_gives_its_strategies_back():
    one = Strategy(
        tp=4, pp=2, dp=3, ep=12, dcp=2, replicas=5, kv_layout="sequence_sharded", kv_dtype="fp8_ds_mla",
        weight_dtype="int4", block_size=128, prefill_chunk=512, two_batch_overlap=1, mtp=2, batch=17,
    )  # fmt: skip
    table = to_table([Strategy(), one])
    assert set(table) == set(NAMES)
    assert all(column.dtype == np.int64 for column in table.values())
    assert from_row(table, 1) == one
    assert one.devices == 4 * 2 * 3 * 5
    assert one.moe_tp == 1
    assert one.chips_per_replica == 24


@pytest.mark.parametrize(
    ("strategy", "label"),
    [
        (Strategy(), "TP1"),
        (Strategy(tp=8, pp=2), "TP8 PP2"),
        (Strategy(dp=16, ep=16), "DP16 EP16"),
        (Strategy(tp=8, dcp=8, kv_layout="sequence_sharded", replicas=2), "TP8 DCP8 x2"),
        (Strategy(tp=8, kv_layout="latent_sharded"), "TP8 latent-sharded"),
    ],
)
def test_labels(strategy, label):
    assert strategy.label() == label
