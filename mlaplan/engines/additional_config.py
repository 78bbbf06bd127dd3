"""Keys that vLLM-Ascend reads in `--additional-config`, by version."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from mlaplan.engines.flags import flag_data, flag_versions


class Key(NamedTuple):
    """A key. `keys`: what a section takes, None where it takes anything; `strict`: another key there is an error."""

    keys: tuple[str, ...] | None = None
    strict: bool = False


@lru_cache(maxsize=8)
def config_keys(version: str, engine: str = "vllm_ascend") -> dict[str, Key]:
    """Every key by name."""
    order = {known: i for i, known in enumerate(flag_versions(engine))}
    found: dict[str, Key] = {}
    for row in flag_data(engine)["additional_config"]:
        first, last = row.get("since", next(iter(order))), row.get("until", next(reversed(order)))
        if order[first] <= order[version] <= order[last]:
            key = Key(tuple(row["keys"]) if "keys" in row else None, row.get("strict", False))
            found |= dict.fromkeys(row["names"], key)
    return found


@lru_cache(maxsize=1)
def lifetimes(engine: str = "vllm_ascend") -> dict[str, tuple[str, ...]]:
    """Every key of any version, with the versions that read it."""
    found: dict[str, tuple[str, ...]] = {}
    for version in flag_versions(engine):
        for name in config_keys(version, engine):
            found[name] = (*found.get(name, ()), version)
    return found
