"""Data to typed spec, with every mistake told at once in a person's words and at its place in the file."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mlaplan.errors import Problem, SpecError, did_you_mean
from mlaplan.specs.figure import kind_of
from mlaplan.specs.places import Loc, choices_at, describe, dotted, field_type, keys_at, without_union_tags
from mlaplan.specs.source import Document

M = TypeVar("M", bound=BaseModel)


def build(spec: type[M], document: Document) -> M:
    """The validated spec, or SpecError with every problem of the document."""
    try:
        return spec.model_validate(document.data)
    except ValidationError as error:
        raise SpecError(problems_of(spec, document, error)) from None


def problems_of(spec: type[BaseModel], document: Document, error: ValidationError) -> list[Problem]:
    """The problems behind a ValidationError, in the order of the file, without echoes of one mistake."""
    unknown: dict[Loc, str] = {}  # mapping -> key that an unknown key was probably meant to be
    told: list[tuple[Loc, Problem]] = []
    missing: list[tuple[Loc, Problem]] = []
    for detail in error.errors(include_url=False):
        loc = without_union_tags(spec, detail["loc"])
        if detail["type"] == "missing":
            missing.append((loc, _missing(spec, document, loc)))
            continue
        problem = _told(spec, document, loc, detail)
        if detail["type"] == "extra_forbidden" and problem.hint:
            unknown[(*loc[:-1], problem.hint.split("'")[1])] = str(loc[-1])
        told.append((loc, problem))
    # a misspelt required key is one mistake, not two
    told += [(loc, problem) for loc, problem in missing if loc not in unknown]
    told += [(path, problem) for path, problem in _contradictions(spec, document)]
    found = {problem.text(): problem for _, problem in told}
    return sorted(found.values(), key=lambda p: (p.line or 0, p.col or 0, p.message))


def _contradictions(spec: type[BaseModel], document: Document) -> list[tuple[Loc, Problem]]:
    contradictions = getattr(spec, "contradictions", None)
    if contradictions is None or not isinstance(document.data, dict):
        return []
    return [
        (path, document.problem(path, message, expected=expected, hint=_hint(document, path, names)))
        for path, message, expected, names in contradictions(document.data)
    ]


def _hint(document: Document, path: Loc, names: tuple[str, ...]) -> str | None:
    value: Any = document.data
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return did_you_mean(value, names) if isinstance(value, str) else None


def _missing(spec: type[BaseModel], document: Document, loc: Loc) -> Problem:
    inside = f" in {dotted(loc[:-1])}" if loc[:-1] else ""
    return document.problem(
        loc[:-1], f"missing key '{loc[-1]}'{inside}", expected=describe(field_type(spec, loc))
    )


def _told(spec: type[BaseModel], document: Document, loc: Loc, detail: ErrorDetails) -> Problem:
    kind, context, raw = detail["type"], detail.get("ctx", {}), detail["input"]
    name = dotted(loc) or "the document"
    if kind == "extra_forbidden":
        return _unknown_key(spec, document, loc)
    if loc and loc[-1] == "[key]":
        return _unknown_key(spec, document, loc[:-1])
    if kind == "told":
        expected, hint = context["expected"] or None, context["hint"] or None
        return document.problem(loc, f"{name}: {context['message']}", expected=expected, hint=hint)
    if kind in ("literal_error", "union_tag_invalid"):
        choices = choices_at(spec, loc) or []
        hint = did_you_mean(raw, choices) if isinstance(raw, str) else None
        if kind == "union_tag_invalid":
            loc, raw = (*loc, "kind"), context.get("tag")
            choices = choices_at(spec, loc) or []
            hint = did_you_mean(str(raw), choices)
            raw = str(raw).strip("'") if raw is not None else raw
        message = f"{dotted(loc)}: {kind_of(raw)} is not known here"
        return document.problem(loc, message, expected=f"one of {', '.join(choices)}", hint=hint)
    if kind == "union_tag_not_found":
        choices = choices_at(spec, (*loc, "kind")) or []
        return document.problem(loc, f"missing key 'kind' in {name}", expected=f"one of {', '.join(choices)}")
    if kind == "string_pattern_mismatch":
        message = f"{name}: '{raw}' is not a plain name"
        return document.problem(loc, message, expected="lower-case letters, digits, '-', '_' and '.'")
    return document.problem(
        loc, f"{name}: {_complaint(kind, raw)}", expected=_wanted(spec, loc, kind, context)
    )


def _complaint(kind: str, raw: Any) -> str:
    if kind in ("too_short", "too_long", "string_too_short") and raw is not None:
        if not raw:
            return "is empty"
        return f"has {len(raw)} {'entry' if len(raw) == 1 else 'entries'}"
    if isinstance(raw, dict | list) or raw is None or isinstance(raw, bool):
        return f"{kind_of(raw)} does not belong here"
    return f"{kind_of(raw)} does not belong here" if isinstance(raw, str) else f"{raw} is not allowed"


def _wanted(spec: type[BaseModel], loc: Loc, kind: str, context: dict[str, Any]) -> str:
    if kind == "greater_than_equal":
        return f"a whole number of at least {context['ge']}"
    if kind == "less_than_equal":
        return f"a whole number of at most {context['le']}"
    if kind == "too_short" and context.get("min_length") == context.get(
        "max_length", context.get("min_length")
    ):
        return f"at least {context['min_length']}"
    return describe(field_type(spec, loc)) or "another kind of value"


def _unknown_key(spec: type[BaseModel], document: Document, loc: Loc) -> Problem:
    known = keys_at(spec, loc[:-1])
    inside = f" in {dotted(loc[:-1])}" if loc[:-1] else ""
    return document.problem(
        loc,
        f"unknown key '{loc[-1]}'{inside}",
        expected=f"one of {', '.join(known)}" if known and len(known) <= 24 else None,
        hint=did_you_mean(str(loc[-1]), known),
        at_key=True,
    )
