"""Whole design spaces: points along axes, the best plan of each (or every plan), as rows of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def read(path: str) -> pd.DataFrame:
    """The rows of a sweep's result: CSV, JSON lines or Parquet, told by the file's suffix."""
    from mlaplan.sweep.rows import read as read_rows

    return read_rows(path)
