"""The base of every mapping in a spec file: typed fields, fixed once read, without pydantic.

A file of ours, known to be right, is read straight into these classes. Any other is validated by pydantic first,
whose schema each class derives from the same fields (`mlaplan/specs/pydantic_schema.py`), imported only then.
Methods that pydantic's models have too bear the same names.
"""

import inspect
import types
import typing
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, ClassVar, Self, dataclass_transform

MISSING: Any = object()
_SCALARS = (str, int, float, bool, type(None))


class Field:
    """One key of a mapping: its type with annotations, and what it is where the file leaves it out."""

    __slots__ = ("alias", "annotation", "default", "default_factory", "description")

    def __init__(
        self, default: Any, default_factory: Callable[[], Any] | None, description: str | None, alias: str | None
    ) -> None:
        self.default, self.default_factory = default, default_factory
        self.description, self.alias = description, alias
        self.annotation: Any = None

    @property
    def required(self) -> bool:
        return self.default is MISSING and self.default_factory is None

    def missing(self) -> Any:
        """The value where the file says nothing."""
        return self.default if self.default_factory is None else self.default_factory()


def field(
    *,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | None = None,
    description: str | None = None,
    alias: str | None = None,
) -> Any:
    """What a field has beside its type."""
    return Field(default, default_factory, description, alias)


class Told(ValueError):
    """A mistake whose words reach the user unchanged."""

    def __init__(self, message: str, expected: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.expected, self.hint = message, expected, hint


class Contradicted(ValueError):
    """Parts of a spec that do not fit each other."""


class _Fields:
    """The fields of a class by name, those of its bases first; made when first asked for."""

    def __get__(self, _: Any, owner: type["Spec"]) -> dict[str, Field]:
        found = owner.__dict__.get("_fields")
        if found is None:
            found = _fields_of(owner)
            owner._fields = found  # type: ignore[attr-defined]
        return found


def _fields_of(owner: type["Spec"]) -> dict[str, Field]:
    found: dict[str, Field] = {}
    for base in reversed(owner.__mro__):
        own = inspect.get_annotations(base)
        if any(isinstance(annotation, str) for annotation in own.values()):
            hints = typing.get_type_hints(base, include_extras=True)
            own = {name: hints[name] for name in own}
        for name, annotation in own.items():
            if name.startswith("_") or typing.get_origin(annotation) is ClassVar or annotation is ClassVar:
                continue
            default = base.__dict__.get(name, MISSING)
            made = default if isinstance(default, Field) else Field(default, None, None, None)
            made.annotation = annotation
            found[name] = made
    return found


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Spec:
    """A mapping of a spec file. Unknown keys are refused; names that start with `_` are no fields."""

    model_fields: ClassVar[_Fields] = _Fields()

    def __init__(self, **values: Any) -> None:
        fields = type(self).model_fields
        names = {f.alias or name: name for name, f in fields.items()}
        unknown = [key for key in values if key not in names]
        absent = [key for key, name in names.items() if fields[name].required and key not in values]
        if unknown or absent:
            raise TypeError(f"{type(self).__name__}: unknown {unknown}, missing {absent}")
        self._fill(values)

    def _fill(self, values: dict[str, Any]) -> None:
        """Takes the values, by the keys of a file, and the defaults of those that it lacks."""
        own = self.__dict__
        given = []
        for name, f in type(self).model_fields.items():
            key = f.alias or name
            if key in values:
                own[name] = values[key]
                given.append(name)
            else:
                own[name] = f.missing()
        own["_given"] = frozenset(given)

    @classmethod
    def read(cls, data: dict[str, Any]) -> Self:
        """The spec in data that is known to be right: quantities are parsed, nothing is checked."""
        readers = _readers(typing.cast(Any, cls))
        self = object.__new__(cls)
        self._fill({key: read(value) if (read := readers[key]) else value for key, value in data.items()})
        return self

    @classmethod
    def made_of(cls, values: dict[str, Any]) -> Self:
        """The spec with values of their final types; Told or Contradicted where they do not go together."""
        self = object.__new__(cls)
        self._fill(values)
        self.check()
        return self

    def check(self) -> None:
        """Raises where fields that are each possible do not go together."""

    @classmethod
    def prepare(cls, data: Any) -> Any:
        """What of a file's data is validated as this mapping; may raise Told."""
        return data

    @classmethod
    def model_validate(cls, data: Any) -> Self:
        """The spec in plain data, held to all rules; pydantic's ValidationError has every mistake."""
        from mlaplan.specs.pydantic_schema import adapter

        valid: Self = adapter(typing.cast(Any, cls)).validate_python(data)
        return valid

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """The JSON Schema of the mapping."""
        from mlaplan.specs.pydantic_schema import adapter

        return adapter(typing.cast(Any, cls)).json_schema()

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: Any) -> Any:
        from mlaplan.specs.pydantic_schema import core_schema_of

        return core_schema_of(cls, handler)

    def model_copy(self, *, update: dict[str, Any]) -> Self:
        """The same spec with other values of these fields, which are not checked."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.__dict__.update(update)
        other.__dict__["_given"] = self._given | frozenset(update)
        return other

    @property
    def _given(self) -> frozenset[str]:
        given: frozenset[str] = self.__dict__["_given"]
        return given

    def model_dump(
        self,
        *,
        mode: str = "python",
        by_alias: bool = False,
        exclude_none: bool = False,
        exclude_unset: bool = False,
        exclude: Iterable[str] = (),
    ) -> dict[str, Any]:
        """The spec as plain data; in mode `json` as a file would have it, quantities with their units."""
        out: dict[str, Any] = {}
        for name, f in type(self).model_fields.items():
            value = self.__dict__[name]
            left_out = name in exclude or (exclude_none and value is None)
            if left_out or (exclude_unset and name not in self._given):
                continue
            options = {"mode": mode, "by_alias": by_alias, "exclude_none": exclude_none, "exclude_unset": exclude_unset}
            out[f.alias if by_alias and f.alias else name] = _plain(value, f.annotation, options)
        return out

    def _values(self) -> tuple[Any, ...]:
        return tuple(self.__dict__[name] for name in type(self).model_fields)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={self.__dict__[name]!r}" for name in type(self).model_fields if name in self._given)
        return f"{type(self).__name__}({given})"

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).model_fields:
            raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")
        self.__dict__[name] = value


# ---- types of fields ----


@cache
def _readers(cls: type[Spec]) -> dict[str, Callable[[Any], Any] | None]:
    """By the key of a file, how a value of the field is read; None where it is taken as it stands."""
    return {f.alias or name: reader(f.annotation) for name, f in cls.model_fields.items()}


@cache
def reader(annotation: Any) -> Callable[[Any], Any] | None:
    """How a value of this type is read from data that is known to be right."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        mark = next((m for m in annotation.__metadata__ if hasattr(m, "read")), None)
        return mark.read if mark is not None else reader(annotation.__origin__)
    if is_spec(annotation):
        return annotation.read
    if origin in (typing.Union, types.UnionType):
        inner = [r for part in typing.get_args(annotation) if (r := reader(part)) is not None]
        return _or_none(inner[0]) if len(inner) == 1 else None
    if origin is tuple:
        return _tuple_reader(typing.get_args(annotation))
    if origin is dict:
        of_value = reader(typing.get_args(annotation)[1])
        return (lambda data: {key: of_value(item) for key, item in data.items()}) if of_value else None
    return None


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _tuple_reader(members: tuple[Any, ...]) -> Callable[[Any], Any]:
    if members[-1] is not ...:
        each = [reader(member) for member in members]
        return lambda items: tuple(r(item) if r else item for r, item in zip(each, items, strict=True))
    of_item = reader(members[0])
    return (lambda items: tuple(map(of_item, items))) if of_item else tuple


def is_spec(part: Any) -> typing.TypeGuard[type[Spec]]:
    """Whether the type is a mapping with fields of its own."""
    return isinstance(part, type) and issubclass(part, Spec)


def _plain(value: Any, annotation: Any, options: dict[str, Any]) -> Any:
    if isinstance(value, Spec):
        return value.model_dump(**options)
    if isinstance(value, dict):
        return {key: _plain(item, _member(annotation, dict, 1), options) for key, item in value.items()}
    if type(value) is tuple:
        items = [_plain(item, _member(annotation, tuple, i), options) for i, item in enumerate(value)]
        return items if options["mode"] == "json" else tuple(items)
    if options["mode"] == "json" and value is not None and (mark := _written(annotation)) is not None:
        return mark.text(value)
    return value


def _member(annotation: Any, origin: type, index: int) -> Any:
    """The type of what a container of this type holds there."""
    found = typing.get_origin(annotation)
    if found is typing.Annotated:
        return _member(annotation.__origin__, origin, index)
    arguments = typing.get_args(annotation)
    if found in (typing.Union, types.UnionType):
        return next((m for part in arguments if (m := _member(part, origin, index)) is not None), None)
    if found is not origin:
        return None
    inner = [part for part in arguments if part is not ...]
    return inner[min(index, len(inner) - 1)]


def _written(annotation: Any) -> Any:
    """The annotation that knows how a file writes a value of this type, if there is one."""
    found = typing.get_origin(annotation)
    if found is typing.Annotated:
        mark = next((m for m in annotation.__metadata__ if hasattr(m, "text")), None)
        return mark if mark is not None else _written(annotation.__origin__)
    if found in (typing.Union, types.UnionType):
        return next((m for part in typing.get_args(annotation) if (m := _written(part)) is not None), None)
    return None
