"""A user's own timings: a CSV file with one call a line, and the template for one."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING

import numpy as np

from mlaplan.calibration import fitting, forms, links
from mlaplan.calibration.rows import Rows, without_spikes
from mlaplan.calibration.run import Calibrated, within
from mlaplan.errors import Problem, SpecError, Unreadable, did_you_mean

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip

TIME = "time_us"
OPTIONAL = {"q_len": 1.0}
LINKS = ("all_reduce", "all_reduce_custom", "all_gather", "reduce_scatter", "all_to_all", "dispatch", "combine")
LINK_COLUMNS = ("ranks", "bytes")
OPS = (*(op for op in forms.FORMS if op != "kv_cast"), *LINKS)
COLUMNS = ("op", "dtype", "batch", "heads", "q_len", "context", "tokens", "m", "k", "n", "rows", "active", "stored",
           "hidden", "inner", "ranks", "bytes", TIME)  # fmt: skip
GROWS = {"mla_decode": ("context", "batch"), "mla_prefill": ("tokens", "batch")}
LARGEST = 1e15

NOTES = """\
# One timed call a line; fill in time_us and leave what an operator does not have empty. Times of a call inside a
# CUDA graph (or without the host's launch), median of many, buffers larger than the cache where you can.
#   mla_decode    batch, heads (of one chip), q_len (1, or 1 + drafts), context; dtype is the cache's: bf16, fp8
#   mla_prefill   batch, heads, tokens of each prompt
#   gemm          [m, k] x [k, n]; dtype bf16, fp8, fp8_block, int8, int4, fp4
#   bmm           heads products [m, k] x [k, n]
#   grouped_gemm  rows (token copies), active experts of stored ones, hidden size, inner width: gate, up and down
#   all_reduce, all_gather, reduce_scatter, all_to_all, dispatch, combine    ranks, bytes of the whole buffer
# Ten lines of one operator give its floor, bandwidth and rate; the other constants stay the chip's. Cover small and
# large calls, and both kinds: bound by memory (few heads, few rows) and by arithmetic (many).
"""
EXAMPLES: tuple[dict[str, object], ...] = (
    *({"op": "mla_decode", "dtype": "bf16", "batch": b, "heads": h, "q_len": 1, "context": s}
      for h, b, s in ((16, 1, 1024), (16, 8, 4096), (16, 64, 4096), (16, 256, 8192), (64, 32, 8192), (128, 1, 2048),
                      (128, 16, 4096), (128, 64, 4096), (128, 256, 8192), (16, 512, 1024))),
    *({"op": "gemm", "dtype": "bf16", "m": m, "k": k, "n": n}
      for m, k, n in ((1, 7168, 2112), (16, 1536, 24576), (64, 7168, 4096), (256, 7168, 18432), (1024, 7168, 18432),
                      (4096, 7168, 18432), (8192, 7168, 7168), (16, 16384, 7168), (128, 2048, 7168),
                      (2048, 1536, 24576))),
    *({"op": "all_reduce", "dtype": "bf16", "ranks": 8, "bytes": 2**p} for p in (14, 17, 20, 23, 26)),
)  # fmt: skip


def template() -> str:
    """A file to fill in."""
    out = io.StringIO()
    out.write(NOTES)
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(EXAMPLES)
    return out.getvalue().rstrip("\n")


def read(file: str) -> list[Rows]:
    """The timed calls of a file, by operator and dtype; SpecError with every mistake in it."""
    lines = _lines(file)
    if not lines:
        raise SpecError([Problem(file, None, None, "no header", f"columns such as {', '.join(COLUMNS)}")])
    number, header = lines[0]
    names = [name.strip() for name in header]
    problems = [
        Problem(file, number, None, f"unknown column '{name}'", f"one of {', '.join(COLUMNS)}",
                did_you_mean(name, COLUMNS))
        for name in names if name not in COLUMNS
    ]  # fmt: skip
    problems += [Problem(file, number, None, f"missing column '{name}'") for name in ("op", TIME) if name not in names]
    if problems:
        raise SpecError(problems)
    calls: dict[tuple[str, str], list[dict[str, float]]] = {}
    untimed = 0
    for number, cells in lines[1:]:
        values = dict(zip(names, (c.strip() for c in cells), strict=False))
        if len(cells) > len(names):
            problems.append(Problem(file, number, None, f"{len(cells)} cells", f"{len(names)}, as in the header"))
        elif not values.get(TIME):
            untimed += 1
        else:
            found = _call(file, number, values, problems)
            calls.setdefault((values["op"], values.get("dtype") or "bf16"), []).append(found)
    if problems:
        raise SpecError(problems)
    if not calls:
        raise SpecError([Problem(file, None, None, f"none of {untimed} lines has a {TIME}", "timed calls")])
    return [_rows(file, op, dtype, found) for (op, dtype), found in calls.items()]


def _lines(file: str) -> list[tuple[int, list[str]]]:
    """(line number, cells) of every line that is not blank or a comment."""
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:  # noqa: PTH123
            text = stream.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise Unreadable([Problem(file, None, None, f"cannot be read: {reason}")]) from None
    if "\0" in text:
        raise Unreadable([Problem(file, None, None, "not a text file")])
    kept = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")]
    return [(i, next(csv.reader([line]))) for i, line in kept]


def _call(file: str, line: int, values: dict[str, str], problems: list[Problem]) -> dict[str, float]:
    op, dtype = values.get("op", ""), values.get("dtype") or "bf16"
    if op not in OPS:
        known = OPS
        problems.append(
            Problem(file, line, None, f"unknown op '{op}'", f"one of {', '.join(known)}", did_you_mean(op, known))
        )
        return {}
    known = tuple(forms.CACHE_BYTES) if op.startswith("mla") else tuple(forms.OPERAND_BYTES)
    if dtype not in known:
        problems.append(Problem(file, line, None, f"unknown dtype '{dtype}' of {op}", f"one of {', '.join(known)}",
                                did_you_mean(dtype, known)))  # fmt: skip
    out: dict[str, float] = {}
    for name in (*(LINK_COLUMNS if op in LINKS else forms.FORMS[op].columns), TIME):
        raw = values.get(name, "")
        if not raw and name in OPTIONAL:
            out[name] = OPTIONAL[name]
            continue
        try:
            number = float(raw)
        except ValueError:
            number = math.nan
        if not 0 < number < LARGEST:
            got = f"'{raw}'" if raw else "nothing"
            problems.append(Problem(file, line, None, f"{name} of {op} is {got}", "a number above zero"))
        out[name] = number
    return out


def _rows(file: str, op: str, dtype: str, calls: list[dict[str, float]]) -> Rows:
    columns = {name: np.array([call[name] for call in calls]) for name in calls[0] if name != TIME}
    seconds = np.array([call[TIME] for call in calls]) * 1e-6
    order = np.lexsort(tuple(columns.values())[::-1])
    columns = {name: column[order] for name, column in columns.items()}
    rows = Rows(op, dtype, columns, seconds[order], file)
    return without_spikes(rows, GROWS[op]) if op in GROWS else rows


def calibrate(chip: Chip, groups: list[Rows], engine: str) -> Calibrated:
    """Calibrate a chip from a user's rows."""
    out = Calibrated(chip.name, engine)
    for rows in groups:
        if rows.op in LINKS:
            link = links.fit(rows, bound=float(chip.scale_up.bandwidth))
            if within(out, link.op, link.errors.mape):
                out.scale_up.append(link)
        else:
            form = forms.form_of(rows.op, rows.dtype)
            fitted = fitting.fit(form, rows, chip, chip.kernel(rows.op, rows.dtype))
            if within(out, f"{rows.op} {rows.dtype}", fitted.errors.mape):
                out.kernels.append(fitted)
    return out
