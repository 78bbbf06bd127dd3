"""A figure to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(figure: Figure, path: str, **options: Any) -> None:
    """Write the figure; the suffix decides the file type. Raises MlaplanError where the file cannot be written."""
    try:
        figure.savefig(path, **options)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise MlaplanError(f"{path}: cannot be drawn: {reason}") from None
