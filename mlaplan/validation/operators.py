"""Predictions of single operators: the very operators a step is made of, picked by name.

An attention kernel of h heads is the core of a tensor-parallel slice that has h heads; experts and their dispatch
are those of a deployment over so many ranks. Nothing is priced here: the cost model is asked for the block and
the operator is taken out of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mlaplan.costs import band
from mlaplan.costs import expert_parallel as ep_net
from mlaplan.costs.collectives import Group
from mlaplan.costs.engine import Interval
from mlaplan.costs.operators import Prefill, attention_decode, attention_prefill, feed_forward
from mlaplan.costs.params import routed_per_token
from mlaplan.costs.roofline import gemm_flops
from mlaplan.validation.setting import asked

if TYPE_CHECKING:
    from mlaplan.costs.machine import Machine, Op
    from mlaplan.costs.moe import MoeChoice
    from mlaplan.specs.chip import Chip
    from mlaplan.validation.points import Point

CORES = ("attention_core", "kv_cache_cast", "kv_dequantise")
EXPERT_OPS = {"experts": "routed_experts", "experts_prefill": "routed_experts", "dispatch": "moe_dispatch",
              "combine": "moe_combine", "dispatch_normal": "moe_dispatch", "combine_normal": "moe_combine"}  # fmt: skip
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def operator_ops(point: Point) -> list[Op]:
    """The operators whose times sum to what was measured, per chip, as plain floats."""
    q, st, s = asked(point)
    from dataclasses import replace

    from mlaplan.costs.machine import Machine as Pricer

    engine = q.setting.engine if "imbalance" in point.given else q.setting.engine.with_even_experts()
    choice = replace(q.setting, engine=engine).moe
    w, kind = point.workload, point.operator
    chip = _behind_dispatch(s.chip) if kind in EXPERT_OPS else s.chip
    m = Pricer(chip, s.model, engine, st.weight_dtype, st.kv_dtype)
    if kind == "gemm":
        ops = [m.gemm("gemm", "attention", w["m"], w["k"], w["n"])]
    elif kind in COLLECTIVES:
        ops = [m.collective(kind, kind, w["size"], Group(w["ranks"]))]
    elif kind in EXPERT_OPS:
        ops = _expert_ops(m, w, kind, choice)
    else:
        ops = _attention_ops(m, w, str(kind))
    return [_plain(op) for op in ops]


def _behind_dispatch(chip: Chip) -> Chip:
    """The chip with no other kernel of experts than the one behind a dispatch, which one rank is timed with too."""
    own = chip.efficiency
    fits = {**own, "grouped_gemm": own.get("grouped_gemm_ep", own.get("grouped_gemm", {}))}
    return chip.model_copy(update={"efficiency": fits})


FLOATS = ("time_s", "flops", "bytes", "link_bytes", "compute_s", "memory_s", "floor_s")


def _plain(op: Op) -> Op:
    cells: dict[str, Any] = {f: float(np.ravel(getattr(op, f))[0]) for f in FLOATS}
    return op._replace(**cells)


def _attention_ops(m: Machine, w: dict[str, Any], kind: str) -> list[Op]:
    name, a = next(iter(m.model.attention.items()))
    tp = a.heads // w.get("heads", a.heads)
    cells = {"tp": tp, "cp": 1, "dcp": 1, "kv_layout": 0, "seqs": w.get("batch", 1), "q_len": w.get("q_len", 1)}
    if kind in ("mla_prefill", "sparse_mla_prefill"):
        tokens = np.array([w["isl"] * w.get("batch", 1)])
        ops = attention_prefill(m, name, {**cells, "step_tokens": tokens}, Prefill(w["isl"]))
        return [op for op in ops if op.name in CORES]
    ops = attention_decode(m, name, cells, w["context"])
    if kind == "mla_module":
        return [op for op in ops if not op.is_link and op.name != "attention_norm"]
    if kind == "indexer":
        return [op for op in ops if op.name == "indexer_scores"]
    return [op for op in ops if op.name in CORES]


def _expert_ops(m: Machine, w: dict[str, Any], kind: str, choice: MoeChoice) -> list[Op]:
    name = next(n for n, f in m.model.ffn.items() if f.kind == "moe")
    n = w["ranks"]
    cells = {"tp": 1, "dp": n, "ep": n, "cp": 1, "tokens": w["tokens"]}
    decode = not kind.endswith(("_normal", "_prefill"))
    if n > 1:  # what was timed is the dispatch kernel and the experts behind it
        choice = choice._replace(dispatch=True, dispatch_whole=False, gather=False)
    ops = feed_forward(m, name, cells, decode, choice)
    return [op for op in ops if op.name == EXPERT_OPS[kind] and float(np.max(op.time_s)) > 0.0]


def operator_value(point: Point) -> tuple[Interval, list[Op]]:
    """The predicted value of an operator point in its own metric, with its band, and the operators behind it."""
    ops = operator_ops(point)
    time_s = sum(float(op.time_s) for op in ops)
    known = band.of_operators(ops).around(time_s)
    if point.metric == "time":
        return known, ops
    amount = _flops(point) if point.metric == "flops" else _bottleneck_bytes(point)
    return Interval(amount / known.value, amount / known.high, amount / known.low), ops


def _flops(point: Point) -> float:
    w = point.workload
    return float(gemm_flops(w["m"], w["k"], w["n"]))


def _bottleneck_bytes(point: Point) -> float:
    """Bytes that the published rate of dispatch counts: copies to chips in a node, to nodes beyond one."""
    _, _, s = asked(point)
    moe = next(f for f in s.model.ffn.values() if f.kind == "moe")
    k, w = routed_per_token(moe), point.workload
    nodes = -(-w["ranks"] // s.chip.scale_up.chips_per_node)
    limit = moe.groups_per_token if moe.groups > 1 else k
    places = ep_net.distinct(w["ranks"], k) if nodes == 1 else min(ep_net.distinct(nodes, k), limit)
    return float(w["tokens"] * places * ep_net.copy_bytes(s.model.hidden_size, True))
