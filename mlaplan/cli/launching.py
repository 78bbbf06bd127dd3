"""From a plan to commands: how an engine is launched for it, and what to run next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from mlaplan.errors import MlaplanError, UnknownName

if TYPE_CHECKING:
    from mlaplan.cli.questions import Subject
    from mlaplan.engines.request import EmitRequest
    from mlaplan.report.plan_text import Answer, Launch
    from mlaplan.rules.rule import Question
    from mlaplan.strategy import Strategy
    from mlaplan.workload import Overrides

SPARE_TOKENS = 128  # a chat template and a client's rounding on top of the mean lengths


def check(emit: str) -> None:
    """Refuses what there are no commands or manifests for before anything is searched."""
    from mlaplan.cli.manifesting import KINDS
    from mlaplan.engines import MODULES
    from mlaplan.engines.load import spelled, split_name

    name = emit.partition("@")[0].replace("-", "_")
    if name in KINDS and emit != name:
        raise MlaplanError(f"--emit {emit}: manifests have no version to choose; the engine's goes with --engine")
    if name not in MODULES and name not in KINDS:
        raise UnknownName("engine or kind of manifest to emit", spelled(name), map(spelled, [*MODULES, *KINDS]))
    if emit not in KINDS:
        split_name(emit)  # the version


def commands(a: Answer, engine: str) -> Launch:
    """Launch and benchmark commands of the best plan, or which part the engine cannot express."""
    from mlaplan.engines import bench_command, emit
    from mlaplan.engines.load import load_profile
    from mlaplan.report.plan_text import Launch

    label = load_profile(engine).label
    best, work = a.found.plans[0], a.q.workload
    wanted = request(a.q, best.strategy, best.pp_layers)
    in_flight = work.concurrency or max(round(best.served.concurrency), 1) if best.served else 1
    try:
        found = emit(engine, wanted)
        bench = bench_command(
            engine, wanted, isl=work.isl, osl=work.osl, concurrency=in_flight, prefix_tokens=work.prefix_tokens
        )
    except MlaplanError as error:
        return Launch(label, [], None, str(error).replace("\n", "; "))
    return Launch(label, found, bench)


def request(q: Question, s: Strategy, pp_layers: tuple[int, ...]) -> EmitRequest:
    """The plan in the form that engines read."""
    from mlaplan.costs.precision import quantised
    from mlaplan.engines.profile import attention_kind
    from mlaplan.engines.request import EmitRequest

    model, chip = q.setting.model, q.setting.chip
    return EmitRequest.from_strategy(
        s,
        model=_served_name(q),
        chip_class=chip.efficiency_class,
        attention=attention_kind(model),
        moe=any(f.kind == "moe" for f in model.ffn.values()),
        weight_conversion=s.weight_dtype != quantised(model),
        max_model_len=longest(q, s.block_size, q.workload.max_context),
        memory_fraction=int(q.budget.memory_fraction * 1000 + 1e-9) / 1000,
        pp_layers=pp_layers if s.pp > 1 else (),
        dcp_merge=q.setting.engine.merge.pattern if s.dcp > 1 else None,
        dcp_interleave=q.setting.engine.merge.interleave if s.dcp > 1 else 1,
        chips_per_node=chip.scale_up.host_chips,
        devices=s.devices,
        all_to_all=all_to_all(q, s),
    )


def all_to_all(q: Question, s: Strategy) -> str:
    """`auto`, the backend that dispatches in both phases, where the plan's decode steps are priced with it.

    An engine that has none such, or takes it unasked, gets its default, like a plan that gathers.
    """
    from mlaplan.explain import explain

    engine = q.setting.engine
    if not engine.dispatch or engine.dispatch_rule.fixed or s.ep == 1 or s.dp == 1:
        return "default"
    decode = explain(q, s, decode_context=q.workload.mean_context, served=False).decode
    sent = decode is not None and any(op.name == "moe_dispatch" and op.time_s > 0 for op in decode.ops)
    return "auto" if sent else "default"


def longest(q: Question, block: int, tokens: int) -> int:
    """The longest sequence that servers take: so many tokens and some to spare, in whole blocks, if the model can."""
    return max(min(-(-(tokens + SPARE_TOKENS) // block) * block, q.setting.model.max_position), tokens)


def _served_name(q: Question) -> str:
    """What engines load: the published name, or the folder of a config.json."""
    model = q.setting.model
    if model.served_names:
        return str(model.served_names[0])
    path = Path(model.origin)
    return str(path.parent) if path.name == "config.json" and path.parent.name else model.name


def next_steps(subject: Subject, a: Answer, given: Overrides, emit: str | None) -> list[str]:
    """The command that looks closer at the best plan, or at what to change."""
    if not a.found.plans:
        return []
    from mlaplan.engines.load import spelled

    words = ["mlaplan", "explain", subject.given_model, subject.given_chip, *strategy_flags(a.found.plans[0].strategy)]
    w = a.q.workload
    words += ["--isl", str(w.isl), "--osl", str(w.osl)]
    if w.concurrency is not None:
        words += ["--concurrency", str(w.concurrency)]
    if w.rate is not None:
        words += ["--rate", f"{w.rate:g}"]
    if w.prefix_tokens:
        words += ["--prefix", str(w.prefix_tokens)]
    if w.prefix_groups is not None:
        words += ["--prefix-groups", str(w.prefix_groups)] + ["--no-prefix-routing"] * (not w.prefix_routed)
    if (engine := subject.engine or emit) is not None:
        words += ["--engine", spelled(engine)]
    words += _own(given, a.found.plans[0].strategy)
    for setting in subject.settings:
        words += ["--set", setting]
    lines = [f"next: {shlex.join(words)}"]
    if emit is None:
        known = subject.profile.name.replace("_", "-")
        engines = f"--emit {known}" if subject.profile.name != "generic" else "--emit vllm or --emit sglang"
        lines.append(f"or add {engines} for launch commands, --save-plan FILE to keep the plan")
    return lines


def strategy_flags(s: Strategy) -> list[str]:
    """A strategy as the flags of `explain`."""
    words: list[str] = []
    for name in ("tp", "pp", "dp", "ep", "dcp", "cp", "replicas", "batch", "mtp"):
        value, default = getattr(s, name), 0 if name == "mtp" else 1
        if value != default or name in ("ep", "batch"):
            words += [f"--{name}", str(value)]
    if s.kv_layout == "latent_sharded":
        words += ["--kv-layout", "latent-sharded"]
    words += ["--kv-dtype", s.kv_dtype, "--weight-dtype", s.weight_dtype, "--block-size", str(s.block_size)]
    words += ["--prefill-chunk", str(s.prefill_chunk)]
    return words + ["--two-batch-overlap"] * bool(s.two_batch_overlap)


def _own(given: Overrides, s: Strategy) -> list[str]:
    words: list[str] = []
    # what the plan made of it: a step yields no more than it drafts, and without drafts there is nothing to accept
    accepted = min(given.tokens_per_step, 1.0 + s.mtp) if given.tokens_per_step is not None and s.mtp else None
    for flag, value in (
        ("--memory-fraction", given.memory_fraction),
        ("--price", given.price_usd_per_hour),
        ("--imbalance", given.imbalance),
        ("--mtp-accept", accepted),
    ):
        words += [flag, f"{value:g}"] if value is not None else []
    if s.dcp > 1 and given.dcp_merge is not None:
        words += ["--dcp-merge", given.dcp_merge]
    if s.dcp > 1 and given.dcp_interleave is not None:
        words += ["--dcp-interleave", str(given.dcp_interleave)]
    if given.reserve_bytes is not None:
        words += ["--reserve", f"{given.reserve_bytes:.0f} B"]
    if given.redundant_experts:
        words += ["--redundant-experts", str(given.redundant_experts)]
    if given.shared_ranks:
        words += ["--shared-ranks", str(given.shared_ranks)]
    if given.gather_only:
        words += ["--gather-only"]
    return words
