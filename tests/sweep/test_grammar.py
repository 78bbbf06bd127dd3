"""The grammar of axes: what it gives, what it never gives, and what it refuses."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.sweep import grammar
from mlaplan.sweep.fields import FIELDS
from mlaplan.sweep.grammar import AxisError

ISL, TPOT = FIELDS["isl"], FIELDS["tpot"]
whole = st.integers(1, 10**6)


def values(text: object, field: str = "isl") -> list[object]:
    f = FIELDS[field]
    return grammar.values(text, f.read, whole=f.whole, ranges=f.ranges)


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [
        ("isl", "8,16,32", [8, 16, 32]),
        ("isl", "1k:128k:log8", [1024 * 2**i for i in range(8)]),
        ("concurrency", "1:4096:x2", [2**i for i in range(13)]),
        ("prefix", "0:512:128", [0, 128, 256, 384, 512]),
        ("isl", "1,2,8:64:8", [1, 2, 8, 16, 24, 32, 40, 48, 56, 64]),
        ("isl", "10:25:10", [10, 20]),  # the end is never exceeded
        ("isl", "1:4:log8", [1, 2, 3, 4]),  # whole numbers, each once
        ("isl", "5:5:log1", [5]),
        ("tpot", "20ms:100ms:20ms", [0.02, 0.04, 0.06, 0.08, 0.1]),
        ("ttft", "1s:10s:log3", [1.0, pytest.approx(math.sqrt(10)), 10.0]),
        ("rate", "0.1:0.4:0.1", [0.1, 0.2, 0.3, 0.4]),
        ("prefix", "0,0.5,50 tokens".replace(" tokens", ""), [0, 0.5, 50]),
        ("kv_dtype", "bf16,fp8-ds-mla", ["bf16", "fp8_ds_mla"]),
        ("two_batch_overlap", "on,off", [1, 0]),
        ("engine", "vllm,sglang@0.5.23", ["vllm", "sglang@0.5.23"]),
        ("isl", [1024, "4k", "8k:16k:x2"], [1024, 4096, 8192, 16384]),
    ],
)
def test_values(field: str, text: object, expected: list[object]) -> None:
    assert values(text, field) == expected


@pytest.mark.parametrize(
    ("field", "text", "told"),
    [
        ("isl", "", "empty value"),
        ("isl", "8,,16", "empty value"),
        ("isl", "8,8", "8 holds 8 twice"),
        ("isl", "8,4:16:x2", "holds 8 twice"),
        ("isl", "8:4:x2", "ends below its start; expected 4:8:x2"),
        ("isl", "1:8", "not a range; expected from:to:step"),
        ("isl", "1:8:2:2", "not a number of tokens"),
        ("isl", "1:8:x1", "leads nowhere; expected a factor above 1"),
        ("prefix", "0:8:0", "leads nowhere; expected a step above 0"),
        ("prefix", "0:8:x2", "starts at 0"),
        ("prefix", "0:8:log4", "starts at 0"),
        ("isl", "1:8:log0", "has no value"),
        ("isl", "1:8:log1", "one value for two ends"),
        ("isl", "1:8:lag2", "'lag2' is not a number of tokens"),
        ("concurrency", "1:1000000:1", "more than 100,000 values"),
        ("isl", "1:90m:log999999999999", "more than 100,000 values"),
        ("devices", "eight", "'eight' is not a whole number"),
        ("devices", "0", "out of range"),
        ("tp", "1.5", "not a whole number"),
        ("tpot", "60", "has no unit"),
        ("tpot", "0ms", "not above 0"),
        ("kv_dtype", "fp9", "expected one of bf16, fp16, fp8, fp8_ds_mla, int8; did you mean 'fp8'?"),
        ("two_batch_overlap", "maybe", "neither on nor off"),
        ("prefix", "1.5", "more than a part"),
        ("isl", None, "an empty value"),
        ("isl", [[1]], "a value inside a value"),
        ("isl", [], "no value is given"),
    ],
)
def test_refused(field: str, text: object, told: str) -> None:
    with pytest.raises(AxisError) as error:
        values(text, field)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@given(first=whole, more=whole, step=whole)
def test_steps(first: int, more: int, step: int) -> None:
    last = first + more % 5000
    step = max(step, more % 5000 // 500 + 1)
    assert values(f"{first}:{last}:{step}") == list(range(first, last + 1, step))


@given(first=st.integers(1, 1000), factor=st.integers(2, 10), count=st.integers(1, 6))
def test_factors_reach_their_end(first: int, factor: int, count: int) -> None:
    last = first * factor ** (count - 1)
    expected = [first * factor**i for i in range(count)]
    assert values(f"{first}:{last}:x{factor}") == expected
    if last + 1 < last * factor:
        assert values(f"{first}:{last + 1}:x{factor}") == expected


@given(first=st.integers(1, 10**5), last=st.integers(1, 10**8), count=st.integers(2, 50))
def test_logarithms_hold_both_ends_and_rise(first: int, last: int, count: int) -> None:
    first, last = sorted((first, last))
    found = values(f"{first}:{last}:log{count}")
    assert found[0] == first
    assert found[-1] == last
    assert found == sorted(set(found))
    assert len(found) <= count
    if last >= first * 1000 ** (count - 1):  # far enough apart for rounding to tell
        ratios = [b / a for a, b in pairwise(found)]
        assert max(ratios) / min(ratios) < 1.01


@given(st.text(alphabet="0123456789kx:,.logms -_eE", max_size=20))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    for field in ("isl", "tpot", "devices", "rate", "prefix", "tp"):
        try:
            found = values(text, field)
        except AxisError as error:
            assert str(error)
            assert "\n" not in str(error)
        else:
            assert len(found) == len(set(found)) >= 1


@given(st.lists(st.text(alphabet="ab[]{}'\",:", max_size=8), min_size=1, max_size=5))
def test_splitting_loses_nothing(parts: list[str]) -> None:
    text = ",".join(parts)
    assert ",".join(grammar.split(text)) == text


def test_commas_inside_brackets_and_quotes_belong_to_the_value() -> None:
    assert grammar.split("[1,2],'a,b',c") == ["[1,2]", "'a,b'", "c"]
