"""What the titles of pictures say: model, chips and workload of a question or of the rows of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.errors import MlaplanError
from mlaplan.report import words
from mlaplan.sweep.rows import IDENTITY
from mlaplan.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd

    from mlaplan.rules.rule import Question

POINT = tuple(column.name for column in IDENTITY)


class Unfit(MlaplanError):
    """The input cannot give this picture; str() says why in one line."""


def of_question(q: Question, devices: int) -> str:
    """`DeepSeek-V3 on 16 x h200-sxm; 4,096 tokens in, 1,024 out, 512 in flight`."""
    s = q.setting
    engine = "" if q.profile.name == "generic" else f"; {q.profile.label}"
    return f"{s.model.title} on {devices} x {s.chip.name}; {words.workload(q.workload)}{engine}"


def of_frame(frame: pd.DataFrame, without: tuple[str, ...] = ()) -> str:
    """The same for rows of a sweep: what they share, less the columns that the picture itself shows."""
    shared = {c: only(frame, c) for c in (*POINT, *what_if(frame)) if c in frame and c not in without}
    shared = {name: value for name, value in shared.items() if value is not None}
    model = title(shared["model"]) if shared.get("model") else listed(frame, "model", without)
    chip = shared.get("chip") or listed(frame, "chip", without)
    count = shared.get("devices")
    on = f"{count} x {chip}" if count and chip else chip or (f"{count} chips" if count else "")
    parts = [" on ".join(part for part in (model, on) if part)]
    lengths = [
        f"{shared[name]:,} {'tokens in' if name == 'isl' else 'out'}" for name in ("isl", "osl") if name in shared
    ]
    parts.append(", ".join(lengths))
    if shared.get("prefix"):
        parts.append(f"{shared['prefix']:,} of the prompt cached")
    if "concurrency" in shared:
        parts.append(f"{shared['concurrency']:,} in flight")
    if "rate" in shared:
        parts.append(f"{shared['rate']:g} requests/s")
    limits = (("TTFT", "ttft_limit_s"), ("TPOT", "tpot_limit_s"))
    parts += [f"{name} up to {format_seconds(shared[c])}" for name, c in limits if c in shared]
    if shared.get("engine", "generic") != "generic":
        parts.append(str(shared["engine"]))
    parts += [
        changed(name, shared[name]) for name in what_if(frame) if name in shared and not unchanged(name, shared[name])
    ]
    return "; ".join(part for part in parts if part)


def title(model: Any) -> str:
    """A model as other pictures call it; by the name in the rows where no such model is known here."""
    from mlaplan.specs.lookup import load_model

    try:
        return load_model(str(model)).title
    except MlaplanError:
        return str(model)


def only(frame: pd.DataFrame, column: str) -> Any:
    """The one value of a column, None where there are several or none."""
    found = frame[column].dropna().unique()
    if len(found) != 1:
        return None
    return found[0].item() if hasattr(found[0], "item") else found[0]


def listed(frame: pd.DataFrame, column: str, without: tuple[str, ...]) -> str:
    """The values of a column in words: up to three by name."""
    if column in without or column not in frame:
        return ""
    found = [str(v) for v in frame[column].dropna().unique()]
    found = [title(name) for name in found] if column == "model" and len(found) <= 3 else found
    return ", ".join(found) if len(found) <= 3 else f"{len(found)} {column}s"


def changed(column: str, value: Any) -> str:
    """A what-if axis in words: `memory.bandwidth x0.5`, `model.kv_lora_rank 256`."""
    name = column.removeprefix("chip.")
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{name.removesuffix('.factor')} x{shown}" if name.endswith(".factor") else f"{name} {shown}"


def unchanged(column: str, value: Any) -> bool:
    """Whether a what-if axis leaves the figure as it is."""
    return column.endswith(".factor") and value == 1


def what_if(frame: pd.DataFrame) -> list[str]:
    """Columns of what-if axes: figures by path."""
    return [c for c in frame.columns if "." in str(c)]
