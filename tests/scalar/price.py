"""One strategy: its rounds over the pipeline's stages, what its memory holds, what it serves."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from mlaplan.costs.pipeline import cuts  # candidates only; what each costs is worked out here

from . import attention, feed_forward, links, memory, serving
from .machine import WIRE, Case, Ledger


class Stage(NamedTuple):
    """Layers by kind, and whether the embedding and the head are with them."""

    layers: dict[Any, int]
    first: bool
    last: bool


def price(q: Any, st: Any, tokens_given: float | None = None) -> dict[str, float]:
    """The columns of `mlaplan.plan.price` in detail, for one strategy of a question."""
    s, work = q.setting, q.workload
    case = Case(s.chip, s.model, s.engine, st.weight_dtype, st.kv_dtype, s.redundant_experts)
    options = [stages(s.model, cut.layers) for cut in cuts(s.model, st.pp)]
    tokens = tokens_per_round(s.model, st.mtp, tokens_given)
    step_tokens = prefill_step_tokens(st, work, tokens)
    out = decode_round(case, st, options, work.mean_context, q.budget)
    if work.concurrency is None and work.rate is None:  # there are never fewer sequences than slots
        out["decode_gain_s"] = 0.0
    cut = int(out["cut"])
    out |= prefill_round(case, st, options[cut], step_tokens, work)

    def of_batch(batch: int) -> tuple[dict[str, float], int]:
        other = replace(st, batch=batch)
        new = prefill_step_tokens(other, work, tokens)
        x = decode_round(case, other, options, work.mean_context, q.budget, cut)
        return x | prefill_round(case, other, options[cut], new, work), new

    return out | serving.served(case.engine, st, work, tokens, out, step_tokens, of_batch)


def stages(model: Any, layers_per_stage: tuple[int, ...]) -> list[Stage]:
    """The stages that a cut makes of the schedule."""
    schedule = [(tuple(run.attention), tuple(run.ffn)) for run in model.layers for _ in range(run.count)]
    out, start = [], 0
    for i, n in enumerate(layers_per_stage):
        held: dict[Any, int] = dict.fromkeys(dict.fromkeys(schedule), 0)
        for layer in schedule[start : start + n]:
            held[layer] += 1
        out.append(Stage(held, i == 0, i == len(layers_per_stage) - 1))
        start += n
    return out


# ---- one round ----


class Blocks(NamedTuple):
    """(time, exposed link time) of one micro-batch, by layer kind and for both ends."""

    layer: dict[Any, tuple[float, float]]
    embedding: tuple[float, float]
    tail: tuple[float, float]

    def of(self, stage: Stage, part: int) -> float:
        """Time (part 0) or link time (part 1) of a stage."""
        total = sum(n * self.layer[kind][part] for kind, n in stage.layers.items())
        return total + stage.first * self.embedding[part] + stage.last * self.tail[part]


def layer_time(ledgers: list[Ledger], halves: int, hidden: float, held_cores: float) -> tuple[float, float]:
    """(time, exposed link time): two half batches hide a part of the smaller of chip and link time.

    held_cores: part of the cores that communication holds, so that what it hides is paid in slower compute.
    """
    chip = halves * sum(x.chip_s for x in ledgers)
    link = halves * sum(x.link_s for x in ledgers)
    saved = hidden * min(chip, (1 - held_cores) * link) if halves > 1 else 0.0
    return chip + link - saved, link - saved


def times(ledger: Ledger, calls: float) -> tuple[float, float]:
    return calls * (ledger.chip_s + ledger.link_s), calls * ledger.link_s


def add(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return a[0] + b[0], a[1] + b[1]


class Round(NamedTuple):
    worst_s: float
    worst_link_s: float
    total_s: float


def over_stages(blocks: Blocks, option: list[Stage], host: float, layer_host: float) -> Round:
    """Slowest stage and the sum of all, each at least as long as the host needs for its layers."""
    worst, worst_link = 0.0, 0.0
    for stage in option:
        t = max(blocks.of(stage, 0), layer_host * sum(stage.layers.values())) + host
        if t > worst:
            worst, worst_link = t, blocks.of(stage, 1)
    # all layers once: the same number for every cut, so that cuts that differ in nothing else stay equal
    model = Stage({kind: sum(stage.layers[kind] for stage in option) for kind in option[0].layers}, True, True)
    total = max(blocks.of(model, 0), layer_host * sum(model.layers.values())) + host * len(option)
    return Round(worst, worst_link, total)


def send_time(case: Case, st: Any, tokens: float) -> float:
    """Residual stream and its norm, each rank its slice; stages may lie on neighbouring nodes."""
    if st.pp == 1:
        return 0.0
    crosses = st.pp * st.tp * st.dp > case.chip.scale_up.chips_per_node
    return links.send(case.chip, 2 * tokens * case.model.hidden_size * WIRE / st.tp, crosses)


def decode_round(
    case: Case, st: Any, options: list[list[Stage]], context: int, budget: Any, given: int | None = None
) -> dict[str, float]:
    """m micro-batches through p stages: max(m (slowest + send), sum + p send); the fastest cut that holds enough, or
    the given one."""
    model, halves = case.model, 1 + st.two_batch_overlap
    m = min(st.pp, st.batch)
    seqs = math.ceil(math.ceil(st.batch / m) / halves)
    shape = attention.Decode(seqs, 1 + st.mtp, context, st.tp // st.cp, st.dcp, st.kv_layout, st.dp)
    ranks, t = feed_forward.Ranks(st.tp, st.dp, st.ep, st.cp), seqs * (1 + st.mtp)
    attn = {n: attention.decode(case, a, shape) for n, a in model.attention.items()}
    ffn = {n: feed_forward.block(case, f, t, ranks, True) for n, f in model.ffn.items()}
    tail = times(feed_forward.head(case, t, ranks), halves)
    if st.mtp:
        tail = add(tail, times(feed_forward.drafts(case, shape, ranks, st.mtp), halves))
    blocks = Blocks(
        _layers(options[0], attn, ffn, halves, float(case.engine.overlap_fraction)),
        times(feed_forward.embedding(case, t, st.tp), halves),
        tail,
    )
    send = send_time(case, st, t * halves)
    need = need_tokens(st, budget)
    other = memory.everything_else(case, st, budget)
    found = []
    for option in options:
        r = over_stages(blocks, option, float(case.engine.step_overhead_s), 0.0)
        round_s = max(m * (r.worst_s + send), r.total_s + st.pp * send)
        found.append((round_s, r, held(case, st, option, other, budget)))
    enough = [i for i, (_, _, room) in enumerate(found) if room[0] >= need]
    roomiest = max(range(len(found)), key=lambda i: found[i][2][0])
    cut = min(enough, key=lambda i: found[i][0]) if enough else roomiest
    cut = cut if given is None else given
    round_s, r, room = found[cut]
    # what the context adds to the attention of all layers, shared evenly by the stages
    bare = {n: attention.decode(case, a, replace(shape, context=1)) for n, a in model.attention.items()}
    each = sum(run.count * _context_s(attn[n], bare[n]) for run in model.layers for n in run.attention)
    core = m / st.pp * halves * each
    gain = 0.0
    if st.dp > 1 and st.batch == 1:
        alone = {n: feed_forward.block(case, f, t, ranks, True, alone=True) for n, f in model.ffn.items()}
        lone = blocks._replace(layer=_layers(options[cut], attn, alone, halves, float(case.engine.overlap_fraction)))
        short = over_stages(lone, options[cut], float(case.engine.step_overhead_s), 0.0)
        gain = max(round_s - max(m * (short.worst_s + send), short.total_s + st.pp * send), 0.0)
    return {
        "decode_core_s": core,
        "decode_gain_s": gain,
        "decode_s": round_s,
        "decode_total_s": r.total_s,
        "decode_comm_s": m * (r.worst_link_s + send),
        "cut": cut,
        "kv_tokens": room[0],
        "weight_bytes": room[1],
        "kv_bytes_per_token": room[2],
        "other_bytes": other,
    }


def prefill_round(case: Case, st: Any, option: list[Stage], step_tokens: int, work: Any) -> dict[str, float]:
    """One step: the slowest stage and its send in steady state, all stages and sends for the first of them."""
    model, e, halves = case.model, case.engine, 1 + st.two_batch_overlap
    t = math.ceil(step_tokens / halves)
    shape = attention.Prefill(t, work.isl - work.prefix_tokens, work.prefix_tokens, st.tp // st.cp, st.cp, st.dp)
    ranks = feed_forward.Ranks(st.tp, st.dp, st.ep, st.cp)
    attn = {n: attention.prefill(case, a, shape) for n, a in model.attention.items()}
    ffn = {n: feed_forward.block(case, f, t, ranks, False) for n, f in model.ffn.items()}
    finished = max(t / shape.new, 1.0)
    blocks = Blocks(
        _layers(option, attn, ffn, halves, float(e.overlap_fraction), e.dispatch_cores / float(case.chip.cores)),
        times(feed_forward.embedding(case, t, st.tp), halves),
        times(feed_forward.head(case, finished, ranks), halves),
    )
    r = over_stages(blocks, option, float(e.step_overhead_s), float(e.prefill_layer_host_s))
    send = send_time(case, st, step_tokens)
    held_cores, overhead = e.dispatch_cores / float(case.chip.cores), float(e.step_overhead_s)
    even = over_stages(blocks, option, overhead, 0.0).worst_s + send
    layers = max(sum(stage.layers.values()) for stage in option)
    out = {
        "prefill_late_s": 0.0,
        "prefill_even_s": even,
        "prefill_lone_s": even,
        "prefill_host_s": float(e.prefill_layer_host_s) * layers + overhead + send,
    }
    if st.pp > 1 and step_tokens < shape.new:
        # the last chunk attends to all before it
        new = min(t * halves, shape.new)
        last = attention.Prefill(t, new, shape.past + shape.new - new, shape.ranks, shape.cp, shape.dp)
        of_last = {n: attention.prefill(case, a, last) for n, a in model.attention.items()}
        late = blocks._replace(layer=_layers(option, of_last, ffn, halves, float(e.overlap_fraction), held_cores))
        after = over_stages(late, option, overhead, float(e.prefill_layer_host_s))
        out["prefill_late_s"] = max((after.total_s - after.worst_s) - (r.total_s - r.worst_s), 0.0)
    if st.dp > 1:
        alone = {n: feed_forward.block(case, f, t, ranks, False, alone=True) for n, f in model.ffn.items()}
        lone = blocks._replace(layer=_layers(option, attn, alone, halves, float(e.overlap_fraction), held_cores))
        out["prefill_lone_s"] = min(over_stages(lone, option, overhead, 0.0).worst_s + send, even)
    return out | {
        "prefill_s": r.worst_s + send,
        "prefill_pass_s": r.total_s + st.pp * send,
        "prefill_comm_s": r.worst_link_s + send,
    }


def _context_s(whole: Ledger, bare: Ledger) -> float:
    return whole.chip_s + whole.link_s - (bare.chip_s + bare.link_s)


def _layers(
    option: list[Stage],
    attn: dict[str, Ledger],
    ffn: dict[str, Ledger],
    halves: int,
    hidden: float,
    held_cores: float = 0.0,
) -> dict[Any, tuple[float, float]]:
    return {
        kind: layer_time([attn[n] for n in kind[0]] + [ffn[n] for n in kind[1]], halves, hidden, held_cores)
        for kind in option[0].layers
    }


# ---- memory ----


def sequence_tokens(st: Any, max_context: int) -> int:
    """One sequence at its end, in whole blocks on each of the ranks that share it."""
    block = st.block_size * st.dcp
    return math.ceil(max_context / block) * block


def need_tokens(st: Any, budget: Any) -> int:
    """All sequences in flight, each prefix that this rank serves once, in whole blocks."""
    one = sequence_tokens(st, budget.max_context)
    if budget.shared is None:
        return one * st.batch
    block = st.block_size * st.dcp
    found = budget.shared.tokens // block * block
    here = math.ceil(budget.shared.groups / (st.dp * st.replicas)) if budget.shared.routed else budget.shared.groups
    return here * found + (one - found) * st.batch


def held(case: Case, st: Any, option: list[Stage], other: float, budget: Any) -> tuple[float, float, float]:
    """(distinct tokens, weight bytes, cache bytes per token) of the stage that holds the fewest tokens."""
    model, s = case.model, memory.Shards(st.tp, st.dp, st.ep, st.dcp, st.cp)
    share = budget.memory_fraction
    whole, of_rest = (1.0, share) if case.engine.of_free else (share, 1.0)
    free = whole * float(case.chip.memory.capacity) - other
    found = []
    for stage in option:
        weights = sum(n * memory.layer_weights(case, kind, s) for kind, n in stage.layers.items() if n)
        cache = sum(n * memory.layer_cache(case, kind[0], s, st.kv_layout) for kind, n in stage.layers.items() if n)
        if stage.first or (stage.last and model.tied_embeddings):
            weights += memory.vocabulary_weights(case, "embedding", s)
        if stage.last and not model.tied_embeddings:
            weights += memory.vocabulary_weights(case, "lm_head", s)
        if stage.last and st.mtp:
            weights += memory.draft_weights(case, s)
            cache += memory.draft_cache(case, s, st.kv_layout)
        found.append((math.floor(of_rest * (free - weights) / cache), weights, cache))
    return min(found, key=lambda f: f[0])


# ---- serving ----


def tokens_per_round(model: Any, depth: int, given: float | None) -> float:
    """1 + p + ... + p^k: drafts are accepted one after the other."""
    if not depth or model.mtp is None:
        return 1.0
    if given is not None:
        return min(given, 1.0 + depth)
    return sum(float(model.mtp.acceptance) ** i for i in range(depth + 1))


def prefill_step_tokens(st: Any, work: Any, tokens: float) -> int:
    """Equal chunks of a long prompt; as many whole short ones as arrive in a decode round and fit the chunk."""
    new = work.isl - work.prefix_tokens
    pieces = math.ceil(new / st.prefill_chunk)
    if pieces > 1:
        return math.ceil(new / pieces)
    arriving = math.floor(st.batch * min(tokens / work.osl, 1.0) + 1e-9)
    return new * min(max(arriving, 1), max(st.prefill_chunk // new, 1))
