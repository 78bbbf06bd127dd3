"""The registry of rules. `recommend` uses them as masks, `explain` and `check` as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlaplan.rules.rule import Rule


def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order in which they are tried; the first broken one is the reason."""
    from mlaplan.rules.capacity import CAPACITY
    from mlaplan.rules.engine import ENGINE
    from mlaplan.rules.legality import LEGALITY
    from mlaplan.rules.service import SERVICE

    return (*LEGALITY, ENGINE, *CAPACITY, *SERVICE)


def of_stage(stage: str) -> tuple[Rule, ...]:
    """Rules of one stage: structure, choice, capacity or service."""
    return tuple(rule for rule in all_rules() if rule.stage == stage)
