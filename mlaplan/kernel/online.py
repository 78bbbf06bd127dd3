"""Attention over slices of keys that arrive one by one, in any order (online softmax).

State per row: the running maximum m, the sum l and the accumulator a, both relative to exp(m). A slice with
maximum m' turns them into

    M = max(m, m'),   l <- l e^(m-M) + sum e^(s-M),   a <- a e^(m-M) + sum e^(s-M) c

Leaving out the rescale by e^(m-M) is the classic mistake: right as long as no later slice raises the maximum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mlaplan.kernel.partial import Partial, log_sum
from mlaplan.kernel.visibility import visible


@dataclass(frozen=True, slots=True)
class KvSlice:
    """Some cached rows and where they stand in the sequence. rows [t, d_c + d_h^R], positions [t]."""

    rows: np.ndarray
    positions: np.ndarray


@dataclass(frozen=True, slots=True)
class Running:
    """m, l [q_len n_h] and a [q_len n_h, d_c]; before any visible key they are -inf, 0 and 0."""

    maximum: np.ndarray
    total: np.ndarray
    accumulator: np.ndarray


def start(rows: int, kv_lora_rank: int, dtype: np.dtype | type) -> Running:
    return Running(np.full(rows, -np.inf, dtype), np.zeros(rows, dtype), np.zeros((rows, kv_lora_rank), dtype))


def absorb_slice(state: Running, scaled_q: np.ndarray, kv: KvSlice, heads: int, query_positions: np.ndarray) -> None:
    """Take one slice into the state, in place. scaled_q [q_len n_h, d_c + d_h^R], already times the scale.

    Rows that see nothing of the slice keep their state; -inf is never subtracted from itself.
    """
    if not len(kv.rows):
        return
    logits = scaled_q @ kv.rows.T  # [q_len n_h, t]
    mask = visible(query_positions, kv.positions)
    if mask is not None:
        np.copyto(logits.reshape(len(query_positions), heads, -1), -np.inf, where=~mask[:, None, :])
    top = np.maximum(state.maximum, logits.max(axis=1))
    shift = np.where(np.isneginf(top), 0, top).astype(top.dtype)
    rescale = np.exp(state.maximum - shift)
    logits -= shift[:, None]
    np.exp(logits, out=logits)
    state.total[:] = state.total * rescale + logits.sum(axis=1)
    state.accumulator[:] *= rescale[:, None]
    state.accumulator[:] += logits @ kv.rows[:, : state.accumulator.shape[1]]
    state.maximum[:] = top


def finish(state: Running, q_len: int, heads: int) -> Partial:
    """a / l and m + ln l. -> out [q_len, n_h, d_c], lse [q_len, n_h]"""
    out = state.accumulator / np.where(state.total == 0, 1, state.total)[:, None]
    shift = np.where(np.isneginf(state.maximum), 0, state.maximum).astype(state.maximum.dtype)
    return Partial(out.reshape(q_len, heads, out.shape[1]), log_sum(state.total, shift).reshape(q_len, heads))


def streamed(
    q_latent: np.ndarray,
    slices: Iterable[KvSlice],
    kv_lora_rank: int,
    scale: float,
    query_positions: np.ndarray,
) -> Partial:
    """Absorbed attention over slices in the order given. q_latent [q_len, n_h, d_c + d_h^R]."""
    q_len, heads, width = q_latent.shape
    scaled_q = (q_latent * q_latent.dtype.type(scale)).reshape(q_len * heads, width)
    state = start(q_len * heads, kv_lora_rank, q_latent.dtype)
    for kv in slices:
        absorb_slice(state, scaled_q, kv, heads, query_positions)
    return finish(state, q_len, heads)


def cut(cache: np.ndarray, slice_tokens: int) -> list[KvSlice]:
    """A cache as consecutive slices of slice_tokens rows, the last one shorter."""
    at = np.arange(len(cache))
    starts = range(0, len(cache), slice_tokens)
    return [KvSlice(cache[i : i + slice_tokens], at[i : i + slice_tokens]) for i in starts]
