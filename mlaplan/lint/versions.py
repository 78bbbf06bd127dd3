"""Which known versions of an engine stand for the one that is deployed.

Facts are known at a few versions. A version between two of them is checked against both: what holds in both is told
as it is, what holds in one only as `info`. An unknown version is checked against all.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mlaplan.engines.flags import flag_versions

VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")
# the engine whose rules hold for an engine that extends it
BASE = {"vllm_ascend": "vllm"}


class Candidates(NamedTuple):
    """Known versions to check against, and how they relate to the deployed one: exact, between, newer, older, all."""

    versions: tuple[str, ...]
    how: str


def candidates(engine: str, version: str | None) -> Candidates:
    """The versions that stand for `version`, oldest first."""
    known = flag_versions(engine)
    wanted = _key(version) if version else None
    if wanted is None:
        return Candidates(known, "all")
    keys = {v: _key(v) or (0, 0, 0) for v in known}
    if version in keys:
        return Candidates((version,), "exact")
    # patch releases of the one minor version that is known; where several of it are known, they differ
    if len(same := [v for v in known if keys[v][:2] == wanted[:2]]) == 1:
        return Candidates((same[0],), "exact")
    below = [v for v in known if keys[v] < wanted]
    above = [v for v in known if keys[v] > wanted]
    if not above:
        return Candidates((known[-1],), "newer")
    if not below:
        return Candidates((known[0],), "older")
    return Candidates((below[-1], above[0]), "between")


def _key(version: str | None) -> tuple[int, int, int] | None:
    match = VERSION.match(version or "")
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def at_least(version: str, floor: str) -> bool:
    """Whether a known version is this one or a later one."""
    return (_key(version) or (0, 0, 0)) >= (_key(floor) or (0, 0, 0))
