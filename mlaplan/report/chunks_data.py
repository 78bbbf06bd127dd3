"""The same as data: `mlaplan.chunks/1`, SI, the unit in each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.costs import overlap, slices
from mlaplan.report import words

if TYPE_CHECKING:
    from mlaplan.costs.chunks import GatherPlan, LocalPlan
    from mlaplan.costs.gather import Way
    from mlaplan.costs.policies import Replayed
    from mlaplan.costs.study import Study
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

SCHEMA = "mlaplan.chunks/1"


def document(model: Model, chip: Chip, s: Study, runs: list[Replayed], trace: str | None) -> dict[str, Any]:
    """Everything."""
    from mlaplan import __version__

    a = s.asked
    return {
        "schema": SCHEMA,
        "tool_version": __version__,
        "model": {"name": model.name, "file": words.file(model.origin)},
        "chip": {"name": chip.name, "file": words.file(chip.origin)},
        "devices": a.devices,
        "batch": a.batch,
        "context_tokens": a.context,
        "q_len": a.q_len,
        "heads_per_chip": s.heads,
        "form": s.form,
        "decision": decision(s),
        "alternatives": [way(w) for w in s.ways],
        "crossover_tokens": s.crossover._asdict() if s.crossover else None,
        "gather": {form: gather(p) for form, p in s.plans.items()},
        "mapping": [
            {"batch": b, "context_tokens": c, "schemes": [x._asdict() for x in found]}
            for (b, c), found in s.schemes.items()
        ],
        "two_buffers": {**s.buffered._asdict(), "saving_share": s.buffered.saving},
        "stated": [v._asdict() for v in s.verdicts],
        "tiers": [t._asdict() for t in s.tiers],
        "lower_cliff": None if s.cliff is None else s.cliff._asdict(),
        "border": s.border._asdict() if s.border else None,
        "replay": {"trace": trace, "policies": [replayed(r) for r in runs]} if runs else None,
    }


def decision(s: Study) -> dict[str, Any]:
    """What to configure: of a gather where there is one, of the chip's own memory always."""
    p = s.plan
    gathered = None
    if p is not None:
        gathered = {
            "mode": p.best.name,
            "q_chunk": p.q_chunk.chunk,
            "q_chunk_reason": p.q_chunk.reason,
            "recv_slice_bytes": p.picked.slice_bytes,
            "pipeline_depth": p.picked.depth,
            "step_s": p.best.step_s,
        }
    return {"best": s.best_way.name, "gathered": gathered, "own_memory": local(s.local)}


def local(p: LocalPlan) -> dict[str, Any]:
    """Slices of the chip's own memory."""
    return {
        "q_chunk": p.q_chunk,
        "heads_per_task": p.heads,
        "recv_slice_bytes": p.slice_bytes,
        "recv_slice_tokens": p.slice_tokens,
        "pipeline_depth": p.depth,
        "core_mapping": p.scheme.name,
        "cores_per_sequence": p.scheme.parts,
        "on_chip_levels": list(p.fit.levels),
        "spilled": list(p.fit.spilled),
        "assumed": list(p.assumed),
    }


def way(w: Way) -> dict[str, Any]:
    """One place for the cache."""
    return {
        "name": w.name,
        "link_bytes": float(w.link_bytes),
        "link_s": float(w.link_s),
        "core_s": float(w.core_s),
        "step_s": float(w.step_s),
        "kv_bytes_per_token_layer": w.kv_bytes,
        "capacity_factor": w.capacity,
    }


def gather(p: GatherPlan) -> dict[str, Any]:
    """Modes, sweep, working set and the timeline's figures of one form."""
    one = overlap.pipeline(p.work, p.rates, p.picked.slice_bytes, p.picked.depth)
    t = slices.account(one)
    return {
        "received_bytes": float(p.work.received_bytes),
        "rates": {**p.rates._asdict(), "assumed": list(p.rates.assumed)},
        "modes": [{**m._asdict(), "utilisation": m.utilisation, "exposed_s": m.exposed_s} for m in p.modes],
        "picked": p.picked._asdict(),
        "sweep": [c._asdict() for c in p.sweep],
        "working_set": [x._asdict() for x in p.fit.parts],
        "query_output_tile_bytes": p.q_chunk.tile_bytes,
        "timeline": {
            "step_s": t.total_s,
            "utilisation": t.utilisation,
            "exposed_s": t.exposed_s,
            "binding": t.binding,
            "bubbles_s": t.idle_s,
            "busy_s": t.busy_s,
        },
    }


def replayed(r: Replayed) -> dict[str, Any]:
    """A policy over a trace, step by step."""
    return {
        "policy": r.policy,
        "total_s": r.total_s,
        "exposed_s": r.exposed_s,
        "changes": r.changes,
        "best_s": r.best_s,
        "regret_share": r.regret,
        "steps": [d._asdict() for d in r.decisions],
    }
