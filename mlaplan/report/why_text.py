"""The reasons for a plan in words: the sections under `why` of a recommendation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.report import explain_text, words
from mlaplan.report.block import Block
from mlaplan.report.grid import Column, text
from mlaplan.report.tables import wrapped
from mlaplan.report.why import IDLE, PREFILL, PREFILL_LINK, SHARED, UNEVEN
from mlaplan.units import format_bytes, format_bytes_per_s, format_flops, format_seconds

if TYPE_CHECKING:
    from mlaplan.costs.breakdown import Phase
    from mlaplan.costs.machine import Op
    from mlaplan.explain import Explanation
    from mlaplan.families import Family
    from mlaplan.report.why import Priced, Sides, Why
    from mlaplan.rules.rule import Question

SHOWN = 0.01  # operators of the winner from this share of a step on
GQA_HEADS, GQA_HEAD_DIM = 8, 128  # what an MLA cache is usually compared with
FAMILIES = 8
CAUSES = {
    "routed_experts": "weights of every expert that a token of the step is routed to are read once",
    "attention_core": "the cache of every sequence is read once a layer",
    "kv_cache_cast": "the engine widens the whole cache before it attends",
    "kv_dequantise": "numbers of the cache are turned into 16 bit and multiplied with the scale of their group",
    "attention_all_reduce": "sum over the TP ranks after each attention block",
    "moe_all_reduce": "sum over the TP ranks after each expert block",
    "moe_dispatch": "tokens travel to their experts",
    "moe_combine": "expert outputs travel back",
    "moe_dp_gather": "every rank gets the tokens of all attention-DP ranks",
    "moe_dp_scatter": "expert outputs go back to their attention-DP ranks",
    "latent_score_all_reduce": "partial scores of every cached token are summed",
    "pipeline_bubble": "stages wait for each other",
    "host_overhead": "host work between steps that nothing hides",
    "lm_head": "the output head's weights are read once",
}


def reasons(q: Question, plans: list[Explanation], families: list[Family], w: Why) -> str:
    """All sections about the winner."""
    best = plans[0]
    parts = [f"WHY {best.strategy.label()}", breakdown(q, best).text(), _largest(q, best), costs(w).text()]
    parts.append(capacity(q, best, w).text())
    if w.sides is not None:
        parts.append(sides(w.sides).text())
    if w.crossover is not None:
        parts.append(wrapped(crossover(q, w.crossover)))
    if len(families) > 1:
        parts.append(other_ways(q, best, families).text())
    return "\n\n".join(parts)


def telling_step(q: Question, e: Explanation) -> Phase:
    """The step that a request is made of: decode, or prefill where its first token is the only one."""
    step = e.decode if q.workload.osl > 1 else e.prefill
    assert step is not None  # plans are served, and these have both steps
    return step


def breakdown(q: Question, e: Explanation, small: float = SHOWN) -> Block:
    """The step that a request is made of, operator by operator; what is below `small` of it is one line."""
    p = telling_step(q, e)
    title = (
        f"Requests end with their first token. A prefill step takes {words.span(p.step_s, format_seconds)}, "
        f"{words.percent(p.comm_share)} of it communication:"
        if q.workload.osl == 1
        else f"A decode step of {words.times(e.decoding, 'sequence')} a rank at {q.workload.mean_context:,} cached "
        f"tokens takes {words.span(p.step_s, format_seconds)}, {words.percent(p.comm_share)} of it communication:"
    )
    return Block(title, explain_text.OPERATORS, explain_text.operator_rows(p, small))


def _largest(q: Question, e: Explanation) -> str:
    terms = [wrapped(term, label=f"{number}. ") for number, term in enumerate(largest(q, e), 1)]
    return "\n".join(["The three largest:", *terms])


def largest(q: Question, e: Explanation, most: int = 3) -> list[str]:
    """The terms that take most of the step, with what binds each and why."""
    ops = sorted(telling_step(q, e).ops, key=lambda op: -op.time_s)[:most]
    return [_term(q, e, op) for op in ops]


def _term(q: Question, e: Explanation, op: Op) -> str:
    from mlaplan.costs.machine import bound_of

    share = words.percent(op.time_s / telling_step(q, e).step_s.value)
    head = f"{op.name}, {format_seconds(op.time_s)} ({share})"
    bound = bound_of(op)
    if bound == "memory":
        rate, peak = op.bytes / op.time_s, float(q.setting.chip.memory.bandwidth)
        how = (
            f"memory: {format_bytes(op.bytes)} at {format_bytes_per_s(rate)}, {words.percent(rate / peak)} of the peak"
        )
    elif bound == "compute":
        how = f"compute: {format_flops(op.flops).replace('FLOPS', 'FLOP')} at {format_flops(op.flops / op.time_s)}"
    elif bound == "vector":
        how = f"vector units: {format_seconds(op.compute_s)} of work, the rest behind that of the core"
    elif bound == "link":
        how = f"link: {format_bytes(op.link_bytes)} sent at {format_bytes_per_s(op.link_bytes / op.time_s)}"
    elif bound == "latency":
        how = f"latency: {format_seconds(op.floor_s)} are the floors of its calls"
    else:
        how = bound
    cause = CAUSES.get(op.name)
    if q.workload.osl == 1:
        cause = None  # the causes are those of decode
    elif op.name == "routed_experts":
        cause = _experts_hit(q, e) or cause
    elif op.name == "attention_core" and bound == "compute":
        cause = f"all heads of {words.times(1 + e.strategy.mtp, 'query')} share each read of the cache"
    return f"{head}: {how}" + (f"; {cause}" if cause else "")


def _experts_hit(q: Question, e: Explanation) -> str | None:
    """How many experts of a layer the tokens of a step reach."""
    from mlaplan.costs.params import routed_per_token
    from mlaplan.costs.routing import touched

    moe = next((f for f in q.setting.model.ffn.values() if f.kind == "moe"), None)
    if moe is None:
        return None
    s = e.strategy
    tokens = -(-e.decoding // min(s.pp, e.decoding)) * (1 + s.mtp) * s.dp
    hit = float(touched(moe.experts, routed_per_token(moe), tokens, float(q.setting.engine.load_spread)))
    return f"the {tokens:,} tokens of a step reach {hit:.0f} of {moe.experts} experts a layer, each read once"


def costs(w: Why) -> Block:
    """What an output token costs, and where the next best shape costs more."""
    groups = sorted(w.cost, key=lambda g: (g in (PREFILL, PREFILL_LINK, UNEVEN, SHARED, IDLE), -w.cost[g]))
    groups += [g for g in w.other_cost if g not in groups]
    total = sum(w.cost.values())
    large = [g for g in groups if max(abs(w.cost.get(g, 0.0)), abs(w.other_cost.get(g, 0.0))) > 1e-4 * total]
    mine = {g: w.cost.get(g, 0.0) for g in large}
    rows = [[g, _us(mine[g]), words.percent(mine[g] / total)] for g in large] + [["all", _us(total), "100 %"]]
    columns = [text("chip-us per output token"), Column("this plan"), Column("share")]
    if w.other is None:
        return Block("", columns, rows)
    theirs = [*(w.other_cost.get(g, 0.0) for g in large), sum(w.other_cost.values())]
    for row, other, own in zip(rows, theirs, [*mine.values(), total], strict=True):
        row += [_us(other), f"{1e6 * (other - own):+,.1f}"]
    said = _difference(w.other.strategy.label(), w, theirs[-1] - total)
    return Block(said, [*columns, Column("next best"), Column("difference")], rows)


def _difference(other: str, w: Why, lost: float) -> str:
    total = sum(w.cost.values())
    change = {g: w.other_cost.get(g, 0.0) - w.cost.get(g, 0.0) for g in {**w.cost, **w.other_cost}}
    worse = [g for g in sorted(change, key=lambda g: -change[g])[:2] if change[g] > 0.002 * total]
    better = [g for g in sorted(change, key=lambda g: change[g])[:1] if change[g] < -0.002 * total]
    share = words.percent(abs(lost) / total)
    said = f"The next best shape, {other}, costs {share} {'more' if lost >= 0 else 'less'} per output token"
    said += f": it loses in {' and '.join(worse)}" if worse else ""
    if better:
        said += f"{', and' if worse else ': it'} gains in {better[0]}"
    return f"{said}; plans this close count as alike, and the simpler one goes first." if lost < 0 else f"{said}."


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.1f}"


def capacity(q: Question, best: Explanation, w: Why) -> Block:
    """What the same chips hold in each layout of the cache."""
    s = best.strategy
    title = (
        f"KV capacity of the same chips by layout, {s.kv_dtype} cache in blocks of {s.block_size}, sequences of "
        f"{q.workload.max_context:,} tokens:"
    )
    columns = (
        text("plan"), text("layout"), Column("B a token\nand chip"), Column("tokens\na rank"), Column("tokens\nin all"),
        Column("sequences\nin all"),
    )  # fmt: skip
    rows = []
    for held in w.held:
        other = held.strategy
        name = other.label() + " *" * (other == s)
        tokens = f"{held.rank_tokens:,}" if held.rank_tokens else "none"
        rows.append(
            (
                name, other.kv_layout.replace("_", "-"), f"{held.kv_bytes_per_token:,.0f}", tokens,
                f"{held.all_tokens:,}", f"{held.all_sequences:,}",
            )
        )  # fmt: skip
    said = "* is the plan."
    latent = next((a for a in q.setting.model.attention.values() if a.kind == "mla"), None)
    group = max(held.strategy.tp for held in w.held)
    if latent is not None and group > 1:
        from mlaplan.costs.kv import row_bytes

        row, rival = row_bytes(latent, "bf16"), _gqa_row(group)
        said += (
            f" TP adds no capacity to a replicated latent: each rank holds all of it, {row:,.0f} B a layer in bf16, "
            f"where GQA with {GQA_HEADS} KV heads of {GQA_HEAD_DIM} under TP{group} holds {rival:,.0f} B: "
            f"{row / rival:.2f}x."
        )
    return Block(title, columns, rows, (said,))


def _gqa_row(tp: int) -> float:
    """Bytes of a token and layer that one TP rank holds of a bf16 GQA cache."""
    return 2.0 * GQA_HEAD_DIM * 2.0 * -(-GQA_HEADS // tp)


def sides(s: Sides) -> Block:
    """Attention TP against DP over the same chips: bytes by part and dtype, and the verdict."""
    title = (
        f"TP or DP of attention over {s.group} chips. TP divides the weights W and repeats the cache, DP repeats W "
        f"and divides the cache; both move the same bytes at S* = W / row cached tokens. "
        f"Here the group holds {s.sequences:,.0f} sequences of {s.context:,} tokens on average, "
        f"{s.cached_tokens:,.0f} tokens of {s.row_bytes:,.0f} B ({s.kv_dtype})."
    )
    same = s.kv_dtype in ("bf16", "fp16")
    columns = [text("MLA weights of a block"), Column("W"), Column("S* bf16\ncache")]
    columns += [] if same else [Column(f"S* {s.kv_dtype}\ncache")]
    columns += [Column("TP moves\na chip"), Column("DP moves\na chip"), text("fewer")]
    rows = []
    for one in s.even:
        cells = [f"{one.part}, {one.dtype}", format_bytes(one.weight_bytes), f"{one.tokens_bf16:,.0f}"]
        cells += [] if same else [f"{one.tokens:,.0f}"]
        rows.append([*cells, format_bytes(one.tp_bytes), format_bytes(one.dp_bytes), one.fewer])
    note = (
        f"All of MLA leaves out q_a and kv_a, which engines repeat on every rank; divided too, S* would be "
        f"{s.all_divided_tokens:,.0f} ({s.even[0].dtype} weights, bf16 cache)."
    )
    return Block(title, columns, rows, (note, _verdict(s)))


def _verdict(s: Sides) -> str:
    """Which of both this workload wants, per weight dtype: by bytes, and by the priced step."""
    own = next(one for one in s.even if one.part == "all of MLA")
    relation = "above" if own.fewer == "DP" else "below"
    parts = [
        f"So by bytes of all MLA weights in {own.dtype}, {own.fewer} wins: {s.cached_tokens:,.0f} tokens are "
        f"{relation} S* = {own.tokens:,.0f}"
    ]
    for other in s.even:
        if other.fewer != own.fewer:
            parts.append(f"{other.part} in {other.dtype} alone would want {other.fewer} (S* = {other.tokens:,.0f})")
    priced = [
        f"with {p.weight_dtype} weights {p.tp.label()} {_step(p.tp_step_s, p.tp_fits)}, {p.dp.label()} "
        f"{_step(p.dp_step_s, p.dp_fits)}: {p.faster} wins{_because(p)}"
        for p in s.priced
    ]
    bytes_say = "; ".join(parts)
    return f"{bytes_say}. A whole decode step priced, collectives and experts included: {'; '.join(priced)}."


def _because(p: Priced) -> str:
    """Where the loser of a priced pair loses most, and where it gains."""
    sign = 1.0 if p.faster == "TP" else -1.0
    loses = {group: sign * seconds for group, seconds in p.change.items()}  # of the loser, against the winner
    order = sorted(loses, key=lambda g: -loses[g])
    total = abs(p.dp_step_s - p.tp_step_s)
    worse = [f"{g} {format_seconds(loses[g])}" for g in order[:2] if loses[g] > 0.1 * total]
    better = [f"{g} {format_seconds(-loses[g])}" for g in order[-1:] if loses[g] < -0.1 * total]
    loser = "DP" if p.faster == "TP" else "TP"
    if not worse:
        return ""
    return f" ({loser} adds {' and '.join(worse)}" + (f", saves {better[0]})" if better else ")")


def _step(seconds: float, fits: bool) -> str:
    return format_seconds(seconds) + ("" if fits else " (does not fit)")


def crossover(q: Question, tokens: tuple[float, float]) -> str:
    """Contexts from which gathering queries beats gathering the latent."""
    heads = max(a.heads for a in q.setting.model.attention.values())
    plain, merged = tokens
    return (
        f"Decode context parallelism gathers q and merges partial outputs instead of gathering the bf16 latent: fewer "
        f"bytes above {plain:,.0f} cached tokens with {heads} heads and bf16 outputs without LSE, above {merged:,.0f} "
        f"with fp32 outputs and LSE."
    )


def other_ways(q: Question, best: Explanation, families: list[Family]) -> Block:
    """The best of every other way to divide the model, and what it misses or loses."""
    from mlaplan.report.telling import telling

    assert best.served is not None
    columns = (
        text("other ways, best of each"), Column("decode\ncomm"), Column("prefill\ncomm"), Column("TPOT"),
        Column("tok/s\nchip"), text("why not"),
    )  # fmt: skip
    top = best.served.tok_s_chip.value
    rows = []
    for f in telling(families, best.strategy, q.setting.chip.scale_up.chips_per_node)[:FAMILIES]:
        tpot = f.figures["tpot_s"]
        rows.append(
            (
                f.strategy.label(), words.percent(f.figures["comm_share"]),
                words.percent(f.figures["prefill_comm_share"]),
                format_seconds(tpot) if tpot == tpot else "-", words.plain(f.figures["tok_s_chip"]),
                _why_not(q, f, top),
            )
        )  # fmt: skip
    return Block("", columns, rows, fold=5)


def _why_not(q: Question, f: Family, top: float) -> str:
    """The limit that it misses, or how far it is behind the best."""
    w = q.workload
    for name, key, limit in (("TTFT", "ttft_s", w.ttft_s), ("TPOT", "tpot_s", w.tpot_s)):
        if limit is not None and f.figures[key] > limit:
            took = f"{format_seconds(f.figures[key])}, over " if name == "TTFT" else "over "
            return f"{name} {took}{format_seconds(limit)}"
    if f.reason is not None:
        return f.reason
    behind = 1 - f.figures["tok_s_chip"] / top
    return f"-{words.percent(behind)}" if behind > 5e-4 else "as good"
