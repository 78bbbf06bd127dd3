"""The rows of a sweep: one per point and plan, the same columns in every format.

What is asked comes first (`IDENTITY`, then one column per further axis), then whether a plan was found and, where
none was, why; then the plan, in the columns of `recommend --format csv`; then `front`. SI with the unit in the name;
empty where there is no number.

`front`: on the Pareto front of tok/s/chip and tok/s/user. Of best plans, among the rows that ask the same but for
devices and load; of every plan of a point (`--all`, `--pareto`), among the plans of that point.

Two columns of the csv would have the name of what is asked: `devices` is the number asked for (chips in use are
tp x pp x dp x replicas), and `concurrency` the requests asked for, while those that the plan serves are `in_flight`.

A further axis is named by its path:

    pin.tp                         a strategy column that is pinned
    chip.scale_out.bandwidth       a figure of the chip, in SI
    chip.memory.bandwidth.factor   a figure of the chip, multiplied by so much
    model.kv_lora_rank             a figure of the model
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    import pandas as pd

    from mlaplan.explain import Explanation

Row = dict[str, Any]


class Column(NamedTuple):
    """A column and what it holds: text, int, float or bool; all but `feasible` and `front` may be empty."""

    name: str
    kind: str


def _columns(kind: str, *names: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name in names)


def _bands(*names: str) -> tuple[Column, ...]:
    return _columns("float", *(f"{name}{end}" for name in names for end in ("", "_low", "_high")))


IDENTITY = (
    *_columns("text", "model", "chip"),
    *_columns("int", "devices", "isl", "osl", "concurrency"),
    *_columns("float", "rate"),
    *_columns("int", "prefix"),
    *_columns("text", "engine"),
    *_columns("float", "ttft_limit_s", "tpot_limit_s"),
)
FOUND = (Column("feasible", "bool"), Column("reason", "text"))
PLAN = (
    Column("label", "text"),
    *_columns("int", "tp", "pp", "dp", "ep", "dcp", "cp", "replicas"),
    *_columns("text", "kv_layout", "kv_dtype", "weight_dtype"),
    *_columns("int", "block_size", "prefill_chunk", "two_batch_overlap", "mtp", "batch"),
    *_bands("ttft_s", "tpot_s", "tok_s_chip", "tok_s_user", "requests_per_s", "usd_per_mtok", "tokens_per_step"),
    *_columns("float", "queue_s", "prefill_share", "in_flight", "decode_step_s", "decode_comm_share"),
    *_columns("float", "prefill_step_s", "prefill_comm_share", "weight_bytes", "total_bytes", "usable_bytes"),
    Column("kv_tokens", "int"),
)
FRONT = Column("front", "bool")
SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
DTYPES = {"text": "string", "int": "Int64", "float": "float64", "bool": "bool"}


def columns(further: Sequence[Column] = ()) -> tuple[Column, ...]:
    """All columns of a sweep with these further axes, in order."""
    return (*IDENTITY, *further, *FOUND, *PLAN, FRONT)


def of_plan(e: Explanation) -> Row:
    """The `PLAN` columns of one plan."""
    s, m = e.strategy, e.memory
    row: Row = {"label": s.label(), **s.to_dict()}
    if e.served is not None:
        v = e.served
        for name in ("ttft_s", "tpot_s", "tok_s_chip", "tok_s_user", "requests_per_s", "usd_per_mtok",
                     "tokens_per_step"):  # fmt: skip
            known = getattr(v, name)
            if known is not None:
                row |= {name: known.value, f"{name}_low": known.low, f"{name}_high": known.high}
        row |= {"queue_s": v.queue_s, "prefill_share": v.prefill_share, "in_flight": v.concurrency}
    if e.decode is not None and e.prefill is not None:
        row |= {"decode_step_s": e.decode.step_s.value, "decode_comm_share": e.decode.comm_share}
        row |= {"prefill_step_s": e.prefill.step_s.value, "prefill_comm_share": e.prefill.comm_share}
    row |= {"weight_bytes": m.items["weight_bytes"], "total_bytes": m.total_bytes, "usable_bytes": m.usable_bytes}
    return row | {"kv_tokens": m.kv_tokens}


def form_of(path: str) -> str:
    """csv, jsonl or parquet, by the suffix."""
    form = SUFFIXES.get(Path(path).suffix.lower())
    if form is None:
        raise MlaplanError(f"{path}: no form of rows; expected a name that ends in {', '.join(SUFFIXES)}")
    return form


def read(path: str) -> pd.DataFrame:
    """The rows of a result, each column of its kind; further axes keep the kind that the file gives them."""
    import pandas as pd

    form = form_of(path)
    try:
        if form == "parquet":
            need_pyarrow(path)
            frame = pd.read_parquet(path)
        elif form == "jsonl":
            with Path(path).open(encoding="utf-8") as stream:
                frame = pd.DataFrame([_object(line, f"{path}:{n}") for n, line in enumerate(stream, 1)])
        else:
            frame = _from_text(pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""]), path)
    except OSError as error:
        raise MlaplanError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise MlaplanError(f"{path}: holds no rows that can be read: {str(error).splitlines()[0]}") from None
    return typed(frame, path)


def _object(line: str, place: str) -> Any:
    """A line of JSON that holds a row."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise MlaplanError(f"{place}: holds no row that can be read: {error}") from None
    if not isinstance(found, dict):
        raise MlaplanError(f"{place}: holds no row; expected an object of columns")
    return found


def _from_text(frame: pd.DataFrame, path: str) -> pd.DataFrame:
    """Columns of text as what they hold: numbers to the last digit, true and false."""
    known = {column.name: column.kind for column in columns()}
    kinds = {str(name): known.get(str(name)) or _kind_of(frame[name].dropna()) for name in frame}
    for name, kind in kinds.items():
        values = [None if text is None or text != text else text for text in frame[name]]
        if kind != "text":
            frame[name] = _values(values, kind, name, path)
    return frame.astype({name: DTYPES[kind] for name, kind in kinds.items()})


READ: dict[str, tuple[Callable[[str], Any], Any]] = {"int": (int, None), "float": (float, math.nan)}
TRUTH = {"true": True, "false": False, "True": True, "False": False}  # pandas writes True


def _values(texts: list[str | None], kind: str, name: str, path: str) -> list[Any]:
    """A column of numbers or truth values; the line of the first that is none is told."""
    read_one, empty = READ.get(kind, (None, None))
    out: list[Any] = []
    for line, text in enumerate(texts, 2):  # below the names
        try:
            out.append(TRUTH[text or ""] if read_one is None else empty if text is None else read_one(text))
        except (ValueError, KeyError):
            shown = "is empty, as in a line that was cut" if text is None else f"holds '{text}'"
            expected = {"int": "a whole number", "float": "a number"}.get(kind, "true or false")
            raise MlaplanError(f"{path}:{line}: column '{name}' {shown}; expected {expected}") from None
    return out


def _kind_of(values: pd.Series[str]) -> str:
    """The kind of a further axis, from what its values look like."""
    for kind, read_one in (("int", int), ("float", float)):
        try:
            _ = [read_one(text) for text in values]
        except ValueError:
            continue
        return kind
    return "text"


def typed(frame: pd.DataFrame, path: str = "these rows") -> pd.DataFrame:
    """The rows with each known column in its dtype; refuses rows that no sweep wrote."""
    known = {column.name: column.kind for column in columns()}
    missing = [name for name in known if name not in frame]
    if missing:
        raise MlaplanError(f"{path}: is no result of a sweep: it has no column '{missing[0]}'")
    for name in (name for name, kind in known.items() if kind == "bool" and frame[name].dtype != bool):
        for row, value in enumerate(frame[name], 1):
            if not isinstance(value, bool):  # what pandas would take for true
                raise MlaplanError(f"{path}: row {row}: column '{name}' is neither true nor false")
    further = {name: _dtype(frame[name]) for name in frame if name not in known}
    return frame.astype(further | {name: DTYPES[kind] for name, kind in known.items()})


def _dtype(column: pd.Series[Any]) -> str:
    kind = {"i": "int", "u": "int", "f": "float", "b": "bool"}.get(getattr(column.dtype, "kind", "O"), "text")
    return DTYPES[kind]


def need_pyarrow(path: str) -> None:
    """Refuses Parquet where its library is missing."""
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise MlaplanError(f"{path}: Parquet needs pyarrow: pip install 'mlaplan[parquet]', or name a .csv or .jsonl")


def complete(row: Mapping[str, Any], of: Sequence[Column]) -> Row:
    """The row with every column, None where it has no value."""
    return {column.name: row.get(column.name) for column in of}
