"""What one rank may hold: its own copy of its own share, and nothing else.

A rank that kept a view of a whole array could read what it does not own, and a partition would look right
without being one. So shares are copies of an asserted shape, and ranks are built from shares alone.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from mlaplan.kernel.weights import Weights


class ShareError(AssertionError):
    """A rank holds something other than its share."""


def even(total: int, ranks: int, what: str) -> int:
    """total / ranks, which must be whole."""
    if ranks < 1 or total % ranks:
        raise ValueError(f"{total} {what} do not divide over {ranks} ranks")
    return total // ranks


def assert_owned(arrays: dict[str, tuple[np.ndarray, tuple[int, ...]]]) -> None:
    """Each array has the shape of a share and owns its memory."""
    for name, (array, shape) in arrays.items():
        if array.shape != shape:
            raise ShareError(f"{name}: a rank holds {array.shape}, its share is {shape}")
        if array.base is not None:
            raise ShareError(f"{name}: a rank holds a view of a larger array")


def copied(weights: Weights) -> Weights:
    """The same weights in memory of their own: what a rank that replicates them holds."""
    held = {f.name: getattr(weights, f.name) for f in fields(weights)}
    own: dict[str, Any] = {name: a.copy() for name, a in held.items() if isinstance(a, np.ndarray)}
    return replace(weights, **own)


def weight_elements(weights: Weights) -> int:
    """Elements of all matrices and norms."""
    arrays = (getattr(weights, f.name) for f in fields(weights))
    return sum(a.size for a in arrays if isinstance(a, np.ndarray))
