"""A rule: one reason for which a strategy cannot be used, written once for planner and linter.

`violated` takes columns (or scalars) and says where the rule is broken; `detail` puts one broken strategy in words
with the number that decides. Codes are MLA###, never reused: 1xx legality, 2xx capacity, 3xx service level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mlaplan.costs.capacity import Budget
    from mlaplan.costs.step import Setting
    from mlaplan.workload import Workload

Cells = Mapping[str, Any]  # columns of a table, or the values of one row


@dataclass(frozen=True, slots=True)
class Question:
    """What is planned: the setting that prices strategies, the profile of the engine, the workload."""

    setting: Setting
    profile: Any
    workload: Workload
    budget: Budget


class Rule(NamedTuple):
    """`stage`: structure (parallel degrees only), choice (dtypes and the like), capacity, service."""

    code: str
    slug: str
    stage: str
    reason: str
    why: str
    violated: Callable[[Question, Cells], Any]
    detail: Callable[[Question, Cells], str]

    @property
    def name(self) -> str:
        return f"{self.code} {self.slug}"
