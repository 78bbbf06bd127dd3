"""Numbers beyond anything real: each is refused in one line before it overflows or is searched for hours."""

from __future__ import annotations

import shlex

import pytest

from tests.cli.conftest import Run

EXPLAIN = "explain deepseek-v3 h200-sxm --tp 8"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"{EXPLAIN} --batch 99999999999999999999 --context 100", "1<=x<=1000000"),
        (f"{EXPLAIN} --batch 1 --context 999999999999999999999", "expected at most 100,000,000 tokens"),
        (f"{EXPLAIN} --batch 1 --context 100 --imbalance 1e308", "expected at most 1,000"),
        (f"{EXPLAIN} --batch 1 --context 100 --dp 1000000", "8,000,000 chips; expected at most 1,000,000"),
        (f"{EXPLAIN} --batch 1 --context 100 --redundant-experts 9999999999999999999", "0<=x<=1000000"),
        ("recommend deepseek-v3 h200-sxm --devices 8 --isl 1000m", "--isl: 1000m is too many to be real"),
        ("recommend deepseek-v3 h200-sxm --devices 8 --mtp-accept 9", "a step with 3 drafts yields at most 4 tokens"),
    ],
)
def test_a_number_beyond_anything_real_is_one_line(run: Run, line: str, told: str) -> None:
    result = run(*shlex.split(line))
    assert (result.code, result.out) == (2, "")
    assert told in result.err and result.err.count("\n") == 1


def test_the_largest_numbers_are_priced_without_overflow(run: Run, recwarn: pytest.WarningsRecorder) -> None:
    result = run(*shlex.split(f"{EXPLAIN} --batch 1000000 --context 100000000 --format json"))
    assert result.code == 0 and "NaN" not in result.out and "Infinity" not in result.out
    assert not [str(w.message) for w in recwarn if "overflow" in str(w.message)]
