"""`--set`: values and factors by path, held to the rules of the file, with their own source."""

# ruff: noqa: E501 - messages stand here as they are read

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.errors import SpecError
from mlaplan.specs.chip import Chip
from mlaplan.specs.lookup import load_chip

FILE = str(Path(__file__).parents[1] / "fixtures" / "toy-chip.yaml")


def with_set(*overrides: str) -> Chip:
    return load_chip(FILE, overrides)


def refusal(*overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        load_chip(FILE, overrides)
    return str(caught.value)


def test_a_value_replaces_the_figure_and_says_so() -> None:
    bandwidth = with_set("memory.bandwidth=4 TB/s").memory.bandwidth
    assert bandwidth.bounds == (4e12, 4e12, 4e12)
    assert (bandwidth.source, bandwidth.confidence) == ("set on the command line", "assumed")


@pytest.mark.parametrize("text", ["chip.memory.bandwidth=4 TB/s", "memory.bandwidth.value = 4 TB/s"])
def test_paths_may_be_written_in_full(text: str) -> None:
    assert float(with_set(text).memory.bandwidth) == 4e12


def test_a_factor_scales_the_figure_and_its_range() -> None:
    bandwidth = with_set("memory.bandwidth=x0.5").memory.bandwidth
    assert bandwidth.bounds == (0.9e12, 1e12, 1.05e12)
    assert bandwidth.source == "x0.5 on the command line, of: made up"
    assert bandwidth.confidence == "assumed"


def test_the_file_itself_is_not_changed() -> None:
    with_set("memory.bandwidth=x0.5")
    assert float(load_chip(FILE).memory.bandwidth) == 2e12


def test_other_kinds_of_values() -> None:
    chip = with_set(
        "scale_up.chips_per_node=4",
        "padding.attention_rows=64",
        "on_chip.l2.capacity=100 MiB",
        "on_chip[0].scope=core",
        "peak.int8=200 TOPS",
        "power={value: 700 W, source: me, confidence: measured}",
        "scale_up.collectives.all_reduce.alpha=x2",
        "scale_up.collectives.all_reduce.bandwidth.0=100 GB/s",
    )
    assert chip.scale_up.chips_per_node == 4
    assert chip.padding.attention_rows == 64
    assert float(chip.on_chip[0].capacity) == 100 * 2**20
    assert chip.on_chip[0].scope == "core"
    assert float(chip.peak["int8"]) == 200e12
    assert chip.power is not None
    assert chip.power.source == "me"
    fit = chip.scale_up.collectives["all_reduce"]
    assert fit.alpha == (14e-6, 20e-6, 34e-6)
    assert fit.bandwidth == (100e9, 160e9, 170e9)
    assert fit.confidence == "assumed"
    assert "on the command line" in fit.source


def test_a_fit_the_chip_does_not_have_starts_from_the_default_of_its_class() -> None:
    before = load_chip(FILE).kernel("bmm", "bf16")
    after = with_set("efficiency.bmm.bf16.compute=0.9").kernel("bmm", "bf16")
    assert after.compute == 0.9
    assert (after.memory, after.floor) == (before.memory, before.floor)
    assert after.source.startswith("compute set on the command line; the rest: class default")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("memory.bandwith=3 TB/s", "no figure 'bandwith' in memory; expected one of type, capacity, marketed, bandwidth; did you mean 'bandwidth'?"),
        ("memory.bandwidth", "'memory.bandwidth' is not an assignment; expected path=value or path=x0.5, such as memory.bandwidth='4 TB/s'"),
        ("=3", "'=3' is not an assignment; expected path=value or path=x0.5, such as memory.bandwidth='4 TB/s'"),
        ("chip=3", "'chip' names no figure; expected path=value or path=x0.5, such as memory.bandwidth='4 TB/s'"),
        ("memory.capacity=80 GB/s", "memory.capacity.value: '80 GB/s' is a rate in bytes per second; expected a size in bytes such as '80 GB'"),
        ("memory.capacity=8 B", "memory.capacity.value: '8 B' is too small to be real; expected a size in bytes between 100 MB and 10 TB"),
        ("clock=x1e9", "clock.value: '1.5 EHz' is too large to be real; expected a frequency between 50 MHz and 10 GHz"),
        ("memory.bandwidth=x0", "the factor 0 is not above zero; expected a factor such as x0.5"),
        ("memory.bandwidth=[", "the value '[' cannot be read; expected a value as it would stand in YAML"),
        ("memory.bandwidth=nan", "memory.bandwidth.value: 'nan' is not a finite number; expected a rate in bytes per second such as '3.35 TB/s'"),
        ("memory.bandwidth.low=3 TB/s", "memory.bandwidth: the range 3.00 TB/s to 2.10 TB/s does not hold 2.00 TB/s; expected low <= value <= high"),
        ("memory=3", "memory: got 3; expected a mapping with type, capacity, marketed, bandwidth"),
        ("name.x=3", "name holds no further figures"),
        ("power=x2", "power has no value to multiply; expected a value with its unit"),
        ("scale_up.chips_per_node=x2", "scale_up.chips_per_node is not a quantity that a factor could multiply; expected a value"),
        ("on_chip.l3.capacity=1 MB", "no entry 'l3' in on_chip; expected one of l2, or an index below 1"),
        ("name=foo", "name says which chip this is, and is no figure; expected a figure; or a chip file of its own"),
        ("chip.title=x", "title says which chip this is, and is no figure; expected a figure; or a chip file of its own"),
        ("kind=model", "kind says which chip this is, and is no figure; expected a figure; or a chip file of its own"),
        ("efficiency.gem.bf16.compute=1", "no figure 'gem' in efficiency; expected one of gemm, bmm, router, grouped_gemm, grouped_gemm_ep, mla_decode, mla_prefill, gqa_decode, gqa_prefill, sparse_mla_decode, indexer, elementwise, lm_head, kv_cast, kv_dequantise; did you mean 'gemm'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_set_is_told(override: str, message: str) -> None:
    assert refusal(override) == f"--set {override}: {message}"


def test_a_link_figure_beside_measured_collectives_is_a_warning() -> None:
    measured = load_chip("h200-sxm", ["scale_up.bandwidth=x0.5"])
    (told,) = [problem.text() for problem in measured.warnings]
    assert told.startswith(
        "--set scale_up.bandwidth=x0.5: warning: scale_up.bandwidth prices only what is not measured: "
    )
    assert "dispatch" in told and "keep their fits; expected scale_up.collectives." in told
    assert load_chip("h200-sxm", ["memory.bandwidth=x0.5"]).warnings == ()
    assert load_chip("h200-sxm", ["scale_up.collectives.all_reduce.bandwidth=x0.5"]).warnings == ()


def test_all_mistakes_are_told_at_once() -> None:
    assert len(refusal("memory.a=1", "b=2").splitlines()) == 2
    assert len(refusal("memory.capacity=1 s", "clock=1 s").splitlines()) == 2


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["memory.bandwidth", "on_chip.0", "peak", "scale_up.collectives", "efficiency.gemm", "x", ""])
    | st.text("abc.[]0 ", max_size=8),
    st.sampled_from(["x2", "x", "1", "80 GB", "{", "{}", "[]", "null", "*a", "!!x y", "'"]) | st.text(max_size=8),
)
def test_any_override_gives_a_chip_or_is_told(path: str, value: str) -> None:
    try:
        chip = with_set(f"{path}={value}")
    except SpecError as error:
        assert str(error).startswith("--set ")
    else:
        assert chip.name


def test_a_smaller_node_is_one_host_and_a_larger_one_whole_hosts() -> None:
    assert load_chip("gb200", ["scale_up.chips_per_node=2"]).scale_up.host_chips == 2
    with pytest.raises(SpecError, match="70 chips do not split into hosts of 4; expected a divisor of 70"):
        load_chip("gb200", ["scale_up.chips_per_node=70"])
