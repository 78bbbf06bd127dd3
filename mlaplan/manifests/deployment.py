"""What manifests are made from: roles, each with a plan, a number of copies and, where they differ, its own chip."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlaplan.engines import handover
from mlaplan.engines.load import split_name
from mlaplan.engines.request import EmitRequest
from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.engines.connectors import Connector
    from mlaplan.specs.chip import Chip

SERVER, PREFILL, DECODE = "server", "prefill", "decode"
MODELS = "/models"  # where the model store is mounted
_PUBLISHED = re.compile(r"[\w.-]+/[\w.-]+")
LONGEST = 40  # of a name: pods put indices and hashes behind it, of 63 characters in all


@dataclass(frozen=True, slots=True)
class Role:
    """Copies of one plan with one task: server, prefill or decode. `request.replicas` is not read: `count` is.

    chip: where it is not that of the deployment.
    """

    name: str
    request: EmitRequest
    count: int = 1
    chip: Chip | None = None

    @property
    def chips(self) -> int:
        return self.request.world * self.count


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model served by the roles of one engine (`vllm@0.33.0`). notes: further lines at the head of its workload."""

    name: str
    engine: str
    chip: Chip
    roles: tuple[Role, ...]
    model_spec: str = ""  # the name that `check` knows the model by
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [role.name for role in self.roles]
        if names not in ([SERVER], [PREFILL, DECODE]):
            raise MlaplanError(f"roles {', '.join(names)}: expected {SERVER} alone, or {PREFILL} and {DECODE}")
        if len({role.request.model for role in self.roles}) > 1:
            raise MlaplanError("roles of one deployment serve one model")
        for role in self.roles:
            if role.count < 1:
                raise MlaplanError(f"role {role.name}: at least one copy")
            part = role.request.handover
            if (part.role if part else SERVER) != role.name:
                raise MlaplanError(f"role {role.name}: its plan says {part.role if part else 'nothing'} of a handover")

    @property
    def model(self) -> str:
        """The name it is served under: the published one, or where a local folder lies in the model store."""
        return in_store(self.roles[0].request.model)

    @property
    def engine_name(self) -> str:
        return split_name(self.engine)[0]

    @property
    def version(self) -> str:
        return split_name(self.engine)[1]

    @property
    def chips(self) -> int:
        return sum(role.chips for role in self.roles)

    @property
    def split(self) -> bool:
        return len(self.roles) > 1

    def chip_of(self, role: Role) -> Chip:
        """The chip that a role runs on."""
        return role.chip or self.chip

    @property
    def one_kind(self) -> bool:
        """Whether all roles run on the same kind of chip."""
        return len({self.chip_of(role).name for role in self.roles}) == 1

    @property
    def connector(self) -> Connector | None:
        """What carries the cache between the roles."""
        return handover.of(self.engine, self.roles[-1].request)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A file: its name, and its text with the comments that head it."""

    name: str
    text: str


def in_store(model: str) -> str:
    """A published name as it is; for a folder, its place in the model store, since pods have none of this host's."""
    if _PUBLISHED.fullmatch(model) and not model.startswith("."):
        return model
    return f"{MODELS}/{object_name(model.rstrip('/').rpartition('/')[2])}"


def file_name(name: str, kind: str) -> str:
    """The file of an object of this kind."""
    return f"{name}-{kind.lower()}.yaml"


def object_name(text: str) -> str:
    """A name as Kubernetes takes it: lower case letters, digits and hyphens, from a model's name or path."""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:LONGEST].strip("-")
    if not found:
        return "model"
    return found if found[0].isalpha() else f"m-{found}"[:LONGEST].strip("-")
