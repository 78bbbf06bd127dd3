"""The table of docs/calibration.md: every shipped calibration with its release and held-out errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mlaplan.specs.chip import Calibration
from mlaplan.specs.lookup import load_calibration
from mlaplan.specs.releases import line_of

HARDWARE = Path(__file__).resolve().parents[2] / "hardware"
HEADER = "| chip | engine | release | products | experts | decode | prefill | all-reduce |"
WHOLE = ("fp8_block", "fp4", "int8", "bf16")  # the dtypes of DeepSeek's checkpoints; the first that was measured counts


def percent(residual: float | None) -> str:
    return "-" if residual is None else f"{100 * residual:.0f} %"


def errors(found: Calibration) -> Iterator[str]:
    """Of products and experts in the dtype of a checkpoint, of the cores with a 16-bit cache, of the all-reduce."""
    for op in ("gemm", "grouped_gemm"):
        fits = found.efficiency.get(op, {})
        dtype = next((d for d in WHOLE if d in fits), None)
        yield "-" if dtype is None else f"{percent(fits[dtype].residual)} {dtype}"
    for op in ("mla_decode", "mla_prefill"):
        fits = found.efficiency.get(op, {})
        yield percent(fits["bf16"].residual if "bf16" in fits else None)
    custom = found.scale_up.get("all_reduce_custom") or found.scale_up.get("all_reduce")
    yield percent(None if custom is None else custom.residual)


def rows() -> list[str]:
    """One line of each shipped calibration, engines and lines in order."""
    files = [load_calibration(str(path)) for path in HARDWARE.glob("*.cal.yaml")]
    files.sort(key=lambda f: (f.chip, f.engine, line_of(f.versions[f.engine]) or (0, 0)))
    return [f"| {' | '.join((f.chip, f.engine, f.versions[f.engine], *errors(f)))} |" for f in files]


if __name__ == "__main__":
    print("\n".join([HEADER, "|---|---|---|---|---|---|---|---|", *rows()]))
