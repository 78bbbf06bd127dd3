"""Families of structures: the best of each way to divide attention and experts, feasible or not.

They answer what a ranked list of winners cannot: what TP across nodes, attention DP or a pipeline would have
given instead, and how much of their step is communication.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlaplan import ranking
from mlaplan.costs.table import Table, size
from mlaplan.rules import of_stage
from mlaplan.rules.rule import Question
from mlaplan.strategy import KV_LAYOUTS, Strategy, from_row

TRAITS = ("tp", "dp", "ep", "pp", "dcp", "kv_layout", "cp")
FIGURES = ("tok_s_chip", "tpot_s", "ttft_s", "decode_s", "prefill_s")
DECIMALS = 9  # of tok/s/chip that are more than rounding
LATENT = KV_LAYOUTS.index("latent_sharded")


@dataclass(frozen=True, slots=True)
class Family:
    """The best strategy of one family of structures; `reason`: the service rule it misses, None if it keeps all."""

    name: str
    strategy: Strategy
    figures: dict[str, float]
    reason: str | None

    @property
    def rank(self) -> tuple[bool, float]:
        return self.reason is None, self.figures["tok_s_chip"]


def family_name(row: Mapping[str, int], per_node: int) -> str:
    """The way a structure divides attention and experts, in words."""
    tp = "TP across nodes" if row["tp"] > per_node else "TP in a node" if row["tp"] > 1 else ""
    parts = [tp, "DP attention" if row["dp"] > 1 else "", "EP" if row["ep"] > 1 else "", "PP" if row["pp"] > 1 else ""]
    parts += ["decode context parallel" if row["dcp"] > 1 else ""]
    parts += ["latent-sharded KV" if row["kv_layout"] == LATENT else ""]
    parts += ["prefill context parallel" if row["cp"] > 1 else ""]
    return " + ".join(p for p in parts if p) or "one chip a replica"


def family_codes(table: Table, per_node: int) -> NDArray[np.int64]:
    """One integer per family."""
    code = (table["tp"] > per_node) + (table["tp"] > 1) * np.int64(1)
    for name in TRAITS[1:]:
        code = code * 3 + ((table[name] == LATENT) if name == "kv_layout" else (table[name] > 1))
    return code


def best_rows(table: Table, group: NDArray[np.int64]) -> NDArray[np.intp]:
    """The row of each group with the most tokens per second and chip, rounding errors apart; then the lowest TPOT."""
    return ranking.best_of_each(group, np.round(table["tok_s_chip"], DECIMALS), np.nan_to_num(table["tpot_s"]))


def keep_families(q: Question, table: Table, known: dict[str, Family]) -> None:
    """Put the best row of each family into `known`: by throughput, those that keep the service level first."""
    per_node = q.setting.chip.scale_up.chips_per_node
    meets = np.ones(size(table), dtype=bool)
    for rule in of_stage("service"):
        meets &= ~np.broadcast_to(rule.violated(q, table), meets.shape)
    for i in best_rows(table, 2 * family_codes(table, per_node) + meets):
        name = family_name({k: int(table[k][i]) for k in TRAITS}, per_node)
        rank = (bool(meets[i]), float(table["tok_s_chip"][i]))
        if name not in known or rank > known[name].rank:
            figures = {k: float(table[k][i]) for k in FIGURES}
            reason = None if meets[i] else _missed(q, table, int(i))
            known[name] = Family(name, from_row(table, int(i)), figures, reason)


def with_comm_shares(families: list[Family], columns: Mapping[str, NDArray[np.float64]]) -> list[Family]:
    """The families with the exposed communication of their steps, from detailed columns in the same order."""
    if not families:
        return []
    shares = {
        "comm_share": columns["decode_comm_s"] / columns["decode_s"],
        "prefill_comm_share": columns["prefill_comm_s"] / columns["prefill_s"],
    }
    return [
        replace(f, figures=f.figures | {name: float(share[i]) for name, share in shares.items()})
        for i, f in enumerate(families)
    ]


def _missed(q: Question, table: Table, row: int) -> str:
    """The service rule that the row breaks, in words."""
    cells = {name: column[row] for name, column in table.items()}
    return next(r.detail(q, cells) for r in of_stage("service") if bool(np.any(r.violated(q, cells))))
