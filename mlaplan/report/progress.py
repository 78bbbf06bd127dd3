"""A progress bar of points with the rate of strategies and the time left, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class _Rate(TextColumn):
    """Strategies priced per second since the start."""

    def render(self, task: Task) -> Text:
        seconds = task.elapsed or 0.0
        rate = task.fields["priced"] / seconds if seconds else 0.0
        return Text(f"{rate / 1e6:.2f} M strategies/s" if rate else "")


@contextmanager
def bar(points: int) -> Iterator[Callable[[int, int], None]]:
    """`tell(points ended, strategies priced)` moves the bar, which vanishes at the end."""
    columns = (
        BarColumn(24),
        MofNCompleteColumn(),
        TextColumn("points"),
        _Rate(""),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("sweep", total=points, priced=0)
        priced = 0

        def tell(ended: int, more: int) -> None:
            nonlocal priced
            priced += more
            progress.update(task, advance=ended, priced=priced)

        yield tell
