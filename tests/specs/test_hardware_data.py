"""The shipped chips: every file loads, every figure is sourced, and the ones easy to get wrong are right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlaplan.specs.chip import Chip, CollectiveFit, KernelFit
from mlaplan.specs.figure import Figure
from mlaplan.specs.lookup import load_chip
from mlaplan.specs.spec import Spec

HARDWARE = Path(__file__).resolve().parents[2] / "hardware"
NAMES = [
    "a100-sxm-80g",
    *(f"ascend-910{bin}" for bin in ("a", "b1", "b2", "b3", "b4", "c-die")),
    *("b200-sxm", "gb200", "h100-pcie", "h100-sxm", "h20", "h20-3e", "h200-sxm", "h800-sxm"),
    *("k3", "mi300x", "mi355x", "sc11"),
]
MIB, GIB, T = 2.0**20, 2.0**30, 1e12
SOURCED = (Figure, KernelFit, CollectiveFit)


def chip(name: str) -> Chip:
    return load_chip(str(HARDWARE / f"{name}.yaml"))


def sourced(node: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every figure and fit below a spec node, with its path."""
    if isinstance(node, SOURCED):
        yield path, node
    elif isinstance(node, Spec):
        for key in type(node).model_fields:
            yield from sourced(getattr(node, key), f"{path}.{key}")
    elif isinstance(node, dict):
        for key, item in node.items():
            yield from sourced(item, f"{path}.{key}")
    elif isinstance(node, tuple):
        for i, item in enumerate(node):
            yield from sourced(item, f"{path}[{i}]")


# ---- files ----


def test_the_chips_are_the_shipped_ones() -> None:
    assert sorted(p.stem for p in HARDWARE.glob("*.yaml") if not p.stem.endswith(".cal")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_loads_under_its_own_name(name: str) -> None:
    c = chip(name)
    assert c.name == name
    assert c.scale_up.chips_per_node
    assert float(c.memory.capacity) > 30e9


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_says_where_it_comes_from(name: str) -> None:
    found = list(sourced(chip(name)))
    assert len(found) > 15
    for path, figure in found:
        assert len(figure.source) > 4, path
        assert figure.confidence in ("datasheet", "measured", "derived", "assumed"), path
        if figure.note and "secondary source" in figure.note and not path.startswith(".peak"):
            assert figure.confidence == "assumed", path


@pytest.mark.parametrize("name", NAMES)
def test_other_names_do_not_clash(name: str) -> None:
    others = {n for other in NAMES if other != name for n in (other, *chip(other).names)}
    assert not others & set(chip(name).names)


@pytest.mark.parametrize("name", NAMES)
def test_collectives_are_physical(name: str) -> None:
    """No fitted bandwidth inside a node exceeds the chip's links, and alphas are microseconds."""
    c = chip(name)
    for op, fit in c.scale_up.collectives.items():
        assert all(b <= float(c.scale_up.bandwidth) for b in fit.bandwidth), op
        assert all(1e-6 < a < 60e-6 for a in fit.alpha), op


# ---- spot values, exact ----

CAPACITY = [
    ("h100-sxm", 81559 * MIB), ("h100-pcie", 81559 * MIB), ("h800-sxm", 81559 * MIB),
    ("h200-sxm", 143771 * MIB),
    ("h20", 97871 * MIB), ("a100-sxm-80g", 81920 * MIB), ("b200-sxm", 183359 * MIB), ("mi300x", 192 * GIB),
    ("ascend-910b1", 65536 * MIB), ("ascend-910b2", 65536 * MIB), ("ascend-910b3", 65536 * MIB),
    ("ascend-910b4", 32768 * MIB), ("ascend-910c-die", 65536 * MIB), ("gb200", 189471 * MIB),
]  # fmt: skip


@pytest.mark.parametrize(("name", "capacity"), CAPACITY)
def test_capacity_is_what_the_driver_reports(name: str, capacity: float) -> None:
    memory = chip(name).memory
    assert float(memory.capacity) == capacity
    assert memory.marketed is not None


PEAKS = [
    ("h100-sxm", {"bf16": 989, "fp8": 1979, "int8": 1979, "tf32": 494.5, "fp32": 67}),
    ("h100-pcie", {"bf16": 756.5, "fp8": 1513}),
    ("h200-sxm", {"bf16": 989, "fp8": 1979}),
    ("h800-sxm", {"bf16": 989, "fp8": 1979}),
    ("h20", {"bf16": 148, "fp8": 296}),
    ("a100-sxm-80g", {"bf16": 312, "int8": 624, "tf32": 156, "fp32": 19.5}),
    ("b200-sxm", {"bf16": 2250, "fp8": 4500, "fp4": 9000}),
    ("gb200", {"bf16": 2500, "fp8": 5000, "fp4": 10000}),
    ("mi300x", {"bf16": 1307, "fp8": 2615}),
    ("mi355x", {"bf16": 2500, "fp8": 5000, "fp4": 10000}),
    ("ascend-910a", {"fp16": 256, "int8": 512}),
    ("ascend-910b1", {"bf16": 363.7, "fp16": 363.7, "int8": 727.4}),
    ("ascend-910b2", {"bf16": 353.9, "int8": 707.8}),
    ("ascend-910b3", {"bf16": 294.9, "int8": 589.8}),
    ("ascend-910b4", {"bf16": 245.8, "int8": 491.5}),
    ("ascend-910c-die", {"bf16": 353.9, "int8": 707.8}),
    ("sc11", {"int8": 204.8, "fp8": 204.8, "bf16": 102.4, "fp16": 102.4, "tf32": 51.2, "fp32": 12.8}),
    ("k3", {"bf16": 512, "fp16": 512, "int8": 1024}),
]


@pytest.mark.parametrize(("name", "tera"), PEAKS)
def test_peaks(name: str, tera: dict[str, float]) -> None:
    assert {k: float(chip(name).peak[k]) / T for k in tera} == pytest.approx(tera, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "scale_up", "per_node", "scale_out"),
    [
        ("h100-sxm", 450, 8, 50), ("h200-sxm", 450, 8, 50), ("h20", 450, 8, 50), ("a100-sxm-80g", 300, 8, 25),
        ("b200-sxm", 900, 8, 50), ("h100-pcie", 64, 8, 50), ("mi355x", 538, 8, 50),
        ("ascend-910a", 90, 8, 12.5),
        ("ascend-910c-die", 196, 768, 24.5), ("gb200", 900, 72, 50),
    ],
)  # fmt: skip
def test_links_per_chip_and_direction(name: str, scale_up: float, per_node: int, scale_out: float) -> None:
    c = chip(name)
    assert c.scale_out is not None
    assert float(c.scale_up.bandwidth) / 1e9 == pytest.approx(scale_up, rel=1e-12)
    assert float(c.scale_out.bandwidth) / 1e9 == pytest.approx(scale_out, rel=1e-12)
    assert c.scale_up.chips_per_node == per_node


# FLOP per byte at which bf16 compute and memory balance, at nominal rates
RIDGE = [
    ("h20", 37), ("a100-sxm-80g", 153), ("ascend-910b3", 184), ("sc11", 188), ("h200-sxm", 206),
    ("ascend-910a", 213),
    ("ascend-910b1", 227), ("h100-sxm", 295), ("h800-sxm", 295), ("ascend-910b4", 307), ("h100-pcie", 378),
    ("mi300x", 247),
    ("ascend-910b2", 221), ("ascend-910c-die", 221),
]  # fmt: skip


@pytest.mark.parametrize(("name", "flop_per_byte"), RIDGE)
def test_ridge_points(name: str, flop_per_byte: int) -> None:
    c = chip(name)
    peak = c.peak.get("bf16") or c.peak["fp16"]
    assert abs(float(peak) / float(c.memory.bandwidth) - flop_per_byte) <= 0.51


def test_ridge_of_the_b200_at_its_lower_bandwidth() -> None:
    c = chip("b200-sxm")
    assert round(float(c.peak["bf16"]) / c.memory.bandwidth.bounds[0]) == 292


# ---- mistakes that specs of these chips invite ----


@pytest.mark.parametrize(("name", "sparse"), [("h100-sxm", 3958), ("h100-pcie", 3026), ("h200-sxm", 3958)])
def test_peaks_are_dense_not_sparse(name: str, sparse: float) -> None:
    assert float(chip(name).peak["fp8"]) / T == pytest.approx(sparse / 2, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "both_directions", "per_direction"),
    [("h100-sxm", 900, 450), ("h800-sxm", 400, 200), ("ascend-910b2", 392, 196), ("mi300x", 896, 448)],
)
def test_links_count_one_direction(name: str, both_directions: float, per_direction: float) -> None:
    assert float(chip(name).scale_up.bandwidth) / 1e9 == per_direction == both_directions / 2


def test_392_is_one_direction_of_a_910c_package() -> None:
    assert 2 * float(chip("ascend-910c-die").scale_up.bandwidth) == 392e9


def test_the_unit_is_the_chip_of_a_card_and_the_die_of_a_package() -> None:
    sc11, die = chip("sc11"), chip("ascend-910c-die")
    assert (sc11.unit, die.unit) == ("chip", "die")
    assert float(sc11.cores) == 8  # a card has 16
    assert sc11.scale_up.chips_per_node == 4 * 2  # four cards
    assert float(die.memory.capacity) == 64 * GIB  # a package has 128
    assert "ascend-910c" not in die.names  # the package, which must not resolve to half of itself


def test_80_gb_is_more_than_80e9_bytes() -> None:
    memory = chip("h100-sxm").memory
    assert memory.marketed is not None
    assert float(memory.marketed) == 80e9
    assert float(memory.capacity) == pytest.approx(85.52e9, rel=1e-3)
    assert float(memory.capacity) / GIB == pytest.approx(79.65, rel=1e-3)


def test_no_chip_is_called_plain_910b() -> None:
    assert "ascend-910b" not in NAMES
    for name in NAMES:
        assert not {"ascend-910b", "Ascend910B", "910b"} & {*chip(name).names, chip(name).name}
    assert float(chip("ascend-910a").cores) == 32


def test_bandwidth_of_the_910b_is_not_in_tebibytes() -> None:
    for name in ("ascend-910b1", "ascend-910b2", "ascend-910b3", "ascend-910c-die"):
        assert float(chip(name).memory.bandwidth) == 1.6e12


@pytest.mark.parametrize(
    ("name", "cores", "mhz", "brochure"),
    [("ascend-910b1", 24, 1850, 376), ("ascend-910b2", 24, 1800, 376), ("ascend-910b3", 20, 1800, 313),
     ("ascend-910b4", 20, 1500, 280), ("ascend-910c-die", 24, 1800, 376)],
)  # fmt: skip
def test_ascend_peaks_follow_the_formula_and_note_the_brochure(
    name: str, cores: int, mhz: float, brochure: int
) -> None:
    c = chip(name)
    assert (float(c.cores), float(c.clock)) == (cores, mhz * 1e6)
    assert float(c.peak["bf16"]) == pytest.approx(cores * 8192 * mhz * 1e6, rel=5e-4)
    assert float(c.peak["int8"]) == pytest.approx(2 * cores * 8192 * mhz * 1e6, rel=5e-4)
    assert str(brochure) in (c.peak["bf16"].note or "")


def test_910c_utilisation_is_of_the_formula_peak() -> None:
    fit = chip("ascend-910c-die").kernel("mla_decode", "bf16")
    assert fit.compute * 353.9 == pytest.approx(0.654 * 376, rel=2e-3)


def test_b200_figures_that_sources_disagree_on_are_ranges() -> None:
    memory = chip("b200-sxm").memory
    assert memory.bandwidth.bounds == (7.7e12, 8e12, 8e12)
    assert memory.marketed is not None
    assert memory.marketed.bounds == (180e9, 180e9, 192e9)


def test_sc11_sustains_800_mhz_on_compute_only() -> None:
    c = chip("sc11")
    assert float(c.clock) == 800e6
    assert c.clock.bounds[2] == 1e9
    assert c.memory.type.startswith("LPDDR")
    assert 2 * float(c.memory.bandwidth) == pytest.approx(1092e9, rel=1e-3)  # the card's "over 1.1 TB/s" is rounded up
    for dtype, burst in {"int8": 256, "fp8": 256, "bf16": 128, "fp16": 128, "tf32": 64, "fp32": 16}.items():
        assert float(c.peak[dtype]) == pytest.approx(0.8 * burst * T, rel=1e-12)
    assert float(c.memory.capacity) == 0x1E20000000


@pytest.mark.parametrize("name", ["a100-sxm-80g", *[n for n in NAMES if n.startswith("ascend")]])
def test_no_fp8_on_ampere_and_ascend(name: str) -> None:
    assert not {"fp8", "fp4"} & set(chip(name).peak)


def test_no_bf16_on_the_910a() -> None:
    assert "bf16" not in chip("ascend-910a").peak


@pytest.mark.parametrize("name", NAMES)
def test_int4_is_weight_only_everywhere(name: str) -> None:
    assert "int4" not in chip(name).peak


def test_sc11_has_no_reduce_scatter() -> None:
    link = chip("sc11").scale_up
    assert link.unsupported == ("reduce_scatter",)
    assert "reduce_scatter" not in link.collectives
    assert link.topology == "ring_chords"
    assert link.ring_order == (0, 2, 6, 7, 3, 1, 5, 4)
    assert link.chords == ((0, 1), (2, 3))


def test_a_part_of_a_mesh_is_slower_than_the_whole() -> None:
    link = chip("mi300x").scale_up
    assert (link.topology, link.links) == ("full_mesh", 7)
    fit = link.collectives["all_reduce"]
    assert dict(zip(fit.ranks, fit.bandwidth, strict=True)) == {2: 47.7e9, 4: 134.1e9, 8: 312.9e9}
    for name in ("ascend-910b1", "ascend-910b2", "ascend-910b3", "ascend-910b4", "mi355x"):
        assert (chip(name).scale_up.topology, chip(name).scale_up.links) == ("full_mesh", 7)
    assert (chip("ascend-910a").scale_up.group, chip("ascend-910a").scale_up.links) == (4, 3)


def test_alpha_depends_on_ranks_and_mode() -> None:
    for name in ("h100-sxm", "h200-sxm", "b200-sxm", "a100-sxm-80g"):
        links = chip(name).scale_up.collectives
        nccl, graph, eager = (links[op] for op in ("all_reduce", "all_reduce_custom", "all_reduce_custom_eager"))
        assert list(nccl.alpha) == sorted(nccl.alpha)
        assert all(e - g > 12e-6 for e, g in zip(eager.alpha, graph.alpha, strict=True))
        assert graph.alpha[-1] < nccl.alpha[-1] < eager.alpha[-1] + 25e-6
    slow, fast = chip("b200-sxm").scale_up, chip("h100-sxm").scale_up
    assert slow.collectives["all_reduce"].alpha[-1] > fast.collectives["all_reduce"].alpha[-1]


def test_k3_is_marked_as_inferred() -> None:
    c = chip("k3")
    assert "No public accelerator of this name was found" in c.notes[0]
    assert all(f.confidence in ("assumed", "derived") for _, f in sourced(c))
    assert [b / MIB for b in c.on_chip[0].capacity.bounds] == [20, 24, 32]
    assert [b / 1e9 for b in c.scale_up.bandwidth.bounds] == [25, 88, 150]
    assert c.dma is not None
    assert c.dma.overlap is None
