"""`mlaplan.recommend` and `mlaplan.sweep`: the command line's questions from Python, with typed answers.

Arguments have the names and forms of the options: "4k" tokens, "60ms", "8,16,32"; numbers and lists will do, and a time
as a number is in seconds. A mistake raises `MlaplanError`, whose text is what the command would print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from mlaplan.explain import Explanation
    from mlaplan.plan import Recommendation
    from mlaplan.report.borders import Border, Moved
    from mlaplan.rules.rule import Question
    from mlaplan.sweep.run import Outcome
    from mlaplan.sweep.study import Asked, Study

TIMES = ("ttft", "tpot")


@dataclass(frozen=True)
class Recommended:
    """The answer to one question: plans, best first, and what was removed on the way to them."""

    question: Question
    devices: int
    found: Recommendation

    @property
    def plans(self) -> list[Explanation]:
        """Plans, best first, each of another shape."""
        return self.found.plans

    @property
    def best(self) -> Explanation | None:
        """The first plan, or None where nothing is feasible; `found.nearest_miss` then says what comes closest."""
        return self.found.plans[0] if self.found.plans else None

    def to_pandas(self) -> pd.DataFrame:
        """One row a plan, in the columns of `recommend --format csv`."""
        import pandas as pd

        from mlaplan.report.plan_text import plan_rows

        return pd.DataFrame(plan_rows(self.plans))


@dataclass(frozen=True)
class Swept:
    """The rows of a sweep, in the order of its points, and what the run took."""

    study: Study
    outcome: Outcome
    rows: pd.DataFrame

    def to_pandas(self) -> pd.DataFrame:
        """One row for each point and plan (`mlaplan.sweep.rows` tells the columns)."""
        return self.rows

    def moved(self) -> list[Moved]:
        """How often the best structure changes along each axis, most first."""
        from mlaplan.report import borders

        self._need_best()
        return borders.moved(self.study, self.rows)

    def borders(self) -> list[Border]:
        """Where one structure gives way to another, most frequent first."""
        from mlaplan.report import borders

        self._need_best()
        return borders.borders(self.study, self.rows)

    def explain(self) -> str:
        """Where the best strategy changes and what drives it, in words."""
        from mlaplan.report.sweep_text import explained

        self._need_best()
        return explained(self.study, self.rows)

    def _need_best(self) -> None:
        from mlaplan.errors import MlaplanError

        if self.study.plans != "best":
            raise MlaplanError(f"borders lie between best plans; these are {self.study.plans}: sweep with plans='best'")


def recommend(
    model: str, chip: str, devices: int, *, isl: int | str = 4096, osl: int | str = 1024,
    concurrency: int | None = None, rate: float | str | None = None, prefix: int | float | str = 0,
    ttft: float | str | None = None, tpot: float | str | None = None, objective: str = "throughput",
    engine: str = "generic", top: int = 5, set: Mapping[str, Any] | None = None, **given: Any,
) -> Recommended:  # fmt: skip
    """The best strategies of a workload on `devices` chips.

    set: figures of the chip or the model, {"memory.bandwidth": "x0.9"}. given: pins such as tp=8 or kv_dtype="fp8",
    and memory_fraction, reserve, price, imbalance, mtp_accept, redundant_experts.
    """
    from mlaplan.errors import MlaplanError
    from mlaplan.plan import recommend as run
    from mlaplan.sweep import study as studies
    from mlaplan.sweep.points import Points

    given |= {"isl": isl, "osl": osl, "concurrency": concurrency, "rate": rate, "prefix": prefix, "ttft": ttft}
    given |= {"tpot": tpot, "engine": engine, "model": model, "chips": chip, "devices": devices}
    front = objective == "pareto"
    asked = _asked(given | {"objective": None if front else objective}, set)
    study = studies.build(asked)
    if varying := study.varying():
        raise MlaplanError(f"recommend answers one question: {varying[0].name} has several values; use mlaplan.sweep")
    point = Points(study)[0]
    if point.q is None:
        raise MlaplanError(str(point.problem))
    found = run(point.q, devices, objective=objective, fixed=point.pins, top=top, given=study.given)
    return Recommended(point.q, devices, found)


def sweep(
    model: str | Sequence[str], chips: str | Sequence[str], *, devices: int | str | Sequence[int],
    set: Mapping[str, Any] | None = None, plans: str = "best", path: str | None = None, workers: int = 1,
    dask: str | None = None, chunk: int | None = None, resume: bool = False, **given: Any,
) -> Swept:  # fmt: skip
    """The best plan of every point of a grid, or with plans="pareto" or "all" its front or every plan.

    given: axes and options by the names of `mlaplan sweep`: isl="1k:128k:log8", concurrency=[16, 64], tp="4,8",
    tpot="60ms", objective="latency"... set: figures, {"scale_out.bandwidth": "x0.5,x1,x2"}. path: keep the rows there;
    resume: go on with the parts of a run that was stopped. workers: processes; a script that asks for more than one
    guards its start with `if __name__ == "__main__"`.
    """
    from mlaplan.sweep import run, study

    found = study.build(_asked(given | {"model": model, "chips": chips, "devices": devices, "plans": plans}, set))
    means = run.Means(workers, dask, chunk, resume)
    with TemporaryDirectory(prefix="mlaplan-sweep-") as folder:
        out = Path(path) if path is not None else Path(folder) / "rows.csv"
        outcome = run.to_file(found, out, run.form_of(str(out), None), means)
        from mlaplan.sweep.rows import read

        return Swept(found, outcome, read(str(out)))


def _asked(given: Mapping[str, Any], figures: Mapping[str, Any] | None) -> dict[str, Asked]:
    """Arguments as a study takes them."""
    from mlaplan.errors import MlaplanError, Problem, did_you_mean
    from mlaplan.sweep.study import KEYS, Asked

    out: dict[str, Asked] = {}
    for name, value in given.items():
        if name not in KEYS:
            hint = did_you_mean(name, KEYS)
            raise MlaplanError(f"{name}: no such argument" + (f"; {hint}" if hint else ""))
        if value is not None:
            out[name] = Asked(_seconds(value) if name in TIMES else value, Problem(name, None, None, ""))
    for path, values in (figures or {}).items():
        out[f"set {path}"] = Asked(values, Problem(f"set {path}", None, None, ""))
    return out


def _seconds(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_seconds(one) for one in value]
    return f"{value!r} s" if isinstance(value, int | float) and not isinstance(value, bool) else value
