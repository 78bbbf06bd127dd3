"""What is known of an engine with value, confidence and source, as rows: the part that concerns a chip and a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mlaplan import units
from mlaplan.report.chip_sheet import Sources
from mlaplan.specs.figure import Figure, Spec

if TYPE_CHECKING:
    from mlaplan.engines.collectives import AllToAll
    from mlaplan.engines.profile import Profile

PLAIN = ("source", "confidence", "note")
LISTS = ("kernels", "all_to_all", "all_reduce", "elsewhere")


def rows(profile: Profile, chip_class: str, attention: str, sources: Sources) -> Iterator[tuple[str, ...]]:
    """(what, value, confidence, mark of the source) of all that is used on this class of chip and attention."""
    for kernel in profile.kernels_for(chip_class, attention):
        value = f"reads {', '.join(kernel.kv_dtypes)} in blocks of {', '.join(map(str, kernel.blocks))}"
        yield f"kernel {kernel.name}", value, kernel.confidence, sources.mark(kernel.source, kernel.note)
    for one in profile.all_to_all:
        yield f"all-to-all {one.name}", _way(one), one.confidence, sources.mark(one.source, one.note)
    for limit in profile.all_reduce:
        if chip_class in limit.chips:
            sizes = ", ".join(
                f"{units.format_bytes(size)} on {n}" for n, size in zip(limit.ranks, limit.max_bytes, strict=True)
            )
            yield "in-graph all-reduce", f"up to {sizes}", limit.confidence, sources.mark(limit.source, limit.note)
    for name in type(profile).model_fields:
        if name not in LISTS:
            yield from _below(getattr(profile, name), name, sources)


def _way(one: AllToAll) -> str:
    """A way of tokens to experts, and where it is taken."""
    said = [one.pattern, one.role.replace("_", " ")]
    said += [f"on {', '.join(one.only_on)}"] if one.only_on else []
    said += [f"not on {', '.join(one.not_on)}"] if one.not_on else []
    said += [f"from {one.least_ranks} ranks on"] if one.least_ranks else []
    said += [f"up to {one.most_experts} experts a rank"] if one.most_experts else []
    said += [f"up to {one.max_tokens} tokens"] if one.max_tokens else []
    said += ["wherever possible"] if one.fixed else []
    return ", ".join(said)


def _below(value: Any, path: str, sources: Sources) -> Iterator[tuple[str, ...]]:
    """Figures, and groups of facts that have one source."""
    if isinstance(value, Figure):
        yield path, _quantity(value), value.confidence, sources.mark(value.source, value.note)
    elif isinstance(value, Spec):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        if isinstance(fields.get("source"), str) and "confidence" in fields:
            own = {n: v for n, v in fields.items() if n not in PLAIN and not isinstance(v, Spec | tuple | dict)}
            told = ", ".join(f"{n.replace('_', ' ')} {_plain(v)}" for n, v in own.items() if v is not None)
            yield path, told, fields["confidence"], sources.mark(fields["source"], fields["note"])
        for name, inner in fields.items():
            yield from _below(inner, f"{path}.{name}", sources)
    elif isinstance(value, tuple):
        for number, inner in enumerate(value):
            yield from _below(inner, f"{path}.{number}", sources)


def _quantity(figure: Figure[Any]) -> str:
    low, value, high = (units.format_quantity(x, figure.dimension()) for x in figure.bounds)
    return value if low == high else f"{value} ({low} to {high})"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.6g}" if isinstance(value, float) else f"{value}"
