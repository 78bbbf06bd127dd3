"""A figure to a file: the same bytes for the same figure, and all of the file or nothing."""

from __future__ import annotations

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
