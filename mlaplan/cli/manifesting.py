"""`--emit lws` and `--emit kthena`: the best plan as Kubernetes manifests, printed or written to a folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlaplan.manifests import Deployment, Manifest, Role
    from mlaplan.report.plan_text import Answer, Launch
    from mlaplan.rules.rule import Question

KINDS = {"lws": "a LeaderWorkerSet", "kthena": "Kthena"}
OBJECTS = {"lws": ("LeaderWorkerSet", "Service"), "kthena": ("ModelServing", "ModelServer", "ModelRoute")}
USUAL = "vllm"  # where neither the user nor the chip names an engine


def kind_of(emit: str | None) -> str | None:
    """`lws` or `kthena`, where `--emit` names a kind of manifest and no engine."""
    return emit if emit in KINDS else None


def check(kind: str | None, folder: str | None, force: bool, pd: str | None) -> None:
    """Refuses options that go with manifests only, and a folder that cannot be one."""
    if kind is None:
        for flag, given in (("--force", force), ("--pd", pd is not None)):
            if given:
                raise MlaplanError(f"{flag} goes with --emit lws or --emit kthena")
        return
    if pd is not None and kind != "kthena":
        raise MlaplanError("--pd goes with --emit kthena: a LeaderWorkerSet has one role")
    if folder is None:
        if force:
            raise MlaplanError("--force goes with -o FOLDER: nothing else is overwritten")
        return
    if folder in ("", "-"):
        raise MlaplanError(f"-o {folder!r}: expected a folder for the manifests; without -o they are printed")
    if Path(folder).exists() and not Path(folder).is_dir():
        raise MlaplanError(f"-o {folder}: is a file; expected a folder for the manifests")


def engine(kind: str, named: str | None, chip: str) -> tuple[str, bool]:
    """The engine of the pods, and whether it was named; chips of some classes have one of their own."""
    from mlaplan.engines.load import ANY, default_engine, spelled, split_name
    from mlaplan.manifests.objects import PORTS
    from mlaplan.specs.lookup import load_chip

    if named is None:
        own = default_engine(load_chip(chip))
        return (USUAL if own == ANY else own), False
    if split_name(named)[0] not in PORTS:
        raise MlaplanError(
            f"--emit {kind}: no manifests for --engine {named}; expected one of {', '.join(map(spelled, PORTS))}"
        )
    return named, True


def pools(pd: str | None, replicas: int | None) -> tuple[int, int] | None:
    """Copies that prefill and copies that decode: `1:2`. Together they are the plan's replicas."""
    if pd is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,5}):([1-9]\d{0,5})", pd.strip())
    if match is None:
        raise MlaplanError(f"--pd {pd}: expected copies that prefill and copies that decode, such as 1:2")
    both = int(match[1]), int(match[2])
    if replicas is not None and replicas != sum(both):
        raise MlaplanError(f"--pd {pd} is {sum(both)} copies, not the {replicas} of --replicas")
    return both


def launch(engine: str, kind: str, made: Callable[[], Deployment]) -> tuple[Launch, list[Manifest]]:
    """The manifests of a deployment, and how they are told; without any, which part cannot be expressed."""
    from mlaplan.engines.load import load_profile
    from mlaplan.manifests import manifests
    from mlaplan.report.plan_text import Launch

    label = f"{load_profile(engine).label} in {KINDS[kind]}"
    try:
        found = manifests(kind, made())
    except MlaplanError as error:
        return Launch(label, [], None, str(error).replace("\n", "; ")), []
    return Launch(label, ["---\n".join(one.text for one in found).rstrip()], None), found


def deployment(a: Answer, engine: str, pd: tuple[int, int] | None) -> Deployment:
    """The best plan in its copies, or as many of them as prefill and decode."""
    from mlaplan.cli.launching import request
    from mlaplan.engines.handover import paired
    from mlaplan.fleet.split import kv_heads
    from mlaplan.manifests import Role

    best = a.found.plans[0]
    plan = request(a.q, best.strategy, best.pp_layers)
    if pd is None:
        return of_roles(a.q, engine, (Role("server", plan, plan.replicas),))
    both = paired(engine, None, plan, plan, kv_heads(a.q))
    said = "prefill and decode run the plan given for each; the pair was not priced as a split deployment"
    return of_roles(a.q, engine, (Role("prefill", both[0], pd[0]), Role("decode", both[1], pd[1])), (said,))


def of_roles(q: Question, engine: str, roles: tuple[Role, ...], notes: tuple[str, ...] = ()) -> Deployment:
    """The model in these roles, under a name that Kubernetes takes."""
    from mlaplan.manifests import Deployment
    from mlaplan.manifests.deployment import object_name

    model = q.setting.model
    known = model.name if re.fullmatch(r"[\w.-]+", model.name) else ""
    return Deployment(object_name(model.name), engine, q.setting.chip, roles, known, notes)


def refuse_taken(kind: str, folder: str, model: str) -> None:
    """Refuses a folder that has one of the files already, before anything is searched."""
    from mlaplan.manifests.deployment import file_name, object_name

    _refuse([Path(folder) / file_name(object_name(model), one) for one in OBJECTS[kind]])


def _refuse(paths: list[Path]) -> None:
    taken = [path for path in paths if path.exists()]
    if taken:
        raise MlaplanError(f"{taken[0]}: is there already; --force replaces it")


def write(found: list[Manifest], folder: str, force: bool) -> list[str]:
    """Writes all files, or none where one is there already. Returns their paths."""
    from mlaplan.cli.output import write_file

    paths = [Path(folder) / one.name for one in found]
    if not force:
        _refuse(paths)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MlaplanError(f"{folder}: cannot be made: {error.strerror or error}") from None
    for path, one in zip(paths, found, strict=True):
        write_file(str(path), one.text)
    return [str(path) for path in paths]
