"""Whole design spaces: points along axes, the best plan of each (or every plan), as rows of one table.

`mlaplan.sweep(...)`, the function of `mlaplan.api`, has the name of this package: calling the package calls it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def read(path: str) -> pd.DataFrame:
    """The rows of a sweep's result: CSV, JSON lines or Parquet, told by the file's suffix."""
    from mlaplan.sweep.rows import read as read_rows

    return read_rows(path)


class _Callable(ModuleType):
    def __call__(self, *args: Any, **given: Any) -> Any:
        return import_module("mlaplan.api").sweep(*args, **given)


sys.modules[__name__].__class__ = _Callable
