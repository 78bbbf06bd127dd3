"""Tables keep to 80 columns: gaps shrink first, then one column folds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlaplan.report.grid import Column, grid, text

NAMES = st.text(st.sampled_from("abc "), min_size=1, max_size=60).map(str.strip).filter(bool)


def test_text_stands_left_and_numbers_right() -> None:
    shown = grid([text("name"), Column("a\nsize")], [("x", "1"), ("long", "10,000")])
    assert shown == "           a\nname    size\nx          1\nlong  10,000"


def test_gaps_shrink_before_anything_folds() -> None:
    columns = [text("name"), *(Column("n") for _ in range(4))]
    row = ["a" * 30, *("9" * 11 for _ in range(4))]
    line = grid(columns, [row]).splitlines()[-1]
    assert len(line) == 78 and line.count(" ") == 4


def test_the_chosen_column_folds_at_words() -> None:
    shown = grid([Column("n"), text("reason")], [("1", "word " * 30)], fold=1)
    lines = shown.splitlines()
    assert all(len(line) <= 80 for line in lines) and len(lines) == 3
    assert lines[2].startswith("  word") and shown.count("word") == 30


def test_a_table_without_rows_is_its_header() -> None:
    assert grid([text("name"), Column("size")], []) == "name  size"


@given(st.lists(st.tuples(NAMES, st.integers(0, 10**9)), min_size=1, max_size=5), st.integers(0, 10))
def test_no_line_is_wider_than_80_and_no_word_is_lost(rows: list[tuple[str, int]], indent: int) -> None:
    columns = [text("plan"), Column("number"), text("why")]
    shown = grid(columns, [(name, f"{n:,}", name) for name, n in rows], indent=indent, fold=2)
    assert all(len(line) <= 80 or " " not in line.strip() for line in shown.splitlines() if "a" * 61 not in line)
    for name, n in rows:
        assert f"{n:,}" in shown and all(word in shown for word in name.split())


def test_several_columns_fold_the_widest_first_and_a_pipe_gets_whole_lines() -> None:
    columns, row = [text("bar"), text("limit"), text("reached")], ["short", "word " * 8, "word " * 12]
    narrow = grid(columns, [row], fold=(1, 2)).splitlines()
    assert max(map(len, narrow)) <= 80 and "\n".join(narrow).count("word") == 20
    assert len(grid(columns, [row], fold=(1, 2), width=None).splitlines()) == 2
