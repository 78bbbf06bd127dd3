"""Who may see which key: one rule for causal masks, multi-token steps, slices, pages and shards.

    query at position p sees the key at position s  iff  s <= p

Positions are absolute, so the rule needs no alignment. The usual "causal mask" of q_len queries over T keys
follows as the bottom-right aligned one, and a rank that owns every N-th key needs no formula of its own.
"""

from __future__ import annotations

import numpy as np


def step_positions(cached: int, q_len: int) -> np.ndarray:
    """Positions of the q_len newest tokens behind `cached` older ones. [q_len]"""
    return np.arange(cached, cached + q_len)


def visible(query_positions: np.ndarray, key_positions: np.ndarray) -> np.ndarray | None:
    """The rule as a mask [q_len, T]; None where every query sees every key, so that no mask is applied."""
    if not len(key_positions) or not len(query_positions) or key_positions.max() <= query_positions.min():
        return None
    return key_positions[None, :] <= query_positions[:, None]
