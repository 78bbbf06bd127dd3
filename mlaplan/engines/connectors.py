"""Connectors that carry a cache from prefill servers to decode servers, and which pairs of plans they join.

A limit's test uses comparisons and `&`, `|` only, so that it takes one strategy of each pool, or columns of one pool
against rows of the other. Facts and sources: `connectors.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mlaplan.engines.load import engine_versions, split_name
from mlaplan.errors import MlaplanError, UnknownName

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip

PREFILL, DECODE = "prefill", "decode"
NETWORK = ("nvidia", "amd", "ascend")  # makers whose chips hand caches to each other
UNDIVIDED = ("pp", "dcp", "cp")  # degrees that no connector takes above 1 in both pools
GENERATION = 11  # letters of an Ascend chip's name up to its generation: ascend-910b, ascend-910c


class Connector(NamedTuple):
    """One way to hand a cache over, as an engine has it at one version. Fields as in the file."""

    engine: str
    version: str
    name: str
    word: str
    sends: str
    tp: str
    prefill_pp: bool
    capped: bool
    alike: bool
    router: str
    source: str

    @property
    def label(self) -> str:
        """`NixlConnector of vLLM`"""
        from mlaplan.engines.load import load_profile

        kind = f"transfer backend '{self.word}'" if self.engine == "sglang" else self.word
        return f"the {kind} of {load_profile(f'{self.engine}@{self.version}').label}"


class PairLimit(NamedTuple):
    """`breaks(prefill, decode)` is true, or an array of booleans, where the two cannot be joined."""

    breaks: Callable[[Any, Any], Any]
    words: Callable[[Any, Any], str]


def connectors(engine: str, chip_class: str) -> list[Connector]:
    """The connectors of an engine (`vllm@0.33.0`) on a class of chips, the usual one first."""
    name, version = split_name(engine)
    if name not in {row["engine"] for row in _data()}:
        return []
    known = engine_versions(name)
    return [
        _at(row, version, known)
        for row in _data()
        if row["engine"] == name and chip_class in row["classes"] and known.index(version) >= known.index(row["since"])
    ]


def connector(engine: str, chip_class: str, name: str | None = None) -> Connector | None:
    """The one of this name, or the usual one; None for an engine of which none is known."""
    found = connectors(engine, chip_class)
    if name is None:
        return found[0] if found else None
    for one in found:
        if one.name == name:
            return one
    if not found:
        raise MlaplanError(f"--kv-connector {name}: {engine} hands no cache over in a way that is known here")
    raise UnknownName(f"connector of {engine}", name, [one.name for one in found])


def names() -> list[str]:
    """All names, each once."""
    return list(dict.fromkeys(row["name"] for row in _data()))


def named(engine: str, word: str) -> str:
    """The name of an engine's own word for a connector; a word that is not known is its own name."""
    return next((row["name"] for row in _data() if row["engine"] == engine and row["word"] == word), word)


def _at(row: dict[str, Any], version: str, known: tuple[str, ...]) -> Connector:
    def of(by_version: dict[str, Any]) -> Any:
        return [value for since, value in by_version.items() if known.index(version) >= known.index(since)][-1]

    return Connector(
        row["engine"], version, row["name"], row["word"], row["sends"], of(row["tp"]), of(row["prefill_pp"]),
        row.get("capped", False), row.get("alike", False), of(row["router"]), row["source"],
    )  # fmt: skip


# ---- which plans it joins ----


def pair_limits(c: Connector, kv_heads: int | None) -> Iterator[PairLimit]:
    """kv_heads: of grouped-query attention, None for a latent, which every TP rank holds whole."""
    yield from _of_one(c, PREFILL, lambda p, _d: p)
    yield from _of_one(c, DECODE, lambda _p, d: d)
    yield PairLimit(
        lambda p, d: p.kv_dtype != d.kv_dtype, lambda p, d: f"caches of {p.kv_dtype} and {d.kv_dtype} are not alike"
    )
    yield PairLimit(
        lambda p, d: p.block_size != d.block_size,
        lambda p, d: f"blocks of {p.block_size} and {d.block_size} tokens are not alike",
    )
    yield PairLimit(lambda p, d: (p.mtp > 0) != (d.mtp > 0), lambda _p, _d: "drafts need the draft layer in both pools")
    yield PairLimit(TP_BREAKS[c.tp], lambda p, d: f"{c.label} {TP_WORDS[c.tp]}: TP {p.tp} prefills, TP {d.tp} decodes")
    if c.capped and kv_heads is not None:
        yield PairLimit(
            lambda p, d: (p.tp != d.tp) & ((p.tp > kv_heads) | (d.tp > kv_heads)),
            lambda p, d: f"{c.label} joins TP {p.tp} and TP {d.tp} up to the {kv_heads} key-value heads only",
        )


def _of_one(c: Connector, role: str, pick: Callable[[Any, Any], Any]) -> Iterator[PairLimit]:
    """What the plan of one pool must be like, whatever the other's."""
    if role == DECODE or not c.prefill_pp:
        yield PairLimit(
            lambda p, d: pick(p, d).pp > 1,
            lambda p, d: f"{c.label} takes no pipeline in the {role} pool, not --pp {pick(p, d).pp}",
        )
    yield PairLimit(
        lambda p, d: (pick(p, d).dcp > 1) | (pick(p, d).cp > 1),
        lambda _p, _d: (
            f"{c.label} moves no cache that context parallelism divides: --dcp 1 and --cp 1 in the {role} pool"
        ),
    )


TP_BREAKS: dict[str, Callable[[Any, Any], Any]] = {
    "equal": lambda p, d: p.tp != d.tp,
    "either": lambda p, d: (p.tp % d.tp != 0) & (d.tp % p.tp != 0),
    "decode": lambda p, d: d.tp % p.tp != 0,
    "prefill": lambda p, d: p.tp % d.tp != 0,
}
TP_WORDS = {
    "equal": "joins equal TP degrees only",
    "either": "joins TP degrees of which one divides the other",
    "decode": "wants the TP degree that decodes to be a multiple of the other",
    "prefill": "wants the TP degree that prefills to be a multiple of the other",
}


def told(c: Connector, p: Any, d: Any, kv_heads: int | None) -> list[str]:
    """Why the connector does not join two plans, in words."""
    return [limit.words(p, d) for limit in pair_limits(c, kv_heads) if limit.breaks(p, d)]


def chips_told(c: Connector, prefill: Chip, decode: Chip) -> str | None:
    """Why it does not join these two kinds of chips."""
    if prefill.name == decode.name:
        return None
    makers = {next((m for m in NETWORK if chip.efficiency_class.startswith(m)), "other") for chip in (prefill, decode)}
    if len(makers) > 1:
        return f"{c.label} joins chips of one maker, not {prefill.name} with {decode.name}"
    if c.alike and prefill.name[:GENERATION] != decode.name[:GENERATION]:
        return f"{c.label} joins chips of one generation, not {prefill.name} with {decode.name}"
    return None


@cache
def _data() -> list[dict[str, Any]]:
    from mlaplan.specs.source import read

    found: list[dict[str, Any]] = read(Path(__file__).with_suffix(".yaml")).data["connectors"]
    return found
