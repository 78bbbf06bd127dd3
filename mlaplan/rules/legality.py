"""What no engine can run: divisibility of heads, experts and scale blocks, node boundaries, absent dtypes.

Written with operators alone, so that one strategy is judged in plain numbers: `check` starts without numpy for it.
"""

from __future__ import annotations

from typing import Any

from mlaplan.costs import placement
from mlaplan.costs.precision import can_multiply, quantised, sixteen_bit
from mlaplan.rules.rule import Cells, Question, Rule
from mlaplan.strategy import CODED, KV_DTYPES, WEIGHT_DTYPES


def _never(c: Cells) -> Any:
    """False of every strategy."""
    return c["tp"] < 0


def _attention(q: Question) -> list[Any]:
    return list(q.setting.model.attention.values())


def _experts(q: Question) -> list[Any]:
    return [f for f in q.setting.model.ffn.values() if f.kind == "moe"]


def _word(name: str, value: Any) -> str:
    return value if isinstance(value, str) else CODED[name][int(value)]


def _is(c: Cells, name: str, word: str) -> Any:
    value = c[name]
    return value == word if isinstance(value, str) else value == CODED[name].index(word)


# ---- heads ----


def _heads(q: Question, c: Cells) -> Any:
    bad = _never(c)
    for a in _attention(q):
        bad = bad | (a.heads % (c["tp"] // c["cp"]) != 0)
    return bad


def _heads_detail(q: Question, c: Cells) -> str:
    heads = ", ".join(str(a.heads) for a in _attention(q))
    return f"{heads} attention heads do not divide by TP {c['tp'] // c['cp']}"


HEADS = Rule(
    "MLA101", "heads-per-rank", "structure", "attention heads do not divide by TP",
    "Every tensor-parallel rank computes the same number of whole heads.", _heads, _heads_detail,
)  # fmt: skip


# ---- decode context parallelism ----


def _dcp(q: Question, c: Cells) -> Any:
    bad = c["tp"] % c["dcp"] != 0
    for a in _attention(q):
        if a.kind == "gqa":  # the sequence is shared among ranks that hold the same key-value heads
            bad = bad | ((c["dcp"] > 1) & (c["dcp"] * a.kv_heads > c["tp"]))
    return bad


def _dcp_detail(q: Question, c: Cells) -> str:
    kv = next((a.kv_heads for a in _attention(q) if a.kind == "gqa"), None)
    more = f"; {kv} KV heads leave {c['tp']} / {kv} ranks that hold the same ones" if kv else ""
    return f"DCP {c['dcp']} does not divide TP {c['tp']}{more}"


DCP = Rule(
    "MLA102", "dcp-divides-tp", "structure", "decode context parallelism does not divide TP",
    "It shares the sequence among TP ranks that would hold the same cache; there are TP of them with MLA, "
    "TP / KV heads with GQA.", _dcp, _dcp_detail,
)  # fmt: skip


# ---- fp8 scale blocks ----


def _block(q: Question, c: Cells) -> Any:
    w = q.setting.model.weights
    if quantised(q.setting.model) != "fp8" or not w.block:
        return _never(c)
    bad = _never(c)
    for _, width, ranks in _divided_widths(q, c):
        bad = bad | ((width / ranks) % w.block[1] != 0)
    return bad & _is(c, "weight_dtype", "fp8")


def _divided_widths(q: Question, c: Cells) -> list[tuple[str, int, Any]]:
    """(what, columns in all, ranks that share them) of every block-quantised feed-forward width."""
    out: list[tuple[str, int, Any]] = []
    model = q.setting.model
    over = placement.ranks(q.setting.engine, c["tp"], c["dp"], c["ep"])
    for f in model.ffn.values():
        if f.kind == "dense":
            out.append(("dense FFN", f.intermediate_size, over.dense))
            continue
        out.append(("experts", f.intermediate_size, c["tp"] * c["dp"] // c["ep"]))
        if f.shared_experts:
            out.append(("shared experts", f.shared_intermediate_size, over.shared))
    return out


def _block_detail(q: Question, c: Cells) -> str:
    block = q.setting.model.weights.block[1]  # type: ignore[index]
    bad = [(what, n, r) for what, n, r in _divided_widths(q, c) if (n / r) % block != 0]
    what, n, r = bad[0]
    return f"{what}: {n} / {r} = {n / r:g} columns are no multiple of the fp8 scale block {block}"


BLOCK = Rule(
    "MLA103", "fp8-block-per-shard", "choice", "a shard is no multiple of the fp8 scale block",
    "Block-quantised weights can only be cut at block borders.", _block, _block_detail,
)  # fmt: skip


# ---- experts ----


def _experts_divide(q: Question, c: Cells) -> Any:
    bad = _never(c)
    for f in _experts(q):
        bad = bad | ((f.experts + q.setting.redundant_experts) % _routed(q, c) != 0)
        if q.setting.engine.beside.ranks and f.shared_experts:
            bad = bad | (c["ep"] <= q.setting.engine.beside.ranks)
    return bad


def _routed(q: Question, c: Cells) -> Any:
    """EP ranks with routed experts."""
    if not (apart := q.setting.engine.beside.ranks):
        return c["ep"]
    from mlaplan.costs.shared_experts import routed_ranks

    return routed_ranks(c["ep"], apart)


def _experts_detail(q: Question, c: Cells) -> str:
    total, apart = _experts(q)[0].experts + q.setting.redundant_experts, q.setting.engine.beside.ranks
    if apart and c["ep"] <= apart:
        return f"{apart} of EP {c['ep']} for the shared experts leave no rank for the routed ones"
    ranks = f"the {_routed(q, c)} of EP {c['ep']} that hold no shared expert" if apart else f"EP {c['ep']}"
    return f"{total} experts (redundant ones included) do not divide by {ranks}"


EXPERTS = Rule(
    "MLA104", "experts-per-rank", "structure", "experts do not divide by EP",
    "Ranks with more experts than others make all wait; redundant experts can fill up the count.",
    _experts_divide, _experts_detail,
)  # fmt: skip


def _ep_width(q: Question, c: Cells) -> Any:
    ranks = c["tp"] * c["dp"]
    bad = ranks % c["ep"] != 0
    if not _experts(q):
        return bad | (c["ep"] > 1)
    moe_tp = ranks // c["ep"] + (ranks < c["ep"])  # at least 1
    for f in _experts(q):
        bad = bad | (f.intermediate_size % moe_tp != 0)
    return bad


EP_WIDTH = Rule(
    "MLA105", "expert-width", "structure", "EP x MoE-TP does not cut the experts evenly over TP x DP",
    "The chips of a pipeline stage hold the experts as EP x MoE-TP, and MoE-TP divides their width.", _ep_width,
    lambda _, c: f"EP {c['ep']} over TP x DP = {c['tp'] * c['dp']} ranks",
)  # fmt: skip


# ---- nodes ----


def _node(q: Question, c: Cells) -> Any:
    per_node = q.setting.chip.scale_up.chips_per_node
    width = c["tp"] * c["dp"]
    uneven = _uneven(c["tp"], per_node) | _uneven(width, per_node)
    return uneven & (width * c["pp"] > per_node)


def _uneven(group: Any, per_node: int) -> Any:
    """Whether groups of so many chips neither divide a node nor are whole nodes."""
    return (per_node % group != 0) & (group % per_node != 0)


NODE = Rule(
    "MLA106", "node-boundary", "structure", "a TP group or a stage straddles nodes unevenly",
    "Groups that start in one node and end in another put part of every collective on the slow link.", _node,
    lambda q, c: f"TP {c['tp']} x DP {c['dp']} on nodes of {q.setting.chip.scale_up.chips_per_node} chips",
)  # fmt: skip


def _no_network(q: Question, c: Cells) -> Any:
    chip = q.setting.chip
    if chip.scale_out is not None:
        return _never(c)
    return c["tp"] * c["dp"] * c["pp"] > chip.scale_up.chips_per_node


NETWORK = Rule(
    "MLA107", "no-scale-out", "structure", "a replica spans nodes and the chip has no scale-out link",
    "Without a figure for the network between nodes nothing across it can be priced.", _no_network,
    lambda q, c: f"{c['tp'] * c['dp'] * c['pp']} chips in one replica, {q.setting.chip.scale_up.chips_per_node} a node",
)  # fmt: skip


def _stages(q: Question, c: Cells) -> Any:
    return c["pp"] > q.setting.model.layer_count


STAGES = Rule(
    "MLA108", "layers-per-stage", "structure", "more pipeline stages than layers",
    "Every stage holds at least one layer.", _stages,
    lambda q, c: f"PP {c['pp']} for {q.setting.model.layer_count} layers",
)  # fmt: skip


# ---- dtypes ----


def _weights_absent(q: Question, c: Cells) -> Any:
    bad = _never(c)
    for dtype in WEIGHT_DTYPES:
        if not can_multiply(q.setting.chip, dtype):
            bad = bad | _is(c, "weight_dtype", dtype)
    return bad


WEIGHTS = Rule(
    "MLA109", "weight-dtype-absent", "choice", "the chip does not multiply the weights' dtype",
    "A dtype without matrix rate must be converted: to int8 where the chip has it, else to 16 bit.", _weights_absent,
    lambda q, c: f"{q.setting.chip.name} has no {_word('weight_dtype', c['weight_dtype'])}: convert the weights to "
    f"{'int8 or ' if 'int8' in q.setting.chip.peak else ''}{sixteen_bit(q.setting.chip)}",
)  # fmt: skip


def _kv_absent(q: Question, c: Cells) -> Any:
    bad = _never(c)
    chip = q.setting.chip
    for dtype in KV_DTYPES:
        needs = "fp8" if dtype == "fp8_ds_mla" else dtype
        if needs not in chip.peak and dtype != "fp16":
            bad = bad | _is(c, "kv_dtype", dtype)
    return bad


KV_DTYPE = Rule(
    "MLA110", "kv-dtype-absent", "choice", "the chip lacks the cache's dtype",
    "The attention kernel would have nothing to read the cache with.", _kv_absent,
    lambda q, c: f"{q.setting.chip.name} has no {_word('kv_dtype', c['kv_dtype'])}",
)  # fmt: skip


def _latent(q: Question, c: Cells) -> Any:
    if any(a.kind != "mla" or a.sparse for a in _attention(q)):
        return _is(c, "kv_layout", "latent_sharded")
    ranks = max(a.kv_lora_rank for a in _attention(q))
    return _is(c, "kv_layout", "latent_sharded") & (ranks % c["tp"] != 0)


LATENT = Rule(
    "MLA111", "latent-per-rank", "structure", "the latent's dimensions do not divide by TP",
    "A latent-sharded cache gives every rank an equal slice of kv_lora_rank; sparse and grouped-query caches "
    "have no such layout.", _latent,
    lambda _, c: f"latent-sharded cache over TP {c['tp']}",
)  # fmt: skip

LEGALITY = (HEADS, DCP, BLOCK, EXPERTS, EP_WIDTH, NODE, NETWORK, STAGES, WEIGHTS, KV_DTYPE, LATENT)
