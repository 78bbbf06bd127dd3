"""mlaplan beside other tools on the same rows: mean absolute error and bias of each, by group.

    python benchmarks/peers.py [--format md|json] [-o FILE] [--infersim PATH] [--only PREFIX]
    python benchmarks/peers.py --update [--infersim PATH]

Needs the extra `silicon` (aiconfigurator-core 0.12.0); under a minute. aiconfigurator's SOL and default modes and
mlaplan answer in one run. InferSim is run from a checkout of alibaba/InferSim where --infersim names one; without it
its column says "not run".

--update is the one command after a change of prices: it writes mlaplan/validation/peers.json, the figures in
docs/accuracy.md, and then that page and its picture. Without --infersim it keeps InferSim's figures, which no change
of mlaplan moves, of the groups whose rows are still the same.

What is compared: rows that mlaplan was not fitted on. aiconfigurator's default mode looks calls up in its own tables,
on which its error is zero by construction; so it is given the same half of each table that mlaplan's fits may see,
and both are scored on the other half. Exit code: 0, or 2 where something is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peer.infersim import InferSim

REPO = Path(__file__).resolve().parent.parent
PAGE, PICTURE = REPO / "docs" / "accuracy.md", REPO / "docs" / "accuracy.svg"
BAD = 2


def main(arguments: list[str] | None = None) -> int:
    """Runs the tools and writes what they reached."""
    args = _parser().parse_args(arguments)
    if args.update and (args.output or args.format or args.only):
        return _refuse("--update writes the data file and the page: it takes no --format, --only or -o")
    found = _missing()
    if found is not None:
        return _refuse(found)
    from peer.groups import groups
    from peer.infersim import InferSim

    sim = None if args.infersim is None else InferSim(args.infersim)
    if sim is not None and (problem := sim.problem()):
        return _refuse(problem)
    data = document([g.data() for g in groups(sim, args.only)], sim)
    if not data["groups"]:
        return _refuse(f"--only {args.only}: no group's id starts so")
    if args.update:
        return _update(data)
    return _write(_rendered(data, args.format or "md"), args.output)


def document(found: list[dict[str, Any]], sim: InferSim | None) -> dict[str, Any]:
    """`mlaplan.peers/1`: the groups and the versions they come from."""
    from peer import aic

    from mlaplan import __version__
    from mlaplan.validation.peers import SCHEMA

    versions = {"mlaplan": __version__, aic.DISTRIBUTION: aic.installed()}
    if sim is not None:
        versions["InferSim"] = sim.version()
    return {"schema": SCHEMA, "versions": versions, "groups": found}


def kept(data: dict[str, Any], before: dict[str, Any]) -> int:
    """Takes over InferSim's figures of an earlier run, for groups with as many rows; returns how many."""
    from peer.figures import INFERSIM

    old, count = {g["id"]: g for g in before["groups"]}, 0
    for group in data["groups"]:
        was = old.get(group["id"])
        if was is not None and was["rows"] == group["rows"]:
            group["figures"][INFERSIM] = was["figures"][INFERSIM]
            count += 1
    if count and "InferSim" in before["versions"]:
        data["versions"]["InferSim"] = before["versions"]["InferSim"]
    return count


def _missing() -> str | None:
    from importlib.util import find_spec

    wanted = ("aiconfigurator-core==0.12.0", "pip install 'mlaplan[silicon]'")
    if find_spec("mlaplan") is None:
        sys.path.insert(0, str(REPO))
    from peer import aic  # imports pandas and mlaplan only

    found = aic.installed()
    if found is None:
        return f"aiconfigurator-core is not installed; expected {wanted[0]}: {wanted[1]}"
    if found != aic.VERSION:
        return f"aiconfigurator-core is {found}; expected {wanted[0]}, whose tables the fits were made on: {wanted[1]}"
    lacking = [name for name in ("pyarrow", "scipy") if find_spec(name) is None]
    return f"{lacking[0]} is not installed; expected: {wanted[1]}" if lacking else None


def _rendered(data: dict[str, Any], form: str) -> str:
    from mlaplan.report import peers_table

    if form == "json":
        return json.dumps(data, indent=1, ensure_ascii=False)
    return f"{peers_table.versions(data)}\n\n{peers_table.markdown(data)}"


def _write(text: str, file: str | None) -> int:
    if file is None:
        print(text)
        return 0
    try:
        Path(file).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        return _refuse(f"{file}: cannot be written: {error.strerror}")
    return 0


def _update(data: dict[str, Any]) -> int:
    from mlaplan.__main__ import main as mlaplan
    from mlaplan.validation import peers

    if "InferSim" not in data["versions"] and peers.FILE.is_file():
        count = kept(data, peers.committed())
        print(f"InferSim was not run: its figures of {count} of {len(data['groups'])} groups are kept", file=sys.stderr)
    failed = _write(_rendered(data, "json"), str(peers.FILE))
    peers.committed.cache_clear()
    return failed or mlaplan(["validate", "--format", "md", "-o", str(PAGE), "--plot", str(PICTURE)])


def _refuse(line: str) -> int:
    print(f"peers: {line}", file=sys.stderr)
    return BAD


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="peers.py", description="mlaplan beside other tools on the same rows.")
    parser.add_argument("--format", choices=("md", "json"), help="how to write the result (md)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file")
    parser.add_argument("--infersim", metavar="PATH", help="a checkout of alibaba/InferSim to run as well")
    parser.add_argument("--only", metavar="PREFIX", help="only groups whose id starts so, such as mla_decode")
    parser.add_argument("--update", action="store_true", help="write the data file and docs/accuracy.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
