"""Data to typed spec, with every mistake told at once in a person's words and at its place in the file."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mlaplan.errors import Problem, SpecError, did_you_mean
from mlaplan.specs.figure import Figure, OneOf, Quantity, kind_of
from mlaplan.specs.source import Document

M = TypeVar("M", bound=BaseModel)
Loc = tuple[str | int, ...]


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
        loc = _clean(spec, detail["loc"])
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
        value = value[step]
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
        choices = _choices(spec, loc) or []
        hint = did_you_mean(raw, choices) if isinstance(raw, str) else None
        if kind == "union_tag_invalid":
            loc, raw = (*loc, "kind"), context.get("tag")
            choices = _choices(spec, loc) or []
            hint = did_you_mean(str(raw), choices)
            raw = str(raw).strip("'") if raw is not None else raw
        message = f"{dotted(loc)}: {kind_of(raw)} is not known here"
        return document.problem(loc, message, expected=f"one of {', '.join(choices)}", hint=hint)
    if kind == "union_tag_not_found":
        choices = _choices(spec, (*loc, "kind")) or []
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


def dotted(loc: Sequence[str | int]) -> str:
    """('on_chip', 0, 'capacity') -> 'on_chip[0].capacity'"""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


# What the types say about a path: used for the words of errors and for `--set`.


def field_type(spec: Any, path: Loc) -> Any:
    """The type that stands at `path` below `spec`, or None if no such place exists."""
    here: Any = spec
    for step in path:
        here = _step(here, step)
        if here is None:
            return None
    return here


def keys_at(spec: Any, path: Loc) -> list[str]:
    """Keys a mapping at `path` may have; empty where any key may stand or no mapping does."""
    keys: dict[str, None] = {}
    for part in _alternatives(field_type(spec, path)):
        if _is_model(part):
            keys |= {field.alias or name: None for name, field in part.model_fields.items()}
        elif typing.get_origin(part) is dict:
            keys |= dict.fromkeys(_literals(typing.get_args(part)[0]))
    return list(keys)


def _step(here: Any, step: str | int) -> Any:
    for part in _alternatives(here):
        if _is_model(part):
            for name, field in part.model_fields.items():
                if (field.alias or name) == step:
                    return (
                        typing.Annotated[field.annotation, *field.metadata]
                        if field.metadata
                        else field.annotation
                    )
        elif typing.get_origin(part) is dict and isinstance(step, str):
            choices = _literals(typing.get_args(part)[0])
            if not choices or step in choices:
                return typing.get_args(part)[1]
        elif typing.get_origin(part) is tuple and isinstance(step, int):
            arguments = typing.get_args(part)
            return (
                arguments[0]
                if len(arguments) == 2 and arguments[1] is ...
                else arguments[min(step, len(arguments) - 1)]
            )
    return None


def _alternatives(here: Any) -> list[Any]:
    """The members of a union with None and annotations taken off."""
    if here is None:
        return []
    origin = typing.get_origin(here)
    if origin is typing.Annotated:
        return _alternatives(typing.get_args(here)[0])
    if origin in (typing.Union, types.UnionType):
        return [part for member in typing.get_args(here) for part in _alternatives(member)]
    return [] if here is type(None) else [here]


def _is_model(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, BaseModel)


def _literals(part: Any) -> list[str]:
    if typing.get_origin(part) is typing.Annotated:
        listed = next((extra for extra in typing.get_args(part)[1:] if isinstance(extra, OneOf)), None)
        return list(listed.choices) if listed else _literals(typing.get_args(part)[0])
    if typing.get_origin(part) in (typing.Union, types.UnionType):
        return [value for member in typing.get_args(part) for value in _literals(member)]
    return list(typing.get_args(part)) if typing.get_origin(part) is typing.Literal else []


def _choices(spec: type[BaseModel], loc: Loc) -> list[str]:
    if loc and loc[-1] == "kind":  # every member of a discriminated union, not only the first
        owners = _alternatives(field_type(spec, loc[:-1]))
        return [
            v
            for owner in owners
            if _is_model(owner)
            for v in _literals(owner.model_fields["kind"].annotation)
        ]
    return _literals(field_type(spec, loc))


def _clean(spec: type[BaseModel], loc: Loc) -> Loc:
    """Takes out the steps pydantic adds for the chosen member of a union."""
    clean: Loc = ()
    for step in loc:
        if len(_alternatives(field_type(spec, clean))) > 1 and step in _choices(spec, (*clean, "kind")):
            continue
        clean = (*clean, step)
    return clean


def quantity_of(here: Any) -> Quantity | None:
    """The Quantity annotation of a type, if it has one."""
    if typing.get_origin(here) is typing.Annotated:
        for extra in typing.get_args(here)[1:]:
            if isinstance(extra, Quantity):
                return extra
        return quantity_of(typing.get_args(here)[0])
    if typing.get_origin(here) in (typing.Union, types.UnionType):
        return next((q for member in typing.get_args(here) if (q := quantity_of(member))), None)
    return None


def figure_of(here: Any) -> type[Figure[Any]] | None:
    """The Figure type among the alternatives of a type, if there is one."""
    return next((part for part in _alternatives(here) if _is_model(part) and issubclass(part, Figure)), None)


def describe(here: Any) -> str | None:
    """What a place wants, in words."""
    if (quantity := quantity_of(here)) is not None:
        from mlaplan import units

        return units.expected(quantity.dimension)
    if (figure := figure_of(here)) is not None:
        quantity = quantity_of(_step(figure, "value"))
        assert quantity is not None  # every figure of a spec has one
        from mlaplan import units

        example = units.NAMES[quantity.dimension][1]
        return f"{{value: {example}, source: ..., confidence: ...}}"
    if choices := _literals(here):
        return f"one of {', '.join(choices)}"
    words: list[str] = []
    for part in _alternatives(here):
        origin = typing.get_origin(part) or part
        if _is_model(part):
            word = f"a mapping with {', '.join(keys_at(part, ()))}"
        else:
            word = {dict: "a mapping", tuple: "a list", int: "a whole number", bool: "true or false"}.get(
                origin, {str: "a text", float: "a number"}.get(origin, "")
            )
        if word and word not in words:
            words.append(word)
    return " or ".join(words) or None
