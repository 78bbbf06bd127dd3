"""`mlaplan.plan/1`: one plan with all that led to it, so that later verbs need nothing else.

Model, chip and engine are written out as their files would have them, overrides applied: reading them back gives
the specs that the prediction was made with, whatever the files in the tree say by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.engines.load import spelled
from mlaplan.report import plan_data, words
from mlaplan.specs.defaults import kernels

if TYPE_CHECKING:
    from mlaplan.explain import Explanation
    from mlaplan.rules.rule import Question
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.figure import Spec
    from mlaplan.workload import Overrides

SCHEMA = "mlaplan.plan/1"


def document(q: Question, e: Explanation, given: Overrides, objective: str) -> dict[str, Any]:
    """The file's content for one plan."""
    from mlaplan import __version__

    s, p = q.setting, q.profile
    prediction = plan_data.explanation(q, e)
    strategy = prediction.pop("strategy")
    return {
        "schema": SCHEMA,
        "tool_version": __version__,
        "model": _written(s.model),
        "chip": whole_chip(s.chip),
        "engine": {"name": spelled(p.name), "version": p.version, "profile": _written(p)},
        "origins": {"model": words.file(s.model.origin), "chip": words.file(s.chip.origin)},
        "workload": plan_data.workload(q),
        "objective": objective,
        "overrides": plan_data.overrides(q, given),
        "strategy": strategy,
        "prediction": prediction,
    }


def whole_chip(chip: Chip) -> dict[str, Any]:
    """The chip's file, with the class defaults that it was priced with as fits of its own."""
    fits = {op: {dtype: _written(fit) for dtype, fit in of.items()} for op, of in kernels(chip).items()}
    return {**_written(chip), "efficiency": fits}


def _written(spec: Spec) -> dict[str, Any]:
    """A spec as its file has it: quantities with units, nothing that the file leaves to its default."""
    written: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return written
