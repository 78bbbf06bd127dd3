"""Plans as `recommend --save-plan` writes them, read back: the question with its own specs, and the strategy."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mlaplan.engines.profile import Profile
from mlaplan.errors import MlaplanError
from mlaplan.plan import question
from mlaplan.specs.chip import Chip
from mlaplan.specs.model import Model
from mlaplan.specs.spec import Spec
from mlaplan.strategy import CODED, Strategy
from mlaplan.workload import Overrides, Workload

if TYPE_CHECKING:
    from mlaplan.rules.rule import Question

SCHEMA = "mlaplan.plan/1"
MOST = 1_000_000  # products of such numbers with bytes stay within 64 bits
M = TypeVar("M", bound=Spec)


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
    data = _object(file)
    if data.get("schema") != SCHEMA:
        raise MlaplanError(f"{file}: is no plan; expected the file that `mlaplan recommend --save-plan` writes")
    try:
        chip, model = _spec(file, Chip, data["chip"], "chip"), _spec(file, Model, data["model"], "model")
        profile = _spec(file, Profile, data["engine"]["profile"], "engine.profile")
        w, o = data["workload"], data["overrides"]
        work = Workload(w["isl_tokens"], w["osl_tokens"], w["concurrency"], w["rate_per_s"], w["prefix_tokens"],
                        w.get("ttft_s"), w.get("tpot_s"))  # fmt: skip
        given = Overrides(
            o["memory_fraction"], o["reserve_bytes"], o["price_usd_per_h"], o["imbalance"], o["tokens_per_step"],
            o["redundant_experts"], o.get("dcp_merge"), o.get("dcp_interleave"),
        )  # fmt: skip
        st = Strategy(**{f.name: _column(file, f.name, data["strategy"][f.name]) for f in fields(Strategy)})
    except KeyError as error:
        raise MlaplanError(f"{file}: has no {error}; expected a whole plan file") from None
    except (TypeError, AttributeError) as error:
        raise MlaplanError(f"{file}: is not as `mlaplan recommend` writes it: {error}") from None
    _name_files(data, chip, model)
    return Saved(file, question(chip, model, profile, work, given), st, given, data)


def _column(file: str, name: str, value: Any) -> Any:
    """A column of the strategy: a word of its list, or a whole number."""
    least = 0 if name in ("mtp", "two_batch_overlap") else 1
    whole = isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST
    if value in CODED[name] if name in CODED else whole:
        return value
    expected = f"one of {', '.join(CODED[name])}" if name in CODED else f"a whole number from {least} to {MOST:,}"
    raise MlaplanError(f"{file}: strategy.{name} is {value!r}; expected {expected}")


def _name_files(data: dict[str, Any], chip: Chip, model: Model) -> None:
    """The files that chip and model were read from when the plan was made."""
    origins = data.get("origins")
    if isinstance(origins, dict):
        chip._origin, model._origin = str(origins.get("chip", "")), str(origins.get("model", ""))


def _object(file: str) -> dict[str, Any]:
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, RecursionError, UnicodeDecodeError) as error:
        at = f":{error.lineno}:{error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise MlaplanError(f"{file}{at}: is not JSON; expected a plan file") from None
    except (OSError, ValueError) as error:
        raise MlaplanError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(data, dict):
        raise MlaplanError(f"{file}: is no plan; expected the file that `mlaplan recommend --save-plan` writes")
    return data


def _spec(file: str, spec: type[M], data: Any, where: str) -> M:
    from pydantic import ValidationError

    try:
        return spec.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join([where, *map(str, first["loc"])])
        raise MlaplanError(f"{file}: {place}: {first['msg']}") from None
