"""Quantities: what is read, what is refused and how, and that every number survives being written."""

import math

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mlaplan import units
from mlaplan.units import UNITS, UnitError, parse, parse_tokens


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("80 GB", "bytes", 80e9),
        ("80 GiB", "bytes", 80 * 2**30),
        ("80GB", "bytes", 80e9),
        ("  80   GB ", "bytes", 80e9),
        ("228 KiB", "bytes", 228 * 1024),
        ("2.5 MB", "bytes", 2.5e6),
        ("1_000 kB", "bytes", 1e6),
        ("576 B", "bytes", 576),
        ("3.35 TB/s", "bytes/s", 3.35e12),
        ("3.35 TBps", "bytes/s", 3.35e12),
        ("400 Gb/s", "bytes/s", 50e9),
        ("400 Gbps", "bytes/s", 50e9),
        ("400 Gbit/s", "bytes/s", 50e9),
        ("989 TFLOPS", "flop/s", 989e12),
        ("989 TFLOP/s", "flop/s", 989e12),
        ("1979 TOPS", "flop/s", 1979e12),
        ("2.25 PFLOPS", "flop/s", 2.25e15),
        ("17.4 us", "s", 17.4e-6),
        ("17.4 µs", "s", 17.4e-6),
        ("17.4 \u03bcs", "s", 17.4e-6),
        ("60ms", "s", 0.06),
        ("5s", "s", 5.0),
        ("2 min", "s", 120.0),
        ("1.83 GHz", "hz", 1.83e9),
        ("700 W", "w", 700.0),
        ("2.50 USD/h", "usd/h", 2.5),
        ("$2.50/h", "usd/h", 2.5),
        ("$2.50", "usd/h", 2.5),
        ("2.5", "usd/h", 2.5),
        ("80 %", "fraction", 0.8),
        ("0.8", "fraction", 0.8),
        ("671.03e9", "count", 671.03e9),
        ("671 B", "count", 671e9),
        ("12.5 req/s", "rate", 12.5),
        ("12.5 /s", "1/s", 12.5),
        (3.35e12, "bytes/s", 3.35e12),
        (0, "bytes", 0.0),
    ],
)
def test_parse_gives_si(text: str | float, dimension: str, value: float) -> None:
    assert parse(text, dimension) == value


@pytest.mark.parametrize(
    ("text", "dimension", "message"),
    [
        (
            "80 GB/s",
            "bytes",
            "'80 GB/s' is a rate in bytes per second; expected a size in bytes such as '80 GB'",
        ),
        (
            "80 GB",
            "bytes/s",
            "'80 GB' is a size in bytes; expected a rate in bytes per second such as '3.35 TB/s'",
        ),
        ("80", "bytes", "'80' has no unit; expected a size in bytes such as '80 GB'"),
        (
            "80 gb",
            "bytes",
            "'80 gb' has the unknown unit 'gb'; expected a size in bytes such as '80 GB'; did you mean '80 GB'?",
        ),
        (
            "80 Gb",
            "bytes",
            "'80 Gb' is a number of bits; expected a size in bytes such as '80 GB'; did you mean '80 GB'?",
        ),
        (
            "1,024 GB",
            "bytes",
            "'1,024 GB' has a thousands separator; expected a size in bytes such as '80 GB'; "
            "write it without, or as 1e6",
        ),
        ("-5 ms", "s", "'-5 ms' is negative; expected a time such as '17.4 us'"),
        ("nan", "s", "'nan' is not a finite number; expected a time such as '17.4 us'"),
        (".inf", "s", "'.inf' is not a finite number; expected a time such as '17.4 us'"),
        ("1e999 s", "s", "'1e999 s' is not a finite number; expected a time such as '17.4 us'"),
        ("", "s", "'' is not a quantity; expected a time such as '17.4 us'"),
        ("soon", "s", "'soon' is not a quantity; expected a time such as '17.4 us'"),
        (
            "5 fortnights",
            "s",
            "'5 fortnights' has the unknown unit 'fortnights'; expected a time such as '17.4 us'",
        ),
        (True, "count", "true is not a quantity; expected a plain number such as '128'"),
        (-1, "count", "-1 is negative; expected a plain number such as '128'"),
        (math.nan, "count", "nan is not a finite number; expected a plain number such as '128'"),
    ],
)
def test_parse_refuses_in_words(text: str | float, dimension: str, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse(text, dimension)
    assert str(caught.value) == message


# Traps of published figures: a decimal point too many, bits for bytes, GB for GiB.
def test_gb_and_gib_differ_by_seven_percent() -> None:
    assert parse("80 GiB", "bytes") / parse("80 GB", "bytes") == pytest.approx(1.0737, rel=1e-4)


def test_bits_are_an_eighth_of_bytes() -> None:
    assert parse("400 Gb/s", "bytes/s") * 8 == parse("400 GB/s", "bytes/s")


def test_a_ratio_of_sizes_with_mixed_exponents() -> None:
    assert parse("22 GB", "bytes") / parse("2.5 MB", "bytes") == 8800


@pytest.mark.parametrize(
    ("text", "tokens"), [("4k", 4096), ("1m", 1048576), ("4096", 4096), (512, 512), ("1.5K", 1536), ("0", 0)]
)
def test_tokens_count_in_1024(text: str | int, tokens: int) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize("text", ["", "4 GB", "1.5", "-4", "k", "1e400", "4kk", "nan"])
def test_tokens_refuse(text: str) -> None:
    with pytest.raises(UnitError, match="expected a number of tokens such as 4096 or 4k"):
        parse_tokens(text)


@given(
    st.sampled_from(sorted(UNITS)),
    st.one_of(st.just(0.0), st.floats(min_value=1e-15, max_value=1e30, allow_nan=False, allow_infinity=False)),
)
@example("s", 17.4e-6)
@example("bytes", 2.0**30)
def test_text_is_read_back_exactly(dimension: str, value: float) -> None:
    assert parse(units.text(value, dimension), dimension) == value


@given(st.sampled_from(sorted(UNITS)), st.floats(min_value=1e-9, max_value=9e20))
def test_formatted_quantity_is_near_what_it_stands_for(dimension: str, value: float) -> None:
    assume(dimension not in ("w", "usd/h", "fraction") or value > 1)  # shown in steps of 1, of 0.01, of 0.1 %
    assume(dimension != "usd/h" or value < 1e15)
    shown = units.format_quantity(value, dimension)
    assert parse(shown, dimension) == pytest.approx(value, rel=0.5 if dimension in ("w", "usd/h") else 0.06)


@given(st.text(max_size=30), st.sampled_from(sorted(UNITS)))
def test_any_text_is_read_or_refused(text: str, dimension: str) -> None:
    try:
        value = parse(text, dimension)
    except UnitError as error:
        assert "\n" not in str(error)
    else:
        assert math.isfinite(value)
        assert value >= 0


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (units.format_bytes(80e9), "80.0 GB"),
        (units.format_bytes(80 * 2**30, binary=True), "80.0 GiB"),
        (units.format_bytes_both(150.1e9), "150.1 GB (139.8 GiB)"),
        (units.format_bytes_per_s(3.35e12), "3.35 TB/s"),
        (units.format_flops(989e12), "989 TFLOPS"),
        (units.format_seconds(0), "0 s"),
        (units.format_seconds(17.4e-6), "17.4 us"),
        (units.format_seconds(0.9999e-3), "1.00 ms"),
        (units.format_seconds(4.2), "4.20 s"),
        (units.format_count(128), "128"),
        (units.format_count(671.03e9), "671.0 B"),
        (units.format_percent(0.8), "80 %"),
        (units.format_percent(0.055), "5.5 %"),
        (units.format_usd_per_h(2.5), "2.50 USD/h"),
        (units.format_rate(12.5), "12.5 /s"),
        (units.text(3.35e12, "bytes/s"), "3.35 TB/s"),
        (units.text(80 * 2**30, "bytes"), "80 GiB"),
        (units.text(17.4e-6, "s"), "17.4 us"),
    ],
)
def test_format(shown: str, expected: str) -> None:
    assert shown == expected
