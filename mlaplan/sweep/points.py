"""Points of a study to the questions they ask, and neighbouring points to families that are priced together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from mlaplan import pins as rules_of_pins
from mlaplan.costs import capacity
from mlaplan.errors import MlaplanError
from mlaplan.plan import question
from mlaplan.rules.rule import Question
from mlaplan.sweep import specs
from mlaplan.sweep.fields import PIN
from mlaplan.sweep.study import Study
from mlaplan.workload import Workload

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One point: what is asked there. `problem`: why it cannot be asked, instead of a question."""

    index: int
    asked: dict[str, Any]
    pins: dict[str, Any]
    q: Question | None
    problem: str | None = None

    @property
    def devices(self) -> int:
        return int(self.asked["devices"])


class Points:
    """The points of a study; specs are read once for each combination of figures, as long as they are neighbours."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._settings: dict[Key, Question] = {}

    def __getitem__(self, index: int) -> Point:
        asked = self.study.point(index)
        pins = {name.removeprefix(PIN): value for name, value in asked.items() if name.startswith(PIN)}
        try:
            work = _workload(asked)
            base = self._setting(asked, work)
            self._check(asked, pins, base)
        except MlaplanError as error:
            return Point(index, asked, pins, None, str(error))
        asked["prefix"] = work.prefix_tokens
        budget = capacity.Budget(work.max_context, base.budget.memory_fraction, base.budget.reserve_bytes)
        return Point(index, asked, pins, replace(base, workload=work, budget=budget))

    def _setting(self, asked: dict[str, Any], work: Workload) -> Question:
        """A question of the setting: the same setting for all points that share it, since it remembers much."""
        s = self.study
        ours = (s.settings(asked, "model"), s.settings(asked, "chip"))
        key = (asked["model"], asked["chip"], asked["engine"], *ours)
        known = self._settings.get(key)
        if known is None:
            chip = s.sources.chip(asked["chip"], ours[1], asked["engine"])
            model = s.sources.model(asked["model"], ours[0])
            known = question(chip, model, specs.profile(asked["engine"]), work, s.given)
            if len(self._settings) > 3:
                self._settings.pop(next(iter(self._settings)))
            self._settings[key] = known
        return known

    def _check(self, asked: dict[str, Any], pins: dict[str, Any], q: Question) -> None:
        rules_of_pins.check_layout(pins)
        rules_of_pins.check_pins(pins, asked["devices"])
        rules_of_pins.check_precision(q.setting.model, pins)
        rules_of_pins.check_drafts(q.setting.model, pins.get("mtp"), self.study.given.tokens_per_step)

    def families(self, first: int, last: int) -> Iterator[list[Point]]:
        """Points from first to below last, those in a row that differ in load and limits alone together."""
        group: list[Point] = []
        for index in range(first, last):
            point = self[index]
            if group and _same_steps(group[0]) != _same_steps(point):
                yield group
                group = []
            group.append(point)
        if group:
            yield group


def _same_steps(point: Point) -> Key:
    """What points of one family have in common."""
    if point.q is None:
        return ("problem", point.index)
    w = point.q.workload
    return (id(point.q.setting), point.devices, tuple(point.pins.items()), w.isl, w.osl, w.prefix_tokens)


def _workload(asked: dict[str, Any]) -> Workload:
    isl, prefix = asked["isl"], asked["prefix"]
    return Workload(
        isl, asked["osl"], asked["concurrency"], asked["rate"],
        round(prefix * isl) if isinstance(prefix, float) else prefix, asked["ttft_limit_s"], asked["tpot_limit_s"],
    )  # fmt: skip
