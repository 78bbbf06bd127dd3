"""One strategy for people, in 80 columns: does it fit, what is its memory, what are its steps made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.report import cache, words
from mlaplan.report import context as context_parallel
from mlaplan.report.block import Block
from mlaplan.report.grid import Column, grid, text
from mlaplan.report.tables import wrapped
from mlaplan.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from mlaplan.costs.breakdown import Phase
    from mlaplan.explain import Explanation, Memory, Served
    from mlaplan.rules.rule import Question

GIB = 2.0**30
SMALL = 0.005  # operators below this share of a step are summed into one line
ITEMS = {
    "weight_bytes": "weights",
    "activation_bytes": "activations",
    "workspace_bytes": "workspace of MLA prefill",
    "dispatch_buffer_bytes": "dispatch buffers",
    "graph_bytes": "graphs",
    "outside_fraction_bytes": "of these outside the share",
    "comm_buffer_bytes": "communication buffers",
    "context_bytes": "device context",
    "reserve_bytes": "reserve",
    "kv_bytes": "cache of the sequences in flight",
}
OPERATORS = (
    text("operator"),
    Column("time"),
    Column("share"),
    text("bound"),
    Column("FLOP"),
    Column("memory"),
    Column("link"),
)


def report(q: Question, e: Explanation, change: list[str], *, context: int | None, prefill_tokens: int | None) -> str:
    """The whole text; context and prefill_tokens name the steps, None: those of the served workload.

    change: what would admit a strategy that does not fit.
    """
    parts = [head(q, e, change), memory(q, e)]
    if e.decode is not None:
        parts.append(decode(q, e, context or q.workload.mean_context))
    if e.prefill is not None:
        parts.append(prefill(e.prefill, prefill_tokens))
    if e.served is not None:
        parts.append(served(q, e.served))
    return "\n\n".join(parts)


def head(q: Question, e: Explanation, change: list[str]) -> str:
    """What was understood, and whether it can be used."""
    # a list of plans uses the rest of this file, but not these two
    from mlaplan.costs.plan_chunks import of_strategy
    from mlaplan.report import chunks_text

    s, chip = e.strategy, q.setting.chip
    per_node = chip.scale_up.chips_per_node
    lines = [
        f"{q.setting.model.title} on {chip.name}: {s.label()}, {words.chips(s, per_node)}",
        words.line("model", q.setting.model.origin),
        words.line("", words.layers(q.setting.model)),
        words.line("chip", chip.origin),
        *(words.line("kernels", told) for told in words.kernels(chip)),
        words.line("engine", engine(q)),
        words.line("strategy", words.choices(s)),
    ]
    if len(set(e.pp_layers)) > 1:
        lines.append(words.line("stages", "layers " + ", ".join(map(str, e.pp_layers))))
    if (found := of_strategy(q.setting, s, q.workload.mean_context)) is not None:
        lines.append(words.line("core", chunks_text.core(found, chip)))
    if (merged := context_parallel.told(q, s)) is not None:
        lines.append(words.line("dcp", merged))
    verdict = "fits" if e.fits else "DOES NOT FIT"
    if e.fits and e.reasons:
        verdict += ", and cannot be used as it is"
    lines.append(words.line("verdict", verdict))
    lines += [wrapped(f"{code} {slug}: {why}", label=" " * words.LABEL + "- ") for code, slug, why in e.reasons]
    lines += [wrapped(one, label=" " * words.LABEL + "- ") for one in change]
    return "\n".join(lines)


def engine(q: Question) -> str:
    """The engine and how much of the memory it uses."""
    of = "the memory that weights leave" if q.setting.engine.of_free else "the memory"
    return f"{q.profile.label}, {words.plain(q.budget.memory_fraction)} of {of}"


def memory(q: Question, e: Explanation) -> str:
    """Every part per chip, and what the cache holds."""
    return memory_block(q, e).text()


def memory_block(q: Question, e: Explanation) -> Block:
    """Every part per chip, and what the cache holds."""
    m = e.memory
    rows = [
        _amount(ITEMS.get(name, _spoken(name)), size) for name, size in m.items.items() if size and name != "kv_bytes"
    ]
    rows.append(_amount(f"cache of {words.times(e.strategy.batch, 'sequence')}", m.items["kv_bytes"]))
    rows.append(_amount("total", m.total_bytes))
    fraction = words.plain(q.budget.memory_fraction)
    share = f"{fraction} of {format_bytes(m.capacity_bytes)}"
    if q.setting.engine.of_free:
        share = f"the cache {fraction} of what is left"
    rows.append(_amount(f"usable, {share}", m.usable_bytes))
    return Block("", [text("memory per chip"), Column("GB"), Column("GiB")], rows, (_cache(q, e, m),))


def _amount(label: str, size: float) -> tuple[str, str, str]:
    return label, f"{size / 1e9:.2f}", f"{size / GIB:.2f}"


def _spoken(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _cache(q: Question, e: Explanation, m: Memory) -> str:
    one, mean = cache.sequence_tokens(q, e.strategy), cache.bytes_per_token(q, e.strategy)
    ranks = e.strategy.dp * e.strategy.replicas
    count, stored = cache.sequences(q, e.strategy, m.kv_tokens), cache.stored_tokens(q, e.strategy)
    held = f"The cache holds {m.kv_tokens:,} tokens a rank, {count:,} sequences of {one:,}"
    if stored:
        held += f" beside {stored:,} of shared prefixes"
    if ranks > 1:
        held += f", {m.kv_tokens * ranks:,} tokens in all"
    fullest = f" on average, {m.kv_bytes_per_token:,.0f} B of the fullest" if m.kv_bytes_per_token - mean > 1 else ""
    return f"{held}; a token takes {mean:,.0f} B of a chip{fullest}."


def decode(q: Question, e: Explanation, context: int) -> str:
    """One decode step, operators by falling time."""
    s = e.strategy
    queries = f", {1 + s.mtp} tokens each" if s.mtp else ""
    number = words.times(e.decoding, "sequence")
    filled = "" if e.decoding == s.batch else f" that the rate keeps there, of up to {s.batch:,}"
    title = f"Decode: one step of {number} a rank{filled} at {context:,} cached tokens{queries}"
    return steps(title, e.decode, q)  # type: ignore[arg-type]


def prefill(p: Phase, step_tokens: int | None) -> str:
    """One prefill step through all stages."""
    size = f" of {step_tokens:,} tokens a rank" if step_tokens else " of the served workload"
    return steps(f"Prefill: one step{size}", p, None)


def steps(title: str, p: Phase, q: Question | None) -> str:
    """Title, time with band and what it is made of."""
    took = f"{words.span(p.step_s, format_seconds)}, communication {words.percent(p.comm_share)}"
    if p.micro_batches > 1:
        took += f", {p.micro_batches} micro-batches"
    if p.bubble_fraction > 1e-6:
        took += f", bubble {words.percent(p.bubble_fraction)}"
    if p.imbalance_fraction > 1e-3:
        took += f", stages uneven by {words.percent(p.imbalance_fraction)}"
    if p.micro_batches > 1 and q is not None:
        took += f"; operators of the slowest stage ({sum(p.stage.counts)} of {q.setting.model.layer_count} layers)"
    return f"{wrapped(title)}\n{wrapped(took)}\n{operators(p)}"


def operators(p: Phase, small: float = SMALL) -> str:
    """The operator table."""
    return grid(OPERATORS, operator_rows(p, small))


def operator_rows(p: Phase, small: float = SMALL) -> list[tuple[str, ...]]:
    """Operators by falling time; what is below `small` of the step is one line."""
    from mlaplan.costs.machine import bound_of

    whole = p.step_s.value
    ops = sorted(p.ops, key=lambda op: -abs(op.time_s))
    large = [op for op in ops if abs(op.time_s) >= small * whole]
    rows: list[tuple[str, ...]] = [
        (
            op.name,
            format_seconds(op.time_s),
            words.percent(op.time_s / whole),
            bound_of(op),
            words.flops(op.flops),
            words.size(op.bytes),
            words.size(op.link_bytes),
        )
        for op in large
    ]
    if rest := ops[len(large) :]:
        time_s, flop, size, link = (
            sum(getattr(op, f) for op in rest) for f in ("time_s", "flops", "bytes", "link_bytes")
        )
        name = f"{len(rest)} smaller"
        rows.append(
            (
                name,
                format_seconds(time_s),
                words.percent(time_s / whole),
                "",
                words.flops(flop),
                words.size(size),
                words.size(link),
            )
        )
    return rows


def served(q: Question, s: Served) -> str:
    """Figures of the served workload with their bands."""
    title = f"Served: {words.workload(q.workload)}"
    return Block(title, [text(""), text("value (band)"), text("")], served_rows(s), fold=2).text()


def served_rows(s: Served) -> list[tuple[str, str, str]]:
    """(figure, value with band, remark)."""
    rows = [("TTFT", words.span(s.ttft_s, format_seconds), _queue(s))]
    if s.tpot_s is not None:
        rows.append(("TPOT", words.span(s.tpot_s, format_seconds), _drafts(s)))
    rows.append(("tok/s/chip", words.span(s.tok_s_chip), f"prefill takes {words.percent(s.prefill_share)} of the time"))
    if s.tok_s_user is not None:
        rows.append(("tok/s/user", words.span(s.tok_s_user), ""))
    rows.append(("requests/s", words.span(s.requests_per_s), f"{s.concurrency:,.0f} in flight"))
    if s.usd_per_mtok is not None:
        rows.append(("USD/Mtok", words.span(s.usd_per_mtok, words.dollars), "per million output tokens"))
    return rows


def _queue(s: Served) -> str:
    return f"{format_seconds(s.queue_s)} of it in the queue" if s.queue_s > 0.01 * s.ttft_s.value else ""


def _drafts(s: Served) -> str:
    return f"{words.span(s.tokens_per_step)} tokens a step" if s.tokens_per_step.value > 1 else ""
