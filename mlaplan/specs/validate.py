"""Data to typed spec, with every mistake told at once in a person's words and at its place in the file.

A file that is shipped as it stands was validated before: it is read straight, without pydantic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.errors import Problem, SpecError, did_you_mean
from mlaplan.specs.marks import kind_of
from mlaplan.specs.places import Loc, choices_at, describe, dotted, field_type, keys_at, without_union_tags
from mlaplan.specs.source import Document
from mlaplan.specs.spec import Contradicted, Told, reader

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

MOST_KEYS = 16  # known keys are listed beside a suggestion only up to this many


def build(spec: Any, document: Document) -> Any:
    """The spec, or the container of specs, in the document; SpecError with every problem where it is not valid."""
    if document.shipped and (read := reader(spec)) is not None:
        return read(document.data)
    from pydantic import ValidationError

    from mlaplan.specs.pydantic_schema import adapter

    try:
        return adapter(spec).validate_python(document.data)
    except ValidationError as error:
        raise SpecError(problems_of(spec, document, error)) from None


def problems_of(spec: Any, document: Document, error: ValidationError) -> list[Problem]:
    """The problems behind a ValidationError, in the order of the file, without echoes of one mistake."""
    unknown: dict[Loc, str] = {}  # mapping -> key that an unknown key was probably meant to be
    told: list[tuple[Loc, Problem]] = []
    missing: list[tuple[Loc, Problem]] = []
    for detail in error.errors(include_url=False):
        loc = without_union_tags(spec, detail["loc"])
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, Contradicted):
            continue  # told part by part below
        if detail["type"] == "missing" and isinstance(loc[-1], str):
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


def _contradictions(spec: Any, document: Document) -> list[tuple[Loc, Problem]]:
    contradictions = getattr(spec, "contradictions", None)
    if contradictions is None or not isinstance(document.data, dict):
        return []
    found: list[tuple[Loc, Problem]] = []
    for path, message, expected, names in contradictions(document.data):
        value = document.get(path)
        hint = did_you_mean(value, names) if isinstance(value, str) else None
        told = message if message.startswith("missing key") else f"{dotted(path)}: {message}"
        found.append((path, document.problem(path, told, expected=expected, hint=hint)))
    return found


def _missing(spec: Any, document: Document, loc: Loc) -> Problem:
    inside = f" in {dotted(loc[:-1])}" if loc[:-1] else ""
    return document.problem(loc[:-1], f"missing key '{loc[-1]}'{inside}", expected=describe(field_type(spec, loc)))


def _told(spec: Any, document: Document, loc: Loc, detail: ErrorDetails) -> Problem:
    kind, context, raw = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind == "extra_forbidden":
        return _unknown_key(spec, document, loc)
    if loc and loc[-1] == "[key]":
        return _unknown_key(spec, document, loc[:-1])
    if kind == "union_tag_not_found":
        choices = choices_at(spec, (*loc, "kind"))
        if not isinstance(raw, dict):
            wanted = f"a mapping of kind {' or '.join(choices)}"
            return document.problem(loc, f"{dotted(loc)}: got {kind_of(raw)}", expected=wanted)
        message = f"missing key 'kind' in {dotted(loc)}"
        return document.problem(loc, message, expected=f"one of {', '.join(choices)}")
    if kind == "union_tag_invalid":
        kind, loc, raw = "literal_error", (*loc, "kind"), raw["kind"]
    if kind == "missing":  # an entry of a list of fixed length
        kind, loc = "too_short", loc[:-1]
    hint: str | None = None
    message, expected = f"got {kind_of(raw)}", _wanted(spec, loc, kind, context)
    if isinstance(cause := context.get("error"), Told):
        message, expected, hint = cause.message, cause.expected, cause.hint
    elif kind == "literal_error":
        choices = choices_at(spec, loc)
        message, expected = f"{kind_of(raw)} is not known here", f"one of {', '.join(choices)}"
        hint = did_you_mean(raw, choices) if isinstance(raw, str) else None
    elif kind == "string_pattern_mismatch":
        message, expected = f"'{raw}' is not a plain name", "lower-case letters, digits, '-', '_' and '.'"
    elif kind in ("too_short", "too_long", "string_too_short"):
        message = f"has {len(raw)} {'entry' if len(raw) == 1 else 'entries'}" if len(raw) else "is empty"
    elif isinstance(raw, str) and raw.isdigit() and kind.startswith("int_"):
        hint = "write it without quotes"
    return document.problem(loc, f"{dotted(loc) or 'the document'}: {message}", expected=expected, hint=hint)


def _wanted(spec: Any, loc: Loc, kind: str, context: dict[str, Any]) -> str | None:
    if kind == "greater_than_equal":
        return f"a whole number of at least {context['ge']}"
    if kind == "less_than_equal":
        return f"a whole number of at most {context['le']}"
    if kind == "too_short" and context.get("min_length") == 1:
        return "at least one entry"
    return describe(field_type(spec, loc))


def _unknown_key(spec: Any, document: Document, loc: Loc) -> Problem:
    around = document.get(loc[:-1])
    known = keys_at(spec, loc[:-1], around.get("kind") if isinstance(around, dict) else None)
    hint = did_you_mean(str(loc[-1]), known)
    listed = known and (hint is None or len(known) <= MOST_KEYS)
    inside = f" in {dotted(loc[:-1])}" if loc[:-1] else ""
    return document.problem(
        loc,
        f"unknown key '{loc[-1]}'{inside}",
        expected=f"one of {', '.join(known)}" if listed else None,
        hint=hint,
        at_key=True,
    )
