"""Rows of a sweep as the pictures take them: known columns, feasible rows, the best of each point, groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.errors import MlaplanError, did_you_mean
from mlaplan.report.plots.scale import tokens
from mlaplan.report.plots.style import LOOKS
from mlaplan.report.plots.subject import POINT, Unfit, what_if

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd

ALIASES = {"strategy": "label", "plan": "label", "context": "isl"}
LESS_IS_BETTER = ("ttft_s", "tpot_s", "usd_per_mtok", "queue_s", "decode_step_s", "prefill_step_s")


def column(frame: pd.DataFrame, name: str, flag: str = "") -> str:
    """The column of this name; MlaplanError with the nearest where there is none."""
    found = name if name in frame else ALIASES.get(name, name)
    if found in frame:
        return found
    known = [str(c) for c in frame.columns]
    hint = did_you_mean(name, [*known, *ALIASES])
    parts = [f"{flag} {name}: no such column".strip(), hint or f"the columns are {', '.join(known)}"]
    raise MlaplanError("; ".join(parts))


def numbers(frame: pd.DataFrame, name: str, flag: str = "") -> str:
    """A column that holds numbers."""
    import pandas as pd

    found = column(frame, name, flag)
    if not pd.api.types.is_numeric_dtype(frame[found]) or pd.api.types.is_bool_dtype(frame[found]):
        raise MlaplanError(f"{flag} {name}: not a column of numbers".strip())
    return found


def feasible(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows with a plan that can be used."""
    found = frame[frame["feasible"].astype(bool)] if "feasible" in frame else frame
    if found.empty:
        reasons = [str(r) for r in frame["reason"].dropna().unique()] if "reason" in frame else []
        raise Unfit("no point has a feasible plan" + (f": {reasons[0]}" if reasons else ""))
    return found


def axes_of(frame: pd.DataFrame) -> list[str]:
    """Columns of the question, those that vary."""
    names = [*POINT, *what_if(frame)]
    return [c for c in names if c in frame and frame[c].nunique() > 1]


def one_of_each(frame: pd.DataFrame, shown: Iterable[str], kind: str) -> None:
    """Raises Unfit where a column of the question varies that the picture does not show."""
    for name in axes_of(frame):
        if name not in shown:
            values = [value_text(name, v) for v in sorted(frame[name].dropna().unique(), key=_order)]
            few = ", ".join(values[:6]) + (", ..." if len(values) > 6 else "")
            raise Unfit(
                f"{kind}: {name} varies ({few}) and is not shown; choose one, --where {name}={values[0]}, "
                f"or tell them apart, --by {name}"
            )


def best(frame: pd.DataFrame, keys: Sequence[str], metric: str) -> pd.DataFrame:
    """The best row of each combination of keys, in their order."""
    rising = metric in LESS_IS_BETTER
    ordered = frame.sort_values([metric], ascending=rising, kind="stable", na_position="last")
    return ordered.drop_duplicates(list(keys)).sort_values(list(keys), kind="stable")


def groups(frame: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """(name, rows) of each group, in the order of first appearance; at most as many as can be told apart."""
    if not by:
        yield "", frame
        return
    parts = list(frame.groupby(list(by), sort=False, dropna=False))
    if len(parts) > len(LOOKS):
        raise Unfit(
            f"--by {','.join(by)} gives {len(parts)} groups; {len(LOOKS)} can be told apart: narrow it with --where"
        )
    for key, rows in parts:
        values = key if isinstance(key, tuple) else (key,)
        yield ", ".join(named(n, v) for n, v in zip(by, values, strict=True)), rows


def named(name: str, value: Any) -> str:
    """`h200-sxm`, `16 chips`, `isl 4k`."""
    text = value_text(name, value)
    if name in ("chip", "model", "label", "engine", "kv_layout"):
        return text.replace("_", "-")
    return f"{text} chips" if name == "devices" else f"{name} {text}"


def value_text(name: str, value: Any) -> str:
    """A cell as the command line would take it."""
    if isinstance(value, str):
        return value
    if name in ("isl", "osl", "prefix"):
        return tokens(float(value)).replace(",", "")
    return f"{value:g}" if isinstance(value, float) else str(value)


def chosen(frame: pd.DataFrame, name: str, wanted: str) -> pd.DataFrame:
    """Rows whose column has this value; the value as text, tokens also as 4k."""
    from mlaplan import units

    found = column(frame, name, "--where")
    cells = frame[found]
    keep = cells.astype(str) == wanted
    if not keep.any():
        try:
            number = float(units.parse_tokens(wanted)) if found in ("isl", "osl", "prefix") else float(wanted)
            keep = cells == number
        except (ValueError, TypeError, units.UnitError):
            pass
    if not keep.any():
        known = [value_text(found, v) for v in sorted(cells.dropna().unique(), key=_order)]
        hint = did_you_mean(wanted, known)
        few = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
        raise MlaplanError("; ".join([f"--where {name}={wanted}: no row has it", hint or f"the values are {few}"]))
    return frame[keep]


def _order(value: Any) -> Any:
    return (isinstance(value, str), value)
