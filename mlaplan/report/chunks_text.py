"""Query chunks, slices and their alternatives for people, in 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan.costs import overlap
from mlaplan.costs.slices import account
from mlaplan.report import words
from mlaplan.report.chunks_sweep import BINDING, sweep
from mlaplan.report.grid import Column, grid, text
from mlaplan.report.tables import wrapped
from mlaplan.report.words import kib
from mlaplan.units import format_bytes, format_bytes_per_s, format_seconds

if TYPE_CHECKING:
    from mlaplan.costs.chunks import GatherPlan, LocalPlan
    from mlaplan.costs.policies import Replayed
    from mlaplan.costs.slices import Account
    from mlaplan.costs.study import Stated, Study
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model


def signed(seconds: float) -> str:
    return f"-{format_seconds(-seconds)}" if seconds < 0 else format_seconds(seconds)


def report(model: Model, chip: Chip, s: Study, stated: Stated | None) -> str:
    """The whole text."""
    parts = [head(model, chip, s), alternatives(s)]
    if s.plan is not None:
        parts += [modes(s), sweep(s, s.plan, stated), sram(s, s.plan)]
    parts += [mapping(s)] if s.cores > 1 else []
    if s.plan is not None:
        parts += [tiers(s)] if len(s.tiers) > 1 else []
        parts += [border(s)] if s.border else []
    parts.append(notes(chip, s))
    return "\n\n".join(parts)


def head(model: Model, chip: Chip, s: Study) -> str:
    """What was asked and what is decided."""
    a, p = s.asked, s.plan
    lines = [
        f"{model.title} on {chip.name}: {words.times(a.devices, 'chip')} share each of "
        f"{words.times(a.batch, 'sequence')} of {a.context:,} tokens",
        words.line("model", model.origin),
        words.line("chip", chip.origin),
    ]
    work = f"one attention block, {words.times(s.heads, 'head')} a chip, {words.times(a.q_len, 'query token')}"
    lines.append(words.line("work", f"{work} a sequence ({s.heads * a.q_len} query rows a sequence)"))
    best = s.best_way
    lines.append(words.line("best", f"{best.name} cache, {format_seconds(float(best.step_s))} a layer"))
    if p is not None:
        c = p.q_chunk
        lines.append(words.line("q_chunk", f"{c.chunk if c.chunk is not None else 'none'}: {c.reason}"))
        b = p.best
        if b.slice_bytes:
            lines.append(words.line("recv_slice", f"{kib(p.picked.slice_bytes)} if the cache is gathered ({b.name})"))
            lines.append(words.line("depth", f"{p.picked.depth} slices staged, {_staged(p)}"))
        else:
            what = f"{words.times(b.pieces, 'group')} of sequences ({b.name}) beat slices of up to 1 MiB"
            lines.append(words.line("recv_slice", what))
    lines.append(words.line("own memory", core(s.local, chip)))
    return "\n".join(lines)


def core(p: LocalPlan, chip: Chip) -> str:
    """Slices, depth and mapping of a chip that streams its own memory."""
    where = "in " + ", ".join(p.fit.levels) if not p.fit.spilled else "spills " + ", ".join(p.fit.spilled)
    slices = f"slices of {p.slice_tokens:,} tokens ({kib(p.slice_bytes)}), {p.depth} deep"
    scheme = _scheme(p.scheme.name, p.scheme.parts, round(float(chip.cores)))
    return f"q_chunk {p.q_chunk} x {words.times(p.heads, 'head')}, {slices}, {where}; {scheme}"


def _staged(p: GatherPlan) -> str:
    return kib(p.picked.depth * p.picked.slice_bytes)


def _scheme(name: str, parts: int, cores: int) -> str:
    if cores == 1:
        return "its cores are not told apart"
    if name in ("sequence", "mixed"):
        return f"each sequence over {parts} cores"
    return f"{name} over cores"


def alternatives(s: Study) -> str:
    """What travels, how long it takes, what is held."""
    rows = [
        (
            w.name,
            format_bytes(float(w.link_bytes)) if np_positive(w.link_bytes) else "-",
            format_seconds(float(w.link_s)),
            format_seconds(float(w.core_s)),
            format_seconds(float(w.step_s)),
            f"{w.kv_bytes:,.0f} B",
            f"{w.capacity:.3g}x",
        )
        for w in s.ways
    ]
    columns = (
        text("cache"), Column("sent by\na chip"), Column("on the\nlink"), Column("core"), Column("together"),
        Column("cache of\na token"), Column("tokens\nheld"),
    )  # fmt: skip
    out = "Per layer and step, by where the cache is\n" + grid(columns, rows)
    c = s.crossover
    if c is None:
        return out
    m = s.asked.merge
    travels = f"outputs in {m.out_bytes:g} B, log-sum-exps in {m.lse_bytes:g} B, merged by {m.pattern}"
    said = (
        f"Sequence-sharded sends fewer bytes than a gather above {c.bytes_over_gathered:,.0f} tokens of context "
        f"({travels}); it is faster than a gather {_from(c.latency_over_gathered)} and than a copy on every chip "
        f"{_from(c.latency_over_replicated)}."
    )
    return f"{out}\n{wrapped(said)}"


def np_positive(value: object) -> bool:
    return float(value) > 0  # type: ignore[arg-type]


def _from(context: int | None) -> str:
    return f"from {context:,} tokens on" if context is not None else "at no context tried"


def modes(s: Study) -> str:
    """All modes in both forms."""
    rows = []
    for form, p in s.plans.items():
        base = p.modes[0].step_s
        for m in p.modes:
            pieces = f"{m.pieces:,}" if m.pieces > 1 else "-"
            slices = kib(m.slice_bytes) if m.slice_bytes else "-"
            rows.append(
                (
                    form,
                    m.name,
                    pieces,
                    slices,
                    str(m.depth) if m.slice_bytes else "-",
                    format_seconds(m.step_s),
                    words.percent(m.step_s / base - 1) if m.step_s != base else "",
                    words.percent(m.utilisation),
                    format_seconds(max(m.exposed_s, 0.0)),
                )
            )
    columns = (
        text("form"), text("gathered by"), Column("pieces"), Column("slice"), Column("depth"), Column("step"),
        Column("change"), Column("compute\nbusy"), Column("exposed"),
    )  # fmt: skip
    p = s.plans[s.form]
    t = account(overlap.pipeline(p.work, p.rates, p.picked.slice_bytes, p.picked.depth))
    said = (
        f"Absorbed works in the latent space; naive recovers keys and values of every head first. The deep pipeline of "
        f"the {s.form} form is bound by {BINDING[t.binding]}; {_idle(t)}."
    )
    return f"Ways to gather the cache\n{grid(columns, rows, fold=1)}\n{wrapped(said)}"


BUBBLES = {"fill": "before the first slice", "link": "for slices", "staging": "for buffers", "merge": "for the end"}


def _idle(t: Account) -> str:
    """Idle compute by its cause."""
    parts = [f"{format_seconds(waited)} {BUBBLES[cause]}" for cause, waited in t.idle_s.items()]
    return f"compute waits {', '.join(parts)}" if parts else "compute never waits"


def sram(s: Study, p: GatherPlan) -> str:
    """Working set of the picked tile, of the other form in one line, and the article's own tile beside it."""
    fit = p.fit
    rows = [(x.part, kib(x.bytes), kib(x.bytes * s.cores), x.level, _spill(x.spill_s)) for x in fit.parts]
    rows.append(("together", kib(fit.total_bytes), kib(fit.total_bytes * s.cores), "", _spill(fit.spill_s)))
    columns = (text("part"), Column("a core"), Column("a chip"), text("level"), Column("spill"))
    said = [f"{form.capitalize()}: {_other(s, other)}." for form, other in s.plans.items() if other is not p]
    said.append(
        f"Tile B x Q_c x H x D x 2, queries or outputs of one chunk of every sequence (no score matrix): "
        f"{kib(p.q_chunk.tile_bytes)} a chip."
    )
    return f"Working set of one task, {p.work.form}\n{grid(columns, rows)}\n{wrapped(' '.join(said))}"


def _spill(seconds: float) -> str:
    return format_seconds(seconds) if seconds else "-"


def _other(s: Study, p: GatherPlan) -> str:
    """The working set of a form in one line."""
    size = f"{kib(p.fit.total_bytes)} a core, {kib(p.fit.total_bytes * s.cores)} a chip"
    if not p.fit.spilled:
        return f"{size}, all in {', '.join(p.fit.levels)}"
    return f"{size}; outside the levels of a core are {', '.join(p.fit.spilled)}, {_spill(p.fit.spill_s)} a step"


def mapping(s: Study) -> str:
    """The scheme for every batch and context."""
    batches = sorted({b for b, _ in s.schemes})
    contexts = sorted({c for _, c in s.schemes})
    short = {"batch": "batch", "heads": "heads"}
    rows = []
    for b in batches:
        cells = []
        for c in contexts:
            best = s.schemes[b, c][0]
            name = short.get(best.name, f"1/{best.parts}")
            cells.append(f"{name} {format_seconds(best.step_s)}")
        rows.append((f"{b:,}", *cells))
    columns = (Column("batch"), *(text(f"{c:,} tokens") for c in contexts))
    said = (
        "batch: whole sequences to a core. heads: a share of the heads of all sequences to a core. 1/p: p cores "
        "share a sequence and merge by log-sum-exp."
    )
    if s.buffered.items > 1:
        two = s.buffered
        said += (
            f" With whole sequences to a core, pages gathered into two buffers beside copy and compute take "
            f"{format_seconds(two.overlapped_s)} instead of {format_seconds(two.serial_s)} ({two.saving:.0%} less)."
        )
    return f"Attention over the cores of one chip\n{grid(columns, rows)}\n{wrapped(said)}"


def tiers(s: Study) -> str:
    """Slice and depth for each kind of link."""
    rows = [
        (
            t.name,
            format_bytes_per_s(t.link_bytes_per_s),
            format_seconds(t.latency_s),
            kib(t.slice_bytes),
            str(t.depth),
            signed(t.covered_s),
            signed(t.stated_covered_s),
            signed(t.jitter_s) + ("*" if t.assumed else ""),
            str(t.depth_needed),
        )
        for t in s.tiers
    ]
    columns = (
        text("link"), Column("rate"), Column("latency"), Column("slice"), Column("depth"),
        Column("late slice\ncovered"),
        Column(f"at depth\n{s.tiers[0].stated_depth}"), Column("jitter"), Column("needs\ndepth"),
    )  # fmt: skip
    said = [
        f"{t.name}: a slice {t.jitter:.0%} slower is {format_seconds(t.jitter_s)} late, which depth {t.stated_depth} "
        f"{'hides' if t.stated_covers else 'does not hide'}."
        for t in s.tiers
    ]
    if any(t.assumed for t in s.tiers):
        said.append("* nobody measured it: assumed in the chip's file, --jitter sets another.")
    return (
        f"By link: how late a slice may be before its depth no longer hides it\n{grid(columns, rows)}\n"
        f"{wrapped(' '.join(said))}"
    )


def border(s: Study) -> str:
    """From where on chunking pays."""
    b = s.border
    assert b is not None
    pays = ", ".join(
        f"{batch} from {c:,}" if c is not None else f"{batch} never"
        for batch, c in zip(b.batches, b.contexts, strict=True)
    )
    if all(c is None for c in b.contexts):
        pays = "at no batch and context tried"
    implied = (
        f"A threshold of batch {b.at[0]} and {b.at[1]:,} tokens would follow if chunking cost "
        f"{format_seconds(b.implied_s)} in every layer and step, {_plausible(b.implied_s, s)}"
        if b.implied_s > 0
        else f"At batch {b.at[0]} and {b.at[1]:,} tokens slices do not pay"
    )
    said = (
        f"Slices at this depth beat one gather (batch from context, tokens): {pays}. The saving goes with batch x "
        f"context, so no threshold on batch alone follows. {implied} (it saves {b.decode_saved:.0%} there). In a "
        f"prefill of {b.at[1]:,} tokens, query chunks of 64 and slices "
        + (f"save {b.prefill_saved:.0%}." if b.prefill_saved > 0 else f"cost {-b.prefill_saved:.0%} more.")
    )
    return f"When slices pay, {s.form}\n{wrapped(said)}"


def _plausible(cost_s: float, s: Study) -> str:
    """A cost against the fixed ones that are counted: launch, descriptor and task."""
    assert s.plan is not None
    r = s.plan.rates
    counted = r.kernel_s + r.descriptor_s + r.switch_s
    times = cost_s / counted
    if times > 10:
        return f"{times:,.0f} times launch, descriptor and task together: not plausible"
    return f"{times:.1f} times launch, descriptor and task together: plausible"


def notes(chip: Chip, s: Study) -> str:
    """What stands in for figures that the chip does not state."""
    from mlaplan.report.notes import chip_notes

    assumed = s.plan.rates.assumed if s.plan is not None else ()
    if chip.overheads.core_sync is None and s.cores > 1:
        assumed = (*assumed, f"sync of cores as {'task switch' if chip.overheads.task_switch else 'kernel floor'}")
    lines = [f"Not stated for {chip.name}: {', '.join(assumed)}."] if assumed else []
    lines += [*(f"In a core: {one}." for one in s.local.assumed), *chip_notes(chip)]
    return "\n".join(wrapped(line, label="note       ") for line in lines)


def replay(runs: list[Replayed], chosen: str, source: str) -> str:
    """Totals of every policy over a trace, and what the chosen one did."""
    rows = [
        (
            r.policy + (" <" if r.policy == chosen else ""),
            format_seconds(r.total_s),
            format_seconds(r.exposed_s),
            str(r.changes),
            f"{100 * r.regret:.1f} %",
        )
        for r in runs
    ]
    columns = (text("policy"), Column("total"), Column("exposed"), Column("changes"), Column("regret"))
    picked = next(r for r in runs if r.policy == chosen)
    counts: dict[int, int] = {}
    for d in picked.decisions:
        counts[d.chunk] = counts.get(d.chunk, 0) + 1
    used = ", ".join(f"{chunk} in {n}" for chunk, n in sorted(counts.items()))
    said = (
        f"Regret is the time beyond the best chunk of every step, over {format_seconds(picked.best_s)}. {chosen} took "
        f"chunks (query tokens of the batch) of {used} of {len(picked.decisions)} steps. Feedback judges by the model "
        f"that also keeps the score, so its lead is the most that feedback can bring."
    )
    return f"Replay of {source}, {words.times(len(picked.decisions), 'step')}\n{grid(columns, rows)}\n{wrapped(said)}"
