"""Pricing on distinct combinations gives the same floats as pricing every row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar.cases import WORKLOADS, examples, question, strategies

from mlaplan import plan, pricing, search
from mlaplan.costs.factor import Memo, Spread
from mlaplan.costs.table import Table, by_values, distinct, size
from mlaplan.strategy import to_table
from mlaplan.workload import Workload

V3 = question("deepseek-v3", "h200-sxm")


def assert_bitwise(found, expected):
    assert set(found) == set(expected)
    for name, column in found.items():
        assert np.array_equal(column, expected[name], equal_nan=True), name


class Unfactored(Memo):
    """Prices every row, however many are alike."""

    def factored(self, _kind, table, _names, price):
        every = np.arange(size(table))
        return Spread({name: (np.asarray(column), every) for name, column in price(table).items()})


def test_distinct_combinations_spread_back_to_the_rows():
    table = Table({"a": np.array([3, 1, 3, 3]), "b": np.array([7, 7, 9, 7]), "c": np.arange(4)})
    found, index = distinct(table, ("a", "b"))
    assert size(found) == 3
    assert found["a"][index].tolist() == [3, 1, 3, 3]
    assert found["b"][index].tolist() == [7, 7, 9, 7]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3), st.integers(0, 10**6)), min_size=1, max_size=40))
def test_distinct_is_the_set_of_combinations(rows):
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    table = Table(dict(zip("abc", columns, strict=True)))
    found, index = distinct(table, tuple("abc"))
    assert len(set(rows)) == size(found)
    assert [tuple(int(found[n][i]) for n in "abc") for i in index] == rows


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3), st.integers(7, 8)), min_size=2, max_size=40))
def test_a_part_has_the_keys_of_the_whole(rows):
    names, columns = tuple("abc"), [np.array(column) for column in zip(*rows, strict=True)]
    table = Table(dict(zip(names, columns, strict=True))).settled(names)
    table.key(names[:2])
    for part in (slice(1, None), np.arange(len(rows))[::-2]):
        found, whole = table.take(part), table.key(names)[0]
        assert found.key(names)[0].tolist() == whole[part].tolist()
    other = table.having(b=columns[1][::-1]).settled(names)
    assert other.key(names)[0].tolist() == Table(dict(other)).key(names)[0].tolist()


def test_other_values_of_a_column_keep_its_domain():
    table = Table({"a": np.array([4, 6])}).settled(("a",), also=np.array([2]))
    assert table.key(("a",))[0].tolist() == [1, 2]
    assert table.with_values(a=np.array([2, 6])).key(("a",))[0].tolist() == [0, 2]


def test_a_memo_prices_each_combination_once():
    seen = []

    def price(table):
        seen.extend(zip(table["a"].tolist(), table["b"].tolist(), strict=True))
        return {"x": table["a"] * 10.0 + table["b"]}

    memo, domains = Memo(), {n: Table({n: np.arange(10)}).domain(n) for n in "ab"}
    for a, b in (([1, 2, 1], [5, 5, 5]), ([2, 3, 1], [5, 5, 6])):
        table = Table({"a": np.array(a), "b": np.array(b)}, domains)
        assert memo.factored("x", table, ("a", "b"), price)["x"].tolist() == [
            10 * x + y for x, y in zip(a, b, strict=True)
        ]
    assert sorted(seen) == [(1, 5), (1, 6), (2, 5), (3, 5)]


def test_by_values_joins_what_it_priced_apart():
    table = Table({"kind": np.array([1, 0, 1]), "x": np.array([1, 2, 3])})
    found = by_values(table, ("kind",), lambda values, part: {"y": part["x"] * (10.0 if values["kind"] else 1.0)})
    assert found["y"].tolist() == [10.0, 2.0, 30.0]


@pytest.mark.parametrize("names", [("deepseek-v3", "h200-sxm"), ("glm-5.2", "ascend-910b3"), ("llama-3-70b", "mi300x")])
@settings(max_examples=examples(4), deadline=None)
@given(data=st.data())
def test_factored_is_unfactored_is_row_by_row_to_the_last_bit(names, data):
    q = question(*names, work=data.draw(WORKLOADS))
    rows = data.draw(st.lists(strategies(q.setting.model, q.setting.chip), min_size=1, max_size=8))
    table = to_table(rows)
    factored = plan.price(q, table, detail=True)
    assert_bitwise(pricing.price(q, table, memo=Unfactored(), detail=True), factored)
    for i, one in enumerate(rows):
        alone = plan.price(q, to_table([one]), detail=True)
        assert_bitwise(alone, {name: column[i : i + 1] for name, column in factored.items()})


@pytest.mark.parametrize(
    "work",
    [
        Workload(4096, 1024, concurrency=256),
        Workload(100, 50, rate=3.0),
        Workload(40_000, 500, concurrency=7000, prefix_tokens=1000),
        Workload(3, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("pins", [{}, {"batch": 5000, "prefill_chunk": 777}], ids=["free", "pinned"])
def test_a_search_prices_as_a_plain_table_does(work, pins):
    """The search's domains and memo cover every value that occurs in its blocks."""
    q = question("deepseek-v3", "h200-sxm", work=work)
    memo, seen = Memo(), 0
    structure = {"dcp": 1, "replicas": 1} | pins
    for block in search.blocks(q, 16, structure, search.Found()):
        table = search.batched(q, block, structure, search.Found(), memo)
        if not size(table):
            continue
        rows = np.sort(np.random.default_rng(0).choice(size(table), min(size(table), 500), replace=False))
        sample = table.take(rows)
        assert_bitwise(pricing.price(q, sample, memo=memo), plan.price(q, dict(sample)))
        seen += len(rows)
        sliced, expected = search.joined(list(pricing.priced(q, table, None, memo))), plan.price(q, dict(sample))
        assert_bitwise({name: sliced[name][rows] for name in expected}, expected)
    assert seen > 100
