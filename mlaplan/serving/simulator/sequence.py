"""One request on its way: what is still to compute, which blocks it holds, when it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence as Ids
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mlaplan.serving.simulator.requests import HASH_TOKENS

if TYPE_CHECKING:
    from mlaplan.serving.simulator.rank import Rank


class Sequence:
    """A request in a pool. After a preemption the tokens it had given out are part of its prompt.

    `rounds` decode rounds yield its `left - 1` tokens after the first, evenly: (left - 1) / rounds in each.
    """

    __slots__ = (
        "again", "blocks", "cached", "done", "finish", "full", "grows", "handed", "hits", "left", "number", "order",
        "origin", "prompt", "rounds", "start", "used",
    )  # fmt: skip

    def __init__(self, number: int, prompt: int, output: int, rounds: int, ids: Ids[int]) -> None:
        self.number, self.prompt, self.left, self.rounds = number, prompt, output, rounds
        self.full = ids[: prompt // HASH_TOKENS]  # hash blocks that are full: only those are found again
        self.cached = 0  # prompt tokens that are in the cache without a hash
        self.hits = 0  # prompt tokens found in the cache
        self.done = 0  # prompt tokens in the cache
        self.blocks = 0  # held without a hash, at the time of admission less those named since
        self.used: list[int] = []  # hash blocks held
        self.start, self.finish, self.order = 0, -1, 0  # rounds of its replica; its turn of admission
        self.again = False  # preempted before
        self.grows: NDArray[np.int64] | None = None  # rounds that take a new block
        self.handed = False  # its prompt was computed elsewhere
        self.origin: tuple[Rank, Sequence] | None = None  # the rank that computed it, and its holding there

    def grow_rounds(self, now: int, block: int) -> NDArray[np.int64]:
        """Rounds, counted as those of the replica which is in `now`, that write a token beyond the blocks held.

        With n = left - 1 tokens in R rounds, ceil(k n / R) are written after k: token y in round (y - 1) R // n + 1.
        """
        tokens = self.left - 1
        first, end = -(-self.prompt // block), -(-(self.prompt + tokens) // block)
        y = np.arange(first, end) * block - self.prompt + 1
        return now + 1 + (y - 1) * self.rounds // tokens

    def written(self, rounds: int) -> int:
        """Tokens written to the cache by its first `rounds` rounds."""
        return -(-rounds * (self.left - 1) // self.rounds)

    def restart(self, rounds: int, most_per_round: int) -> None:
        """Preempted after so many rounds: what it gave out is to be computed again, as part of its prompt."""
        out = 1 + self.written(rounds)
        self.prompt += out
        self.left -= out
        self.rounds = max(self.rounds - rounds - 1, math.ceil((self.left - 1) / most_per_round), 0)
        self.done, self.blocks, self.used, self.grows, self.finish = 0, 0, [], None, -1
        self.again, self.handed = True, False


def drawn_rounds(
    tokens: NDArray[np.int64], drafts: int, acceptance: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rounds in which each sequence gets its tokens, if each yields 1 + as many drafts as are accepted in a row.

    P(at least j accepted) = acceptance^j for j up to `drafts`. Source: Leviathan et al., arXiv:2211.17192, sec. 3.
    """
    if drafts == 0 or acceptance <= 0.0:
        return tokens.copy()
    if acceptance >= 1.0:
        return -(-tokens // (1 + drafts))
    out = np.zeros_like(tokens)
    scale = 1.0 / math.log(acceptance)
    for i, wanted in enumerate(tokens.tolist()):
        if wanted > 0:
            accepted = np.minimum(np.log(1.0 - rng.random(wanted)) * scale, drafts).astype(np.int64)
            out[i] = int(np.searchsorted(np.cumsum(1 + accepted), wanted)) + 1
    return out
