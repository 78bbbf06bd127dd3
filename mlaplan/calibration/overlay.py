"""What calibration found as a file: `hardware/CHIP.ENGINE.cal.yaml`, read back before anyone uses it."""

from __future__ import annotations

from typing import Any

import yaml

from mlaplan.calibration.fitting import Fitted
from mlaplan.calibration.links import LinkFitted
from mlaplan.calibration.run import Calibrated

HEADER = """\
# Written by `mlaplan calibrate`; run it again rather than edit. Fits of one half of the measured rows (every other
# message size for collectives), residual: mean absolute relative error on the other half. Terms: mlaplan/specs/fit.py.
"""
TIMES = ("floor", "wave", "split", "ramp", "row", "active", "stored")
OFF = {"wave": 0.0, "split": 0.0, "ramp": 0.0, "row": 0.0, "active": 0.0, "stored": 0.0, "longest": 0.0,
       "passes": 0.0, "fill": 0.0, "quantise": 0.0, "store": 0.0, "supply": None, "tile": None}  # fmt: skip
LEAST_RESIDUAL = 0.01


def text(found: Calibrated, versions: dict[str, str], source: str | None = None) -> str:
    """The overlay as YAML."""
    data: dict[str, Any] = {"kind": "calibration", "chip": found.chip, "engine": found.engine}
    if versions:
        data["versions"] = versions
    if found.skipped:
        data["notes"] = [f"not used: {why}" for why in found.skipped]
    efficiency: dict[str, Any] = {}
    for fitted in found.kernels:
        efficiency.setdefault(fitted.op, {})[fitted.dtype] = kernel_data(fitted, source)
    if efficiency:
        data["efficiency"] = efficiency
    for name, side in (("scale_up", found.scale_up), ("scale_out", found.scale_out)):
        if side:
            data[name] = {fitted.op: link_data(fitted, source) for fitted in side}
    body = yaml.safe_dump(data, sort_keys=False, width=116, default_flow_style=None, allow_unicode=True)
    return HEADER + body


def kernel_data(fitted: Fitted, source: str | None = None) -> dict[str, Any]:
    """One kernel's entry; optional terms that are off are left out."""
    values: dict[str, Any] = {}
    for name, value in fitted.values.items():
        if name in OFF and value == OFF[name]:
            continue
        if name in TIMES:
            values[name] = _us(value)
        elif name == "supply":
            values[name] = f"{value / 1e12:.4g} TB/s"
        else:
            values[name] = int(value) if name == "tile" else value
    if fitted.held:
        values["held"] = list(fitted.held)
    note = {"note": f"worst: {fitted.worst_where}"} if fitted.worst_where else {}
    return {**values, **_basis(fitted, source), **note}


def link_data(fitted: LinkFitted, source: str | None = None) -> dict[str, Any]:
    """One collective's entry."""
    values: dict[str, Any] = {
        "ranks": list(fitted.ranks),
        "alpha": [_us(a) for a in fitted.alpha],
        "bandwidth": [f"{b / 1e9:.4g} GB/s" for b in fitted.bandwidth],
    }
    if fitted.knee:
        values["knee"] = [f"{k / 1e3:.4g} KB" for k in fitted.knee]
    return {**values, **_basis(fitted, source)}


def _basis(fitted: Fitted | LinkFitted, source: str | None) -> dict[str, Any]:
    return {
        "residual": max(float(f"{fitted.errors.mape:.3g}"), LEAST_RESIDUAL),
        "rows": fitted.rows,
        **({"dropped": fitted.dropped} if fitted.dropped else {}),
        "source": source or f"fit of {fitted.source}",
        "confidence": "measured",
    }


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.4g} us"
