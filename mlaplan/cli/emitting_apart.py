"""Launch commands and manifests of a split: both pools with their parts of the handover, and the router in front."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.engines.connectors import Connector
    from mlaplan.engines.request import EmitRequest
    from mlaplan.fleet.decision import Decision
    from mlaplan.fleet.split import Side
    from mlaplan.manifests import Deployment
    from mlaplan.report.plan_text import Launch


def requests(d: Decision, engine: str) -> tuple[EmitRequest, EmitRequest]:
    """One server of each pool in the form that engines read, joined by the plan's connector."""
    from mlaplan.cli.launching import longest, request
    from mlaplan.engines.handover import paired
    from mlaplan.fleet.split import kv_heads

    s, b = d.split, d.bands
    assert s is not None and b is not None  # there is a split to launch
    p, q = (
        replace(request(side.q, replace(side.strategy, replicas=1), e.pp_layers), devices=None)
        for side, e in ((s.prefill, b.prefill), (s.decode, b.decode))
    )
    if not engine.startswith("sglang"):  # its router sends prefill servers the whole request, others one token's
        p = replace(p, max_model_len=longest(s.prefill.q, s.prefill.strategy.block_size, s.prefill.q.workload.isl + 1))
    return paired(engine, s.connector.name if s.connector else None, p, q, kv_heads(s.decode.q))


def commands(d: Decision, engine: str) -> Launch:
    """A server of each pool, the router in front of all, and the benchmark; or what the engine cannot express."""
    from mlaplan.engines import bench_command, emit, handover
    from mlaplan.engines.load import load_profile
    from mlaplan.manifests.objects import LISTEN, PORTS
    from mlaplan.report.plan_text import Launch

    label, s = load_profile(engine).label, d.split
    assert s is not None
    try:
        pair = requests(d, engine)
        c = handover.of(engine, pair[1])
        assert c is not None  # joined above
        name = c.engine
        texts = []
        for side, one in zip((s.prefill, s.decode), pair, strict=True):
            role = one.handover.role if one.handover else ""
            listen = " ".join(LISTEN[name])
            for text in emit(engine, one):
                texts.append(f"{_heading(role, side, c)}\n{_listening(text, listen)}")
        first, second = ([f"${role}_{i}" for i in range(1, side.instances + 1)]
                         for role, side in (("PREFILL", s.prefill), ("DECODE", s.decode)))  # fmt: skip
        route = handover.shell(handover.router(c, first, second, PORTS[name]))
        addresses = "# PREFILL_n, DECODE_n: addresses of the servers"
        texts.append(f"# the router: {handover.router_note(c)}\n{addresses}\n{route}")
        work = s.decode.q.workload
        in_flight = work.concurrency or max(round(s.in_flight), 1)
        bench = bench_command(
            engine, pair[1], isl=work.isl, osl=work.osl, concurrency=in_flight, prefix_tokens=work.prefix_tokens,
            port=handover.ROUTER_PORT,
        )  # fmt: skip
    except MlaplanError as error:
        return Launch(label, [], None, str(error).replace("\n", "; "))
    return Launch(label, texts, bench)


def _listening(text: str, listen: str) -> str:
    """The command of the node that serves, for others than its own host."""
    if not listen or "--node-rank" in text:
        return text
    return f"{text} \\\n    {listen}" if " \\\n" in text else f"{text} {listen}"


# what each server of one host has of its own beside devices and --port, by engine, connector and role
OWN = {
    ("vllm", "nixl", "prefill"): ", and VLLM_NIXL_SIDE_CHANNEL_PORT",
    ("vllm", "nixl", "decode"): ", and VLLM_NIXL_SIDE_CHANNEL_PORT",
    ("vllm", "mooncake", "prefill"): ", and VLLM_MOONCAKE_BOOTSTRAP_PORT",
    ("sglang", "mooncake", "prefill"): ", and --disaggregation-bootstrap-port",
    ("sglang", "nixl", "prefill"): ", and --disaggregation-bootstrap-port",
    ("sglang", "ascend", "prefill"): ", and --disaggregation-bootstrap-port",
}


def _heading(role: str, side: Side, c: Connector) -> str:
    """Comment lines over the command of a pool's server."""
    from mlaplan.report import words

    servers = words.times(side.instances, "server")
    chips = words.times(side.strategy.chips_per_replica, "chip")
    lines = [f"# {role}: {servers} like this, {chips} of {side.q.setting.chip.name} each"]
    if (c.engine, c.name) == ("vllm", "nixl"):
        lines.append("# HOST_ADDR: this host's address, which the other pool reaches")
    if c.engine == "vllm_ascend":
        lines.append("# servers of one host have their own --port, and kv_port as far apart as they have chips")
    elif side.instances > 1 or side.strategy.chips_per_replica < side.q.setting.chip.scale_up.host_chips:
        lines.append(f"# servers of one host have their own devices and --port{OWN.get((c.engine, c.name, role), '')}")
    return "\n".join(lines)


def deployment(d: Decision, engine: str) -> Deployment:
    """Both pools as roles of one deployment, each with its copies."""
    from mlaplan.cli.manifesting import of_roles
    from mlaplan.manifests import Role
    from mlaplan.report import words
    from mlaplan.units import format_seconds

    s = d.split
    assert s is not None
    both = requests(d, engine)
    roles = tuple(
        Role(one.handover.role, one, side.instances, side.q.setting.chip)
        for side, one in zip((s.prefill, s.decode), both, strict=True)
        if one.handover is not None
    )
    c = s.connector
    tpot = f", TPOT {format_seconds(s.tpot_s)}" if s.tpot_s is not None else ""
    notes = [f"priced as a split: {words.plain(s.requests_per_s)} requests/s, TTFT {format_seconds(s.ttft_s)}{tpot}"]
    if c is not None:
        notes.append(f"the cache goes by {c.label}")
    return of_roles(s.decode.q, engine, roles, tuple(notes))
