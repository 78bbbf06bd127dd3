"""How the servers of a split deployment hand the cache over: flags of each role, back again, and the router in front.

Sources of names and flags: `connectors.yaml`; for ports of vLLM-Ascend its docs/source/tutorials/features/
pd_disaggregation_mooncake_multi_node.md (what Mooncake itself takes on a host of 8 and of 16 chips).
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from mlaplan.engines.connectors import DECODE, PREFILL, Connector, connector, named, told
from mlaplan.engines.launch import WIDTH
from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlaplan.engines.flags import CommandLine
    from mlaplan.engines.launch import Command
    from mlaplan.engines.request import Degrees, EmitRequest, Handover

HOST = "$HOST_ADDR"  # this host's own address, as the other pool reaches it
SIDE_CHANNEL = "VLLM_NIXL_SIDE_CHANNEL_HOST"
ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}
MOONCAKE_PORTS = {8: 30000, 16: 36000}  # above what Mooncake takes, by chips of a host
PORT_STEP = 100  # from the ports of one pool to those of the other
ROUTER_PORT = 8192  # none of the engines' own
BOOTSTRAP_PORT = 8998  # where prefill servers of SGLang, and of vLLM over Mooncake, tell how they are reached


def of(engine: str, request: EmitRequest) -> Connector | None:
    """The connector of a request, None where a server does both."""
    if request.handover is None:
        return None
    found = connector(engine, request.chip_class, request.handover.connector)
    assert found is not None  # a name is found or refused
    return found


def add(engine: str, command: Command, request: EmitRequest) -> None:
    """Adds the flags of the request's role to its command; nothing where a server does both."""
    c, given = of(engine, request), request.handover
    if c is None or given is None:
        return
    if given.role not in ROLES:
        raise MlaplanError(f"handover: role {given.role}; expected {PREFILL} or {DECODE}")
    if c.engine == "sglang":
        _sglang(command, c, given)
        return
    config: dict[str, Any] = {"kv_connector": c.word, "kv_role": ROLES[given.role]}
    if c.engine == "vllm_ascend":
        base = MOONCAKE_PORTS[8 if request.chips_per_node <= 8 else 16]
        config["kv_port"] = str(base + (PORT_STEP if given.role == DECODE else 0))
        config["kv_connector_extra_config"] = {
            role: _sizes(degrees) for role, degrees in ((PREFILL, given.prefill), (DECODE, given.decode)) if degrees
        }
    if c.word == "NixlConnector":
        command.env[SIDE_CHANNEL] = HOST
    command.add("--kv-transfer-config", config)


def _sizes(d: Degrees) -> dict[str, Any]:
    found: dict[str, Any] = {"dp_size": d.dp, "tp_size": d.tp}
    if d.pp > 1:
        found["pp_size"] = d.pp
        if d.pp_layers:
            found["pp_layer_partition"] = ",".join(map(str, d.pp_layers))
    return found


def _sglang(command: Command, c: Connector, given: Handover) -> None:
    command.add("--disaggregation-mode", given.role)
    command.add("--disaggregation-transfer-backend", c.word)
    # later versions learn it from each other
    if command.table.name("--disaggregation-decode-tp") is None:
        return
    if given.role == PREFILL and given.decode is not None:
        command.add("--disaggregation-decode-tp", given.decode.tp * given.decode.dp)
        if given.decode.dp > 1:
            command.add("--disaggregation-decode-dp", given.decode.dp)
    elif given.prefill is not None and given.prefill.pp > 1:
        command.add("--disaggregation-prefill-pp", given.prefill.pp)


def parsed(engine: str, line: CommandLine) -> Handover | None:
    """The part that a command line gives its server, None where it does both."""
    role = _role(engine, line)
    if role is None:
        return None
    from mlaplan.engines.request import Handover  # not before: many command lines are read, and few have a part

    if engine == "sglang":
        return Handover(role, named(engine, line.get("--disaggregation-transfer-backend") or "mooncake"))
    config = line.get("--kv-transfer-config")
    extra = config.get("kv_connector_extra_config")
    sizes = [_degrees(extra.get(r)) if isinstance(extra, dict) else None for r in ROLES]
    return Handover(role, named(engine, str(config.get("kv_connector"))), *sizes)


def _role(engine: str, line: CommandLine) -> str | None:
    if engine == "sglang":
        mode = line.get("--disaggregation-mode")
        return mode if mode in ROLES else None
    config = line.get("--kv-transfer-config")
    return next((r for r, word in ROLES.items() if isinstance(config, dict) and config.get("kv_role") == word), None)


def _degrees(given: Any) -> Degrees | None:
    if not isinstance(given, dict) or not {"dp_size", "tp_size"} <= set(given):
        return None
    from mlaplan.engines.request import Degrees

    layers = str(given.get("pp_layer_partition", ""))
    parts = tuple(int(n) for n in layers.split(",") if n.strip().isdigit())
    return Degrees(given["dp_size"], given["tp_size"], given.get("pp_size", 1), parts)


def paired(engine: str, name: str | None, prefill: EmitRequest, decode: EmitRequest, kv_heads: int | None) -> tuple[
    EmitRequest, EmitRequest
]:  # fmt: skip
    """Both requests with their parts of a handover, or what keeps them from joining."""
    from dataclasses import replace

    from mlaplan.engines.request import Handover

    c = connector(engine, decode.chip_class, name)
    if c is None:
        raise MlaplanError(f"{engine}: no way is known here in which its servers hand a cache over")
    if problems := told(c, prefill, decode, kv_heads):
        raise MlaplanError("; ".join(problems))
    sizes = prefill.degrees, decode.degrees
    return (
        replace(prefill, handover=Handover(PREFILL, c.name, *sizes)),
        replace(decode, handover=Handover(DECODE, c.name, *sizes)),
    )


# ---- the router in front of both pools ----


def router(c: Connector, prefill: Sequence[str], decode: Sequence[str], port: int, own: int = ROUTER_PORT) -> list[str]:
    """The words that start what passes requests on, to servers at these addresses, all on one port."""
    if c.engine == "sglang":
        words = ["python3", "-m", c.router, "--pd-disaggregation"]
        for address in prefill:
            words += ["--prefill", f"http://{address}:{port}", str(BOOTSTRAP_PORT)]
        for address in decode:
            words += ["--decode", f"http://{address}:{port}"]
        return [*words, "--host", "0.0.0.0", "--port", str(own)]
    if c.router.endswith("mooncake_connector_proxy.py"):
        words = ["python3", c.router]
        for address in prefill:
            words += ["--prefill", f"http://{address}:{port}", str(BOOTSTRAP_PORT)]
        for address in decode:
            words += ["--decode", f"http://{address}:{port}"]
        return [*words, "--host", "0.0.0.0", "--port", str(own)]
    words = ["python3", c.router, "--host", "0.0.0.0", "--port", str(own)]
    for role, addresses in (("prefiller", prefill), ("decoder", decode)):
        words += [f"--{role}-hosts", *addresses, f"--{role}-ports", *[str(port)] * len(addresses)]
    return words


def router_note(c: Connector) -> str:
    """Where the router comes from."""
    if c.engine == "sglang":
        return "the package sglang-router, which is installed beside SGLang"
    repository = "vllm-ascend" if c.engine == "vllm_ascend" else "vllm"
    return f"{c.router} of the {repository} repository at v{c.version}"


def shell(words: Sequence[str]) -> str:
    """Words for a shell, placeholders left as they are; one flag a line where it is long."""
    shown = [word if word.startswith("$") or "://$" in word else shlex.quote(word) for word in words]
    line = " ".join(shown)
    return line if len(line) <= WIDTH else line.replace(" --", " \\\n    --")


__all__ = ["BOOTSTRAP_PORT", "HOST", "ROUTER_PORT", "SIDE_CHANNEL", "add", "of", "paired", "parsed", "router"]
