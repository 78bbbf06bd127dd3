"""Output error of a rounded latent cache against context, one line per cache format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlaplan.report.picture import save

if TYPE_CHECKING:
    from mlaplan.kernel.cache_error import CacheError


def draw_cache_errors(errors: Sequence[CacheError], title: str, path: str) -> None:
    """Write the plot to `path`; the suffix decides the file type."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name in dict.fromkeys(e.cache_format for e in errors):
        line = [e for e in errors if e.cache_format == name]
        axes.plot([e.context for e in line], [e.relative for e in line], marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("context [tokens]")
    axes.set_ylabel("output error, max|d| / max|ref|")
    axes.set_title(f"{title}: rounded against exact latent cache")
    figure.legend(title="cache format", loc="outside right upper")
    axes.grid(alpha=0.3)
    save(figure, path)
