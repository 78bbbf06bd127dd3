"""How far a kernel's time moves from one release of an engine to the next: a doubt of every constant.

Constants come from the tables of one release, the engine that somebody runs is of another. The package holds some
tables of several releases. For each class of operators: the mean of |t(earlier) / t(latest) - 1| over the rows that
both have, spikes (a factor above 3) apart, and then over the tables. Set on no step and no served figure.
`python -m mlaplan.calibration.releases` prints what costs/band.yaml should hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlaplan.calibration.tables import needed_root

SPIKE = 3.0
FEWEST = 20  # rows in common
CHIPS = ("h100_sxm", "h200_sxm", "b200_sxm")
# class -> (family of tables, start of the file's name, what its rows are named by)
FAMILIES = {
    "gemm": ("gemm", "gemm_perf", ("gemm_dtype", "m", "n", "k")),
    "attention": ("mla", "", ("mla_dtype", "kv_cache_dtype", "num_heads", "batch_size", "isl", "tp_size", "step")),
    "experts": ("moe", "moe_perf", ("moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts",
                                    "moe_tp_size", "moe_ep_size", "distribution", "kernel_source")),
    "collectives": ("comm", "", ("op_name", "kernel_source", "allreduce_dtype", "nccl_dtype", "num_gpus",
                                 "message_size")),
}  # fmt: skip


class Moved(NamedTuple):
    """One table of an earlier release against the latest one that has the same rows."""

    table: str
    rows: int
    change: float  # mean |t(earlier) / t(latest) - 1|


def spread(of: str) -> float:
    """The mean change of a class of operators over its tables."""
    return float(np.mean([m.change for m in moved(of)]))


def moved(of: str) -> Iterator[Moved]:
    """Every table of the class that the package holds of several releases."""
    family, start, keys = FAMILIES[of]
    for chip in CHIPS:
        for engine in sorted(p for p in (needed_root() / chip / family).glob("*") if p.is_dir()):
            for name in sorted({file.name for file in engine.glob(f"*/{start}*.parquet")}):
                files = sorted(engine.glob(f"*/{name}"), key=lambda file: _release(file.parent.name))
                for i, earlier in enumerate(files):
                    later = (_against(earlier, file, keys) for file in reversed(files[i + 1 :]))
                    yield from [found for found in later if found is not None][:1]


def _against(earlier: Path, later: Path, keys: tuple[str, ...]) -> Moved | None:
    before, after = _times(earlier, keys), _times(later, keys)
    if before.index.names != after.index.names:  # one of them does not tell apart what the other does
        return None
    ratio = (before / after).dropna()
    ratio = ratio[(ratio < SPIKE) & (ratio > 1.0 / SPIKE)]
    if len(ratio) < FEWEST:
        return None
    return Moved("/".join((*earlier.parts[-5:-1], earlier.stem)), len(ratio), float((ratio - 1.0).abs().mean()))


def _times(file: Path, keys: tuple[str, ...]) -> pd.Series:
    """Median time of every case of a table; of collectives those captured in a graph, of experts DeepSeek-V3's."""
    t = pd.read_parquet(file)
    if "latency" not in t:
        return pd.Series(dtype=float)
    if "kernel_source" in t and t.kernel_source.str.endswith("_graph").any():
        t = t[t.kernel_source.str.endswith("_graph")]
    if "num_experts" in t:
        t = t[(t.hidden_size == 7168) & (t.num_experts == 256)]
    return t.groupby([k for k in keys if k in t], dropna=False).latency.median()


def _release(name: str) -> tuple[int, ...]:
    """1.3.0rc20 before 1.3.0, 0.5.6 before 0.5.6.post2: candidates count down from their release."""
    numbers = [int(n) for n in re.findall(r"\d+", name)]
    return (*numbers[:3], -1, *numbers[3:]) if "rc" in name else (*numbers[:3], 0, *numbers[3:])


def main() -> None:
    """Prints every table and the mean of each class."""
    for of in FAMILIES:
        for m in moved(of):
            print(f"  {m.table:60} {m.rows:6} rows {m.change:.3f}")
        print(f"{of}: {spread(of):.3f}")


if __name__ == "__main__":
    main()
