"""What the titles of pictures say: model, chips and workload of a question or of the rows of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.errors import MlaplanError
from mlaplan.report import words
from mlaplan.report.plots.scale import tokens

if TYPE_CHECKING:
    import pandas as pd

    from mlaplan.rules.rule import Question

POINT = ("model", "chip", "devices", "isl", "osl", "concurrency", "rate", "prefix", "engine")


class Unfit(MlaplanError):
    """The input cannot give this picture; str() says why in one line."""


def of_question(q: Question, devices: int) -> str:
    """`DeepSeek-V3 on 16 x h200-sxm; 4,096 tokens in, 1,024 out, 512 in flight`."""
    s = q.setting
    engine = "" if q.profile.name == "generic" else f"; {q.profile.label}"
    return f"{s.model.title} on {devices} x {s.chip.name}; {words.workload(q.workload)}{engine}"


def of_frame(frame: pd.DataFrame, without: tuple[str, ...] = ()) -> str:
    """The same for rows of a sweep: what they share, less the columns that the picture itself shows."""
    shared = {name: only(frame, name) for name in POINT if name not in without and name in frame}
    shared |= {name: only(frame, name) for name in what_if(frame) if name not in without}

    def value(name: str) -> Any:
        found = shared.get(name)
        return None if found is None or found != found else found

    model = value("model") or listed(frame, "model", without)
    chip = value("chip") or listed(frame, "chip", without)
    devices = value("devices")
    on = " x ".join(str(part) for part in (devices, chip) if part)
    parts = [" on ".join(part for part in (model, on) if part)]
    lengths = [f"{tokens(value('isl'))} tokens in" if value("isl") else "", f"{tokens(value('osl'))} out" if value("osl") else ""]
    parts.append(", ".join(part for part in lengths if part))
    if value("prefix"):
        parts.append(f"{tokens(value('prefix'))} of the prompt cached")
    if value("concurrency"):
        parts.append(f"{value('concurrency'):,.0f} in flight")
    if value("rate"):
        parts.append(f"{value('rate'):g} requests/s")
    if value("engine") and value("engine") != "generic":
        parts.append(str(value("engine")))
    parts += [f"{name} {shared[name]}" for name in what_if(frame) if value(name) is not None]
    return "; ".join(part for part in parts if part)


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
    return ", ".join(found) if len(found) <= 3 else f"{len(found)} {column}s"


def what_if(frame: pd.DataFrame) -> list[str]:
    """Columns of what-if axes: figures by path."""
    return [c for c in frame.columns if "." in str(c)]
