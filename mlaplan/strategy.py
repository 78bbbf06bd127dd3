"""A strategy: one way to place a model on chips. And its form as flat integer columns, one row each.

Chips = replicas x pp x dp x tp. The tp x dp chips of a pipeline stage hold the experts as EP x MoE-TP, with
MoE-TP = tp dp / ep. Decode context parallelism and prefill context parallelism divide tp: they add no chips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KV_LAYOUTS = ("replicated", "latent_sharded", "sequence_sharded")
KV_DTYPES = ("bf16", "fp16", "fp8", "fp8_ds_mla", "int8")
WEIGHT_DTYPES = ("fp32", "bf16", "fp16", "fp8", "int8", "int4", "fp4")
CODED = {"kv_layout": KV_LAYOUTS, "kv_dtype": KV_DTYPES, "weight_dtype": WEIGHT_DTYPES}


@dataclass(frozen=True, slots=True)
class Strategy:
    """One configuration. `batch`: sequences in flight per attention-DP rank, all micro-batches together."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    dcp: int = 1
    cp: int = 1
    replicas: int = 1
    kv_layout: str = "replicated"
    kv_dtype: str = "bf16"
    weight_dtype: str = "bf16"
    block_size: int = 64
    prefill_chunk: int = 8192
    two_batch_overlap: int = 0
    mtp: int = 0
    batch: int = 1

    @property
    def chips_per_replica(self) -> int:
        return self.tp * self.dp * self.pp

    @property
    def devices(self) -> int:
        return self.chips_per_replica * self.replicas

    @property
    def moe_tp(self) -> int:
        return self.tp * self.dp // self.ep

    @property
    def shape(self) -> tuple[int | str | bool, ...]:
        """What makes two plans genuinely different: the parallel structure, and whether experts are divided."""
        return (self.replicas, self.pp, self.tp, self.dp, self.ep > 1, self.dcp, self.cp, self.kv_layout)

    def label(self) -> str:
        """Short text: TP8 PP2, DP16 EP16, ... Degrees of 1 are left out; EP is shown where there is any."""
        parts = [f"TP{self.tp}"] if self.tp > 1 or self.dp == 1 else []
        parts += [f"DP{self.dp}"] if self.dp > 1 else []
        parts += [f"EP{self.ep}"] if self.ep > 1 else []
        parts += [f"PP{self.pp}"] if self.pp > 1 else []
        parts += [f"DCP{self.dcp}"] if self.dcp > 1 else []
        parts += [f"CP{self.cp}"] if self.cp > 1 else []
        parts += ["latent-sharded"] if self.kv_layout == "latent_sharded" else []
        parts += [f"x{self.replicas}"] if self.replicas > 1 else []
        return " ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


NAMES = tuple(f.name for f in fields(Strategy))


def to_table(strategies: Sequence[Strategy]) -> dict[str, NDArray[np.int64]]:
    """Flat integer columns, one row per strategy."""
    import numpy as np

    def code(name: str, value: Any) -> int:
        return CODED[name].index(value) if name in CODED else int(value)

    return {n: np.array([code(n, getattr(s, n)) for s in strategies], dtype=np.int64) for n in NAMES}


def from_row(table: dict[str, NDArray[np.int64]], row: int) -> Strategy:
    """The strategy in one row of a table."""
    values: dict[str, Any] = {n: int(table[n][row]) for n in NAMES}
    for name, words in CODED.items():
        values[name] = words[values[name]]
    return Strategy(**values)
