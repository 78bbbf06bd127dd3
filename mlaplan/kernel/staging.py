"""Staging buffers: a receiver writes arriving slices into a few buffers while compute threads read them.

The race: the receiver reuses a buffer that a task is still reading, and results are wrong now and then. The
cure: a buffer counts its readers and is free at zero. `StagingBuffers(counted=False)` leaves the cure out; a
generation number, bumped by each write, shows the damage in either case.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from mlaplan.kernel.online import KvSlice, streamed
from mlaplan.kernel.partial import Partial, empty, merge_in_order
from mlaplan.kernel.query_chunks import InOrder, chunk_bounds


class StaleSlice(RuntimeError):
    """A buffer was overwritten while a task still held it."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Descriptor of a slice in a buffer; good for as long as its reader holds it."""

    slot: int
    generation: int
    positions: np.ndarray


class StagingBuffers:
    """`depth` buffers of slice_tokens rows (the pipeline depth of a receive ring)."""

    def __init__(self, depth: int, slice_tokens: int, width: int, dtype: np.dtype | type, counted: bool = True) -> None:
        if depth < 1:
            raise ValueError(f"a pipeline has at least one staging buffer, got {depth}")
        self._memory = np.full((depth, slice_tokens, width), np.nan, dtype)
        self._generation = [0] * depth
        self._readers = [0] * depth
        self._counted = counted
        self._next = 0
        self._changed = threading.Condition()

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def receive(self, kv: KvSlice, readers: int) -> Staged:
        """Copy a slice into a free buffer for `readers` tasks; waits until a buffer is free."""
        with self._changed:
            slot = self._claim()
            self._generation[slot] += 1
            self._readers[slot] = readers
            self._memory[slot, : len(kv.rows)] = kv.rows
            return Staged(slot, self._generation[slot], kv.positions)

    def _claim(self) -> int:
        depth = len(self._readers)
        if self._counted:
            self._changed.wait_for(lambda: 0 in self._readers)
            return self._readers.index(0)
        slot = self._next
        self._next = (slot + 1) % depth
        return slot

    def read(self, staged: Staged) -> KvSlice:
        """The staged rows, not a copy."""
        with self._changed:
            self._check(staged)
            return KvSlice(self._memory[staged.slot, : len(staged.positions)], staged.positions)

    def release(self, staged: Staged) -> None:
        """One reader is done. Raises StaleSlice if what it read was overwritten meanwhile."""
        with self._changed:
            self._check(staged)
            self._readers[staged.slot] -= 1
            self._changed.notify_all()

    def _check(self, staged: Staged) -> None:
        if self._generation[staged.slot] != staged.generation:
            raise StaleSlice(
                f"buffer {staged.slot} was reused (generation {self._generation[staged.slot]}, "
                f"reader holds {staged.generation})"
            )


def stream_through_staging(
    q_latent: np.ndarray,
    slices: Sequence[KvSlice],
    arrival: Sequence[int],
    kv_lora_rank: int,
    scale: float,
    query_positions: np.ndarray,
    depth: int = 4,
    workers: int = 2,
    q_chunk: int = 64,
) -> Partial:
    """Receive slices in `arrival` order, attend with `workers` threads, merge in slice-id and chunk order.

    One task is one (query chunk, slice). Results do not depend on the arrival order or on thread timing, not
    even in the last bit. q_latent [q_len, n_h, d_c + d_h^R] -> out [q_len, n_h, d_c].
    """
    if not arrival:
        return empty(q_latent.shape[:2], kv_lora_rank, q_latent.dtype)
    chunks = chunk_bounds(len(q_latent), q_chunk)
    longest = max((len(kv.rows) for kv in slices), default=1)
    buffers = StagingBuffers(depth, longest, q_latent.shape[2], q_latent.dtype)

    def attend(staged: Staged, start: int, stop: int) -> Partial:
        try:
            kv = buffers.read(staged)
            return streamed(q_latent[start:stop], [kv], kv_lora_rank, scale, query_positions[start:stop])
        finally:
            buffers.release(staged)

    tasks: dict[tuple[int, int], Future[Partial]] = {}
    with ThreadPoolExecutor(workers) as pool:
        for slice_id in arrival:
            staged = buffers.receive(slices[slice_id], readers=len(chunks))
            for index, (start, stop) in enumerate(chunks):
                tasks[index, slice_id] = pool.submit(attend, staged, start, stop)
    in_order = InOrder(len(chunks))
    for index in reversed(range(len(chunks))):
        partials = {slice_id: tasks[index, slice_id].result() for slice_id in arrival}
        in_order.put(index, merge_in_order(partials))
    return in_order.joined()
