"""Products that are counted operator by operator, and rounded first where a deployment would round.

`EXACT` neither counts nor rounds. Sizes are kept in elements: a count times a width gives the bytes of any
precision, while the arrays themselves stay fp64 so that equality can be asserted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True)
class Transfer:
    """One collective of `senders` ranks, or one message.

    buffer_bytes is S of the alpha-beta formulas, total_bytes all that was sent by all ranks.
    """

    operation: str
    name: str
    senders: int
    buffer_bytes: float
    total_bytes: float

    @property
    def sent_bytes(self) -> float:
        """By one rank on average: (n-1)/n S, twice that for an all-reduce, S for a message."""
        return self.total_bytes / self.senders


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was done, by operator: FLOP (a multiply-add is 2), elements read and written, bytes sent."""

    flops: Counter[str] = field(default_factory=Counter)
    read_elements: Counter[str] = field(default_factory=Counter)
    written_elements: Counter[str] = field(default_factory=Counter)
    transfers: list[Transfer] = field(default_factory=list)

    def count(self, name: str, flops: int, read: int, written: int) -> None:
        self.flops[name] += flops
        self.read_elements[name] += read
        self.written_elements[name] += written

    def sent_bytes(self, name: str | None = None) -> float:
        """Bytes a rank of the group sent, on average, in all transfers or those called `name`."""
        return sum(t.sent_bytes for t in self.transfers if name in (None, t.name))

    def total_bytes(self, name: str | None = None) -> float:
        """Bytes that all ranks of all groups sent together."""
        return sum(t.total_bytes for t in self.transfers if name in (None, t.name))


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How products are done: rounded to `inputs` first (see rounding), and written down in `ledger`."""

    inputs: str | None = None
    ledger: Ledger | None = None

    def product(self, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """a [..., m, k] @ b [..., k, n]; 2 m k n FLOP for each matrix of the stack."""
        if self.inputs is not None:
            a, b = self.rounded(a, axis=-1), self.rounded(b, axis=-2)
        out = np.matmul(a, b)
        self.count(name, 2 * out.size * a.shape[-1], a.size + b.size, out.size)
        return out

    def count(self, name: str, flops: int, read: int, written: int) -> None:
        if self.ledger is not None:
            self.ledger.count(name, flops, read, written)

    def rounded(self, x: np.ndarray, axis: int = -1) -> np.ndarray:
        """x as the matrix unit would see it; `axis` is the one that is summed over."""
        if self.inputs is None:
            return x
        from mlaplan.kernel.rounding import round_inputs

        return round_inputs(x, self.inputs, axis)


EXACT = Arithmetic()
