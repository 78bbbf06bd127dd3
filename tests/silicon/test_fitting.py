"""Fits of made-up measurements: known constants come back, bad rows do not matter, too little is refused."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy", reason="needs the silicon extra")

from mlaplan.calibration import fitting, forms, links, overlay, timings
from mlaplan.calibration.rows import Rows, without_spikes
from mlaplan.errors import MlaplanError
from mlaplan.specs.lookup import load_calibration, load_chip

CHIP = load_chip(str(Path(__file__).resolve().parents[2] / "hardware" / "h100-sxm.yaml"))
DECODE = forms.form_of("mla_decode", "bf16")
TRUE = {"compute": 0.62, "memory": 0.88, "floor": 12e-6, "norm": 3.5, "wave": 4e-6, "ramp": 1.6e-6, "split": 4e-6,
        "passes": 0.8}  # fmt: skip


def decode_rows(noise: float = 0.0, seed: int = 1, most: int = 12) -> Rows:
    """Every combination of heads, batch and context, timed by the true constants."""
    grid = np.meshgrid(2.0 ** np.arange(8), 2.0 ** np.arange(0, most - 2), 2.0 ** np.arange(1, most + 5), indexing="ij")
    columns = {n: g.ravel() for n, g in zip(("heads", "batch", "context"), grid, strict=True)}
    blank = Rows("mla_decode", "bf16", columns, np.ones(grid[0].size), "made up")
    t = DECODE.seconds(fitting.constants(TRUE), blank, CHIP)
    t = t * np.exp(np.random.default_rng(seed).normal(0, noise, len(t)))
    return Rows("mla_decode", "bf16", columns, t, "made up")


def fit(rows: Rows) -> fitting.Fitted:
    return fitting.fit(DECODE, rows, CHIP, CHIP.kernel("mla_decode", "bf16"))


def test_known_constants_come_back():
    found = fit(decode_rows())
    for name, value in TRUE.items():
        assert found.values[name] == pytest.approx(value, rel=0.01), name
    assert found.held == ()
    assert found.errors.mape < 1e-3


def test_noise_and_stalls_move_them_little():
    rows = decode_rows(0.05)
    stalled = rows.seconds.copy()
    stalled[::50] *= 100.0
    cleaned = without_spikes(Rows(rows.op, rows.dtype, rows.columns, stalled, rows.source), ("context", "batch"))
    assert 20 <= cleaned.dropped["spikes"] <= 30
    found = fit(cleaned)
    quiet = decode_rows()
    off = DECODE.seconds(fitting.constants(found.values), quiet, CHIP) / quiet.seconds - 1.0
    assert np.abs(off).mean() < 0.02, "compute and norm may trade places, the times may not"
    for name in ("memory", "floor", "wave"):
        assert found.values[name] == pytest.approx(TRUE[name], rel=0.06), name
    assert found.errors.median == pytest.approx(0.034, abs=0.01)


def test_twice_the_same_is_the_same():
    assert fit(decode_rows(0.05)) == fit(decode_rows(0.05))


def test_what_rows_cannot_tell_is_held_and_named():
    rows = decode_rows(0.02)
    found = fit(rows.take(rows.columns["batch"] <= 64))  # one block a sequence never fills 132 cores twice
    assert "wave" in found.held
    assert found.values["wave"] == CHIP.kernel("mla_decode", "bf16").wave == 0.0
    assert found.values["floor"] == pytest.approx(TRUE["floor"], rel=0.05)


def test_three_rows_are_refused_in_one_line():
    rows = decode_rows()
    with pytest.raises(MlaplanError, match=r"^mla_decode bf16: 3 usable measurements; expected at least 4, better 24$"):
        fit(rows.take(np.arange(len(rows)) < 3))


def test_ten_rows_give_a_useful_result_with_an_honest_error():
    rows = decode_rows(0.05, most=14)
    picked = np.zeros(len(rows), dtype=bool)
    picked[np.random.default_rng(5).choice(len(rows), 10, replace=False)] = True
    found = fit(rows.take(picked))
    rest = rows.take(~picked)
    actual = fitting.errors_of(DECODE.seconds(fitting.constants(found.values), rest, CHIP), rest.seconds)
    assert actual.mape < 0.2
    assert 0.5 * actual.mape < found.errors.mape < 2.5 * actual.mape
    assert len(found.held) >= len(DECODE.free) - 3


def test_memory_never_exceeds_its_bound():
    rows = decode_rows()
    faster = Rows(rows.op, rows.dtype, rows.columns, rows.seconds * 0.8, rows.source)
    found = fit(faster)
    assert found.values["memory"] <= 0.95
    assert "memory at its bound" in found.held


def test_a_collective_with_a_knee_comes_back_and_stays_below_the_link():
    sizes = 2.0 ** np.arange(9, 29)
    columns = {"ranks": np.repeat([2.0, 8.0], len(sizes)), "bytes": np.tile(sizes, 2)}
    true = links.LinkFitted("all_gather", (2, 8), (6e-6, 12e-6), (200e9, 300e9), (1e6, 3e6), None, 0, 0, "")
    t = links.seconds(true, Rows("all_gather", "bf16", columns, np.ones(40), ""))
    found = links.fit(Rows("all_gather", "bf16", columns, t, ""), bound=450e9)
    assert found.alpha == pytest.approx(true.alpha, rel=0.01)
    assert found.bandwidth == pytest.approx(true.bandwidth, rel=0.01)
    assert found.knee == pytest.approx(true.knee, rel=0.03)
    assert max(links.fit(Rows("all_gather", "bf16", columns, t, ""), bound=250e9).bandwidth) <= 250e9


def test_a_filled_in_template_becomes_an_overlay_that_plans_use(tmp_path):
    chip_file = tmp_path / "my-chip.yaml"
    text = Path(CHIP.origin).read_text("utf-8")
    chip_file.write_text(text.replace("name: h100-sxm", "name: my-chip"), "utf-8")
    chip = load_chip(str(chip_file))
    csv = tmp_path / "kernels.csv"
    csv.write_text(filled_in(chip), "utf-8")
    found = timings.calibrate(chip, timings.read(str(csv)), "generic")
    path = tmp_path / "my-chip.generic.cal.yaml"
    path.write_text(overlay.text(found, {}), "utf-8")
    assert load_calibration(str(path)).chip == "my-chip"
    laid = load_chip(str(chip_file), engine="sglang")
    assert laid.kernel("mla_decode", "bf16").floor == pytest.approx(30e-6, rel=0.1)
    assert laid.scale_up.collectives["all_reduce"].alpha == pytest.approx([50e-6], rel=0.01)
    # the wheel's formula for gemm has no tiles on this chip, and a dozen rows do not bring them
    assert laid.kernel("gemm", "bf16").tile == chip.kernel("gemm", "bf16").tile


def filled_in(chip) -> str:
    """The template with times of a chip whose calls start in 30 us."""
    lines = []
    for line in timings.template().splitlines():
        cells = dict(zip(timings.COLUMNS, line.split(","), strict=False))
        op = cells["op"]
        if line.startswith("#") or op == "op":
            lines.append(line)
            continue
        if op == "all_reduce":
            seconds = 50e-6 + 2 * 7 / 8 * float(cells["bytes"]) / 200e9
        else:
            form = forms.form_of(op, cells["dtype"])
            columns = {n: np.array([float(cells[n])]) for n in form.columns if cells[n]}
            own = fitting.constants({**fitting.held_values(form, chip.kernel(op, "bf16"), plain=True), "floor": 30e-6})
            seconds = float(form.seconds(own, Rows(op, "bf16", columns, np.ones(1), ""), chip)[0])
        lines.append(f"{line}{seconds * 1e6:.4f}")
    return "\n".join(lines)


def test_timings_that_no_formula_follows_are_named_and_not_written(tmp_path):
    rng = np.random.default_rng(3)
    lines = [line for line in filled_in(CHIP).splitlines() if line and not line.startswith("#")]
    head, rest = lines[0], [line.rsplit(",", 1) for line in lines[1:]]
    wild = [f"{shape},{t if shape.startswith('all') else 100 ** rng.random() * 10:.4}" for shape, t in rest]
    csv = tmp_path / "kernels.csv"
    csv.write_text("\n".join([head, *wild]), "utf-8")
    found = timings.calibrate(CHIP, timings.read(str(csv)), "generic")
    assert found.kernels == [] and [f.op for f in found.scale_up] == ["all_reduce"]
    assert [why.split(":")[0] for why in found.skipped] == ["mla_decode bf16", "gemm bf16"]
    assert all("more than 30%" in why for why in found.skipped)
