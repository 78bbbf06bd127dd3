"""Plans as `recommend --save-plan` writes them, read back: the question with its own specs, and the strategy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mlaplan.errors import MlaplanError
from mlaplan.strategy import Strategy
from mlaplan.validation import measured
from mlaplan.workload import Overrides

if TYPE_CHECKING:
    from mlaplan.rules.rule import Question


@dataclass(frozen=True, slots=True)
class Saved:
    """A plan file: `data` is all of it, the prediction that was made then included."""

    file: str
    q: Question
    strategy: Strategy
    given: Overrides
    data: dict[str, Any]

    @property
    def tok_s_chip(self) -> float | None:
        """Output tokens per second and chip as they were predicted when the plan was saved."""
        found: Any = self.data
        for key in ("prediction", "served", "tok_s_chip", "value"):
            found = found.get(key) if isinstance(found, dict) else None
        return float(found) if isinstance(found, int | float) and found > 0 else None


def read_plan(file: str) -> Saved:
    """The plan in a file, or an error that names what is wrong with it."""
    data = measured.plan_data(file)
    q, strategy, _ = measured.planned(file, data)  # refuses what is no plan
    if data.get("pools") is not None:
        raise MlaplanError(
            f"{file}: is a plan of two pools, expected one of a single pool; mlaplan recommend --disagg auto compares "
            "both ways, mlaplan simulate runs the plan"
        )
    w, o = data["workload"], data["overrides"]
    work = replace(q.workload, ttft_s=w.get("ttft_s"), tpot_s=w.get("tpot_s"))
    given = Overrides(
        o["memory_fraction"], o["reserve_bytes"], o["price_usd_per_h"], o["imbalance"], o["tokens_per_step"],
        o["redundant_experts"], o.get("dcp_merge"), o.get("dcp_interleave"), o.get("shared_ranks", 0),
        o.get("gather_only", False),
    )  # fmt: skip
    _name_files(data, q)
    return Saved(file, replace(q, workload=work), strategy, given, data)


def _name_files(data: dict[str, Any], q: Question) -> None:
    """The files that chip and model were read from when the plan was made."""
    origins = data.get("origins")
    if isinstance(origins, dict):
        q.setting.chip._origin, q.setting.model._origin = (str(origins.get(k, "")) for k in ("chip", "model"))
