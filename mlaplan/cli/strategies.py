"""From the flags of a strategy to a whole one (`explain`) or to what is pinned of it (`recommend`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlaplan import pins
from mlaplan.cli.options import MOST
from mlaplan.errors import MlaplanError
from mlaplan.pins import check_layout
from mlaplan.pins import check_pins as check_pins

if TYPE_CHECKING:
    from mlaplan.cli.questions import Subject
    from mlaplan.strategy import Strategy
    from mlaplan.workload import Overrides

DEGREES = ("tp", "pp", "dp", "ep", "dcp", "cp", "replicas")


def given(**flags: Any) -> dict[str, Any]:
    """The flags that were given, by strategy column, in the strategy's words."""
    from mlaplan.cli import questions

    found = {name: value for name, value in flags.items() if value is not None}
    for name in ("kv_dtype", "weight_dtype"):
        if name in found:
            found[name] = found[name].value
    if "prefill_chunk" in found:
        found["prefill_chunk"] = questions.tokens("--prefill-chunk", found["prefill_chunk"])
        if found["prefill_chunk"] < 1:
            raise MlaplanError("--prefill-chunk: at least 1 token")
    if "two_batch_overlap" in found:
        found["two_batch_overlap"] = int(found["two_batch_overlap"])
    check_layout(found)
    return found


def check_merge(own: Overrides, dcp: int | None) -> None:
    """Refuses a merge where there is nothing to merge; dcp: None where it is left open."""
    if dcp != 1:
        return
    for flag, value in (("--dcp-merge", own.dcp_merge), ("--dcp-interleave", own.dcp_interleave)):
        if value is not None:
            raise MlaplanError(f"{flag} {value} goes with --dcp above 1: a rank alone has nothing to merge")


def whole(
    s: Subject, flags: Mapping[str, Any], batch: int | None, step_tokens: int | None
) -> tuple[Strategy, list[str]]:
    """The strategy with defaults for what was not given, and what is worth saying about them.

    step_tokens: tokens of the prefill step asked for, which the chunk must hold.
    """
    from mlaplan.engines.profile import attention_kind
    from mlaplan.strategy import Strategy

    f, said = dict(flags), []
    kind = attention_kind(s.model)
    if f.get("kv_layout") == "sequence_sharded" and "dcp" not in f:
        f["dcp"] = f.get("tp", 1)
        said.append(f"--kv-layout sequence-sharded: decode context parallelism over all TP ranks, --dcp {f['dcp']}")
    if f.get("dcp", 1) > 1:
        f["kv_layout"] = "sequence_sharded"
    ranks = f.get("tp", 1) * f.get("dp", 1)
    moe = any(ffn.kind == "moe" for ffn in s.model.ffn.values())
    f.setdefault("ep", ranks if moe else 1)
    _check_degrees(s, f, ranks)
    check_precision(s, f)
    if "weight_dtype" not in f:
        f["weight_dtype"], words = weight_dtype(s)
        said += words
    if "kv_dtype" not in f:
        f["kv_dtype"], words = kv_dtype(s)
        said += words
    block = s.profile.default_block(s.chip.efficiency_class, kind, f["kv_dtype"])
    f.setdefault("block_size", block or 64)
    tokens = s.profile.rank_budget(float(s.chip.memory.capacity), s.chip.name, f.get("dp", 1))
    f.setdefault("prefill_chunk", max(tokens, step_tokens or 0))
    if s.model.mtp is not None and f.get("mtp", 0) > s.model.mtp.max_draft:
        most = s.model.mtp.max_draft
        said.append(
            f"--mtp {f['mtp']}: {s.model.name} is known with up to {most} drafts; priced with the same acceptance"
        )
    return Strategy(**f, batch=batch or 1), said


def check_precision(s: Subject, flags: Mapping[str, Any]) -> None:
    """Refuses dtypes that have no meaning for this model."""
    pins.check_precision(s.model, flags)


def _check_degrees(s: Subject, f: Mapping[str, Any], ranks: int) -> None:
    """Refuses what has no meaning; what is merely illegal is priced and told."""
    if f["ep"] > ranks:
        raise MlaplanError(f"--ep {f['ep']}: the experts lie on the tp x dp = {ranks} chips of a stage")
    if f.get("pp", 1) > s.model.layer_count:
        raise MlaplanError(f"--pp {f['pp']}: {s.model.name} has {s.model.layer_count} layers")
    tp = f.get("tp", 1)
    chips = ranks * f.get("pp", 1) * f.get("replicas", 1)
    if chips > MOST:
        raise MlaplanError(f"tp x dp x pp x replicas = {chips:,} chips; expected at most {MOST:,}")
    for name in ("dcp", "cp"):
        if f.get(name, 1) > tp or (name == "cp" and tp % f.get(name, 1)):
            raise MlaplanError(f"--{name} {f[name]} divides the ranks of --tp {tp}")
    if f.get("kv_layout") == "latent_sharded" and all(a.kind == "gqa" for a in s.model.attention.values()):
        raise MlaplanError(f"--kv-layout latent-sharded: {s.model.name} caches no latent")


def weight_dtype(s: Subject) -> tuple[str, list[str]]:
    """The checkpoint's own dtype, or what this chip needs."""
    from mlaplan.costs.precision import quantised, weight_targets

    own, target = quantised(s.model), weight_targets(s.chip, s.model)[0]
    if target == own:
        return own, []
    return target, [f"{s.chip.name} has no {own}: weights are taken as converted to {target} (--weight-dtype)"]


def kv_dtype(s: Subject) -> tuple[str, list[str]]:
    """16 bit where the engine reads such a cache on this chip, else the first dtype it reads."""
    from mlaplan.engines.profile import attention_kind

    sixteen = "bf16" if "bf16" in s.chip.peak else "fp16"
    read = s.profile.kv_dtypes(s.chip.efficiency_class, attention_kind(s.model))
    if not read or sixteen in read:
        said = [] if sixteen == "bf16" else [f"{s.chip.name} has no bf16: the cache is taken as {sixteen} (--kv-dtype)"]
        return sixteen, said
    return read[0], [f"{s.profile.label} reads no {sixteen} cache here: taken as {read[0]} (--kv-dtype)"]
