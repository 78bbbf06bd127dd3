"""A figure to a file or into a page: the same bytes for the same figure, and all of the file or nothing."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mlaplan.errors import MlaplanError
from mlaplan.report.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# what a writer would put down of the day
DATELESS = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def save(figure: Figure, path: str, dpi: float = 200) -> None:
    """Write the figure; the suffix decides the file type. Raises MlaplanError where the file cannot be written."""
    target, suffix = Path(path), Path(path).suffix.lower()
    part = target.with_name(f".{target.name}.part")
    try:
        with style.drawing(float(figure.get_figwidth())):
            figure.savefig(part, format=suffix[1:] or None, dpi=dpi, metadata=DATELESS.get(suffix))
        part.replace(target)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise MlaplanError(f"{path}: cannot be drawn: {reason}") from None
    finally:
        part.unlink(missing_ok=True)


def inline_svg(figure: Figure, name: str) -> str:
    """The figure as an <svg> element of a page; `name` begins every id, so that several figures may share the page."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise MlaplanError(f"'{name}' cannot begin an id; expected a word such as 'pareto'")
    text = io.StringIO()
    with style.drawing(float(figure.get_figwidth())):
        figure.savefig(text, format="svg", metadata=DATELESS[".svg"])
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.S)  # names the drawing library by address
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r'(href="|url\()#', rf"\1#{name}-", svg).strip()
