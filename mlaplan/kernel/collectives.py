"""Collectives as messages between ranks on a ring, so that the bytes are counted and not assumed.

Each takes one array per rank and returns one per rank. A message is counted when it is sent; the closed forms
(n ranks, S the whole buffer, per rank on average)

    all_gather, reduce_scatter, all_to_all    (n-1)/n S
    all_reduce                              2 (n-1)/n S
    send                                          S

are then something to test. Element widths are given by the caller: the arrays stay fp64 to be comparable, the
bytes are those of the dtype that a deployment sends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlaplan.kernel.arithmetic import Ledger, Transfer


def all_gather(
    parts: Sequence[np.ndarray], axis: int, name: str, element_bytes: float, ledger: Ledger | None = None
) -> list[np.ndarray]:
    """Every rank gets all parts, concatenated in rank order. S: the gathered array."""
    whole, sent = _ring_gather(parts, axis)
    _record(ledger, "all_gather", name, len(parts), whole[0].size, sent, element_bytes)
    return whole


def reduce_scatter(
    parts: Sequence[np.ndarray], axis: int, name: str, element_bytes: float, ledger: Ledger | None = None
) -> list[np.ndarray]:
    """Rank r gets the r-th piece, along `axis`, of the sum of all parts. S: one rank's input."""
    pieces, sent = _ring_reduce(parts, axis)
    _record(ledger, "reduce_scatter", name, len(parts), parts[0].size, sent, element_bytes)
    return pieces


def all_reduce(
    parts: Sequence[np.ndarray], name: str, element_bytes: float, ledger: Ledger | None = None
) -> list[np.ndarray]:
    """Every rank gets the sum of all parts: a reduce-scatter, then an all-gather. S: one rank's input."""
    pieces, sent_down = _ring_reduce([p.reshape(-1) for p in parts], 0)
    whole, sent_up = _ring_gather(pieces, 0)
    _record(ledger, "all_reduce", name, len(parts), parts[0].size, sent_down + sent_up, element_bytes)
    return [w.reshape(parts[0].shape) for w in whole]


def all_to_all(
    blocks: Sequence[Sequence[np.ndarray]], name: str, element_bytes: float, ledger: Ledger | None = None
) -> list[list[np.ndarray]]:
    """blocks[source][target]; rank r gets [blocks[0][r], blocks[1][r], ...]. S: one rank's blocks."""
    n = len(blocks)
    sent = sum(blocks[s][t].size for s in range(n) for t in range(n) if s != t)
    buffer = sum(b.size for row in blocks for b in row) / n
    _record(ledger, "all_to_all", name, n, buffer, sent, element_bytes)
    return [[blocks[source][target].copy() for source in range(n)] for target in range(n)]


def send(part: np.ndarray, name: str, element_bytes: float, ledger: Ledger | None = None) -> np.ndarray:
    """One rank's array to one other rank."""
    if ledger is not None:
        size = part.size * element_bytes
        ledger.transfers.append(Transfer("send", name, 1, size, size))
    return part.copy()


def _ring_gather(parts: Sequence[np.ndarray], axis: int) -> tuple[list[np.ndarray], int]:
    n = len(parts)
    held = [{rank: parts[rank]} for rank in range(n)]
    sent = 0
    for hop in range(n - 1):
        messages = [held[rank][(rank - hop) % n] for rank in range(n)]  # what arrived last goes on
        for rank, message in enumerate(messages):
            held[(rank + 1) % n][(rank - hop) % n] = message.copy()
            sent += message.size
    return [np.concatenate([held[rank][i] for i in range(n)], axis) for rank in range(n)], sent


def _ring_reduce(parts: Sequence[np.ndarray], axis: int) -> tuple[list[np.ndarray], int]:
    n = len(parts)
    held = [[piece.copy() for piece in np.array_split(part, n, axis)] for part in parts]
    sent = 0
    for hop in range(n - 1):
        # the piece that will end on rank i starts on rank i + 1 and gathers a summand at every stop
        messages = [held[rank][(rank - hop - 1) % n] for rank in range(n)]
        for rank, message in enumerate(messages):
            target = held[(rank + 1) % n]
            target[(rank - hop - 1) % n] = target[(rank - hop - 1) % n] + message
            sent += message.size
    return [held[rank][rank] for rank in range(n)], sent


def _record(
    ledger: Ledger | None,
    operation: str,
    name: str,
    ranks: int,
    buffer: float,
    sent: int,
    element_bytes: float,
) -> None:
    if ledger is not None and ranks > 1:
        ledger.transfers.append(Transfer(operation, name, ranks, buffer * element_bytes, sent * element_bytes))
