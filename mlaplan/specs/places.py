"""What the types of a spec say about a path in it: which keys may stand there and what a value must be.

A path is a tuple of keys and list indices, as in ("on_chip", 0, "capacity"). Used for the words of errors,
for overrides and for printing.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from typing import Any

from mlaplan import units
from mlaplan.specs.figure import Figure
from mlaplan.specs.marks import OneOf, Quantity
from mlaplan.specs.spec import Spec, is_spec

Loc = tuple[str | int, ...]


def dotted(loc: Sequence[str | int]) -> str:
    """('on_chip', 0, 'capacity') -> 'on_chip[0].capacity'"""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def field_type(spec: Any, path: Loc) -> Any:
    """The type that stands at `path` below `spec`, or None if no such place exists."""
    here: Any = spec
    for step in path:
        here = child_type(here, step)
        if here is None:
            return None
    return here


def keys_at(spec: Any, path: Loc, kind: Any = None) -> list[str]:
    """Keys a mapping at `path` may have, in a union those of one `kind`; empty where any key may stand."""
    keys: dict[str, None] = {}
    for part in alternatives(field_type(spec, path)):
        if is_spec(part):
            if kind is not None and "kind" in part.model_fields and kind not in choices_at(part, ("kind",)):
                continue
            keys |= {field.alias or name: None for name, field in part.model_fields.items()}
        elif typing.get_origin(part) is dict:
            keys |= dict.fromkeys(literals(typing.get_args(part)[0]))
    return list(keys)


def child_type(here: Any, step: str | int) -> Any:
    """The type one key or index below `here`, or None."""
    for part in alternatives(here):
        if is_spec(part):
            for name, field in part.model_fields.items():
                if (field.alias or name) == step:
                    return field.annotation
        elif typing.get_origin(part) is dict and isinstance(step, str):
            return typing.get_args(part)[1]
        elif typing.get_origin(part) is tuple and isinstance(step, int):
            members = [member for member in typing.get_args(part) if member is not ...]
            return members[min(step, len(members) - 1)]
    return None


def alternatives(here: Any) -> list[Any]:
    """The members of a union with None and annotations taken off."""
    if here is None:
        return []
    origin = typing.get_origin(here)
    if origin is typing.Annotated:
        return alternatives(typing.get_args(here)[0])
    if origin in (typing.Union, types.UnionType):
        return [part for member in typing.get_args(here) for part in alternatives(member)]
    return [] if here is type(None) else [here]


def literals(part: Any) -> list[str]:
    """The texts a type allows, if it lists them."""
    if typing.get_origin(part) is typing.Annotated:
        listed = next((extra for extra in typing.get_args(part)[1:] if isinstance(extra, OneOf)), None)
        return list(listed.choices) if listed else literals(typing.get_args(part)[0])
    if typing.get_origin(part) in (typing.Union, types.UnionType):
        return [value for member in typing.get_args(part) for value in literals(member)]
    return list(typing.get_args(part)) if typing.get_origin(part) is typing.Literal else []


def choices_at(spec: type[Spec], loc: Loc) -> list[str]:
    if loc and loc[-1] == "kind":  # every member of a discriminated union, not only the first
        owners = alternatives(field_type(spec, loc[:-1]))
        return [v for owner in owners if is_spec(owner) for v in literals(owner.model_fields["kind"].annotation)]
    return literals(field_type(spec, loc))


def without_union_tags(spec: type[Spec], loc: Loc) -> Loc:
    """Takes out the steps pydantic adds for the chosen member of a union."""
    clean: Loc = ()
    for step in loc:
        if len(alternatives(field_type(spec, clean))) > 1 and step in choices_at(spec, (*clean, "kind")):
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
    return next((part for part in alternatives(here) if is_spec(part) and issubclass(part, Figure)), None)


def describe(here: Any) -> str | None:
    """What a place wants, in words."""
    if (quantity := quantity_of(here)) is not None:
        return units.expected(quantity.dimension)
    if (figure := figure_of(here)) is not None:
        quantity = quantity_of(child_type(figure, "value"))
        assert quantity is not None  # every figure of a spec has one
        example = units.NAMES[quantity.dimension][1]
        return f"{{value: {example}, source: ..., confidence: ...}}"
    if choices := literals(here):
        return f"one of {', '.join(choices)}"
    mappings = [part for part in alternatives(here) if is_spec(part)]
    if len(mappings) > 1:
        kinds = [kind for part in mappings for kind in choices_at(part, ("kind",))]
        return f"a mapping of kind {' or '.join(kinds)}"
    words: list[str] = []
    for part in alternatives(here):
        origin = typing.get_origin(part) or part
        if is_spec(part):
            word = f"a mapping with {', '.join(keys_at(part, ()))}"
        elif origin is tuple and ... not in typing.get_args(part):
            word = f"a list of {len(typing.get_args(part))}"
        else:
            word = {dict: "a mapping", tuple: "a list", int: "a whole number", bool: "true or false"}.get(
                origin, {str: "a text", float: "a number"}.get(origin, "")
            )
        if word and word not in words:
            words.append(word)
    return " or ".join(words) or None
