"""Step traces: read from CSV, or drawn with a seed."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mlaplan.costs.policies import Device, Step
from mlaplan.errors import MlaplanError, nearest

MOST = 1e9  # of anything in a trace
COLUMNS = ("batch", "q_len", "kv_len", "comm_us", "queue_depth")
KINDS = ("steady", "mixed", "noisy")
SLOW_SLICE, SLOW_SHARE, SLICES = 0.3, 0.1, 16  # slices slower by 30 %, one in ten, of a step's 16
STRETCH, CONGESTED = 20, 2.0  # steps for which a noisy link stays as it is; how much slower it may be


def synthetic(d: Device, kind: str, steps: int = 200, seed: int = 0) -> list[Step]:
    """A trace of one kind.

    steady: 32 sequences that grow, one query token each. mixed: 1 to 64 sequences of 512 to 32 K tokens, every tenth
    step a prefill of 64 to 512 query tokens. noisy: mixed, on a link that is up to twice as slow for stretches.
    In all of them single slices are slower by 30 %.
    """
    rng = np.random.default_rng(seed)
    out = []
    slowness = 1.0
    for i in range(steps):
        if kind == "steady":
            batch, q_len, kv_len = 32, 1, 2048 + i
        else:
            batch, q_len = int(2 ** rng.uniform(0, 6)), 1
            kv_len = int(2 ** rng.uniform(9, 15))
            if rng.random() < 0.1:
                batch, q_len = int(rng.integers(1, 5)), int(2 ** rng.integers(6, 10))
        if kind == "noisy" and i % STRETCH == 0:
            slowness = float(rng.uniform(1.0, CONGESTED))
        slow = float(np.mean(rng.random(SLICES) < SLOW_SHARE)) * SLOW_SLICE
        comm = d.estimate_s(Step(batch, q_len, kv_len, 0.0)) * slowness * (1.0 + slow)
        out.append(Step(batch, q_len, kv_len, comm, int(rng.integers(0, 3)) if kind != "steady" else 0))
    return out


def read(file: str) -> list[Step]:
    """Steps of a CSV file with a header of `batch,q_len,kv_len,comm_us[,queue_depth]`; the order of columns is free."""
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise MlaplanError(f"{file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise MlaplanError(f"{file}: is not UTF-8 text; expected a CSV file") from None
    if not lines:
        raise MlaplanError(f"{file}:1: is empty; expected a header {','.join(COLUMNS)}")
    rows = csv.reader(lines)
    header = [name.strip() for name in next(rows)]
    _check_header(file, header)
    steps = [_step(file, number, header, row) for number, row in enumerate(rows, 2) if any(c.strip() for c in row)]
    if not steps:
        raise MlaplanError(f"{file}:1: has a header and no step")
    return steps


def _check_header(file: str, header: Sequence[str]) -> None:
    for name in header:
        if name not in COLUMNS:
            near = nearest(name, COLUMNS)
            hint = f"; did you mean '{near}'?" if near else ""
            raise MlaplanError(f"{file}:1: unknown column '{name}'; expected {', '.join(COLUMNS)}{hint}")
    if twice := [name for name in COLUMNS if header.count(name) > 1]:
        raise MlaplanError(f"{file}:1: column '{twice[0]}' appears twice")
    if missing := [name for name in COLUMNS[:4] if name not in header]:
        raise MlaplanError(f"{file}:1: missing column '{missing[0]}'")


def _step(file: str, number: int, header: Sequence[str], row: Sequence[str]) -> Step:
    if len(row) != len(header):
        raise MlaplanError(f"{file}:{number}: {len(row)} cells; expected {len(header)}")
    cells = dict(zip(header, row, strict=True))
    whole = {n: _number(file, number, n, cells[n]) for n in ("batch", "q_len", "kv_len")}
    comm = _number(file, number, "comm_us", cells["comm_us"], whole=False)
    depth = _number(file, number, "queue_depth", cells["queue_depth"], least=0) if "queue_depth" in cells else 0
    return Step(int(whole["batch"]), int(whole["q_len"]), int(whole["kv_len"]), comm * 1e-6, int(depth))


def _number(file: str, line: int, name: str, text: str, *, whole: bool = True, least: int = 1) -> float:
    wanted = f"a whole number from {least} to {MOST:,.0f}" if whole else f"microseconds from 0 to {MOST:,.0f}"
    try:
        value = float(int(text.strip())) if whole else float(text)
    except ValueError:
        raise MlaplanError(f"{file}:{line}: {name} is '{text.strip()}'; expected {wanted}") from None
    if not math.isfinite(value) or value < (least if whole else 0) or value > MOST:
        raise MlaplanError(f"{file}:{line}: {name} is {text.strip()}; expected {wanted}")
    return value
