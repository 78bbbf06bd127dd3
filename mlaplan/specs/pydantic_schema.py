"""pydantic's view of the specs' types: validators and JSON Schemas. The only file that needs it to judge a spec."""

from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import CoreSchema, core_schema

from mlaplan.specs.spec import Field, Spec


@cache
def adapter(spec: Any) -> TypeAdapter[Any]:
    """The validator of a type: a spec, or a container of specs."""
    return TypeAdapter(spec)


def core_schema_of(cls: type[Spec], handler: Any) -> CoreSchema:
    """A mapping with exactly the fields of the class, put together as an object of it."""
    fields = {
        f.alias or name: core_schema.typed_dict_field(
            handler.generate_schema(f.annotation), required=f.required, metadata=_shown(f)
        )
        for name, f in cls.model_fields.items()
    }
    mapping = core_schema.typed_dict_schema(fields, cls=cls, cls_name=cls.__name__, extra_behavior="forbid")

    def made(data: Any, validated: Any) -> Spec:
        return data if isinstance(data, cls) else cls.made_of(validated(cls.prepare(data)))

    reference = f"{cls.__module__}.{cls.__qualname__}"
    return core_schema.no_info_wrap_validator_function(made, mapping, ref=reference)


def _shown(f: Field) -> dict[str, Any]:
    """What the JSON Schema says of a field beside its type."""
    shown: dict[str, Any] = {}
    if f.description is not None:
        shown["description"] = f.description
    if not f.required:
        default = f.missing()
        default = default.model_dump(mode="json") if isinstance(default, Spec) else default
        shown["default"] = list(default) if isinstance(default, tuple) else default
    return {"pydantic_js_updates": shown} if shown else {}
