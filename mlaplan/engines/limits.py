"""What an engine cannot express of a strategy: one entry per limit.

A limit's test uses comparisons and `&`, `|` only, so that it takes one strategy or columns of integers (with
the codes of `strategy.CODED`). Legality that holds for every engine (heads % TP, experts % EP) is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from mlaplan.costs.engine import merge_of
from mlaplan.errors import MlaplanError
from mlaplan.strategy import CODED

if TYPE_CHECKING:
    from mlaplan.costs.engine import EngineCosts
    from mlaplan.costs.merge import Merge
    from mlaplan.engines.profile import Kernel, Profile


class Limit(NamedTuple):
    """`breaks(strategy)` is true, or an array of booleans, where `part` cannot be expressed."""

    part: str  # the field of the strategy
    breaks: Callable[[Any], Any]
    words: str | Callable[[Any], str]

    def text(self, strategy: Any) -> str:
        """What is wrong with one strategy, in words."""
        return self.words if isinstance(self.words, str) else self.words(strategy)


def limits(
    profile: Profile,
    attention: str,
    chip_class: str,
    *,
    heads: int | None = None,
    moe: bool = True,
    interleave: int = 1,
) -> Iterator[Limit]:
    """The limits of an engine for an attention kind (`profile.attention_kind(model)`) on a class of chips.

    interleave: tokens that a rank holds in a row with decode context parallelism.
    """
    name, par = profile.label, profile.parallel

    if chip_class not in profile.runs_on:
        other = profile.elsewhere.get(chip_class)
        hint = f"; {other} does" if other else ""
        yield Limit("chip", _always, f"chip: {name} does not run on {chip_class} chips{hint}")
        return

    # experts
    if par.experts == "all_or_none":
        yield Limit(
            "ep",
            lambda s: (s.ep > 1) & (s.ep != s.tp * s.dp),
            lambda s: f"ep={s.ep} of {s.tp * s.dp} ranks: {name} has EP over all TP x DP ranks or none",
        )
    if not moe:
        yield Limit("ep", lambda s: s.ep > 1, lambda s: f"ep={s.ep}: the model has no experts")
    if par.dp_needs_ep:
        yield Limit(
            "dp",
            lambda s: (s.dp > 1) & (s.ep == 1),
            lambda s: f"dp={s.dp} with ep=1: {name} has attention DP with EP only",
        )
    if par.dp_whole:
        yield Limit(
            "dp",
            lambda s: (s.dp > 1) & (s.tp > 1),
            lambda s: f"dp={s.dp} with tp={s.tp}: {name} has attention DP over all ranks or none",
        )
    if attention == "mla_sparse" and not par.sparse_tp:
        yield Limit(
            "tp",
            lambda s: s.tp > 1,
            lambda s: f"tp={s.tp}: {name} runs sparse attention on whole heads, with attention DP over all ranks",
        )

    yield from _cache(profile, attention, chip_class, heads, interleave)
    yield from _context_parallel(profile, attention, interleave)
    yield from _overlap_and_drafts(profile)

    # scheduler
    if profile.scheduler.budget_has_decode:
        yield Limit(
            "prefill_chunk",
            lambda s: s.prefill_chunk < s.batch,
            lambda s: (
                f"prefill_chunk={s.prefill_chunk} below batch={s.batch}: "
                f"decode tokens come out of the same budget in {name}"
            ),
        )
    if profile.scheduler.chunk_multiple_of_block:
        yield Limit(
            "prefill_chunk",
            lambda s: s.prefill_chunk % s.block_size != 0,
            lambda s: f"prefill_chunk={s.prefill_chunk}: {name} wants a multiple of block_size={s.block_size}",
        )


def _cache(profile: Profile, attention: str, chip_class: str, heads: int | None, interleave: int) -> Iterator[Limit]:
    name = profile.label
    for layout in CODED["kv_layout"]:
        if layout not in profile.parallel.kv_layouts:
            yield _layout(profile, layout)
    yield Limit(
        "kv_layout",
        lambda s: _is(s, "kv_layout", "sequence_sharded") != (s.dcp > 1),
        lambda s: f"kv_layout={s.kv_layout} with dcp={s.dcp}: sequence_sharded goes with dcp above 1",
    )
    dtypes = profile.kv_dtypes(chip_class, attention)
    for dtype in CODED["kv_dtype"]:
        kernels = [k for k in profile.kernels_for(chip_class, attention) if dtype in k.kv_dtypes]
        if kernels:
            yield from _kernels(name, f"{dtype} on {chip_class}", dtype, kernels, heads, interleave)
        else:
            yield _dtype(name, f"{', '.join(dtypes) or 'no backend'} for {attention} on {chip_class}", dtype)


def _layout(profile: Profile, layout: str) -> Limit:
    return Limit(
        "kv_layout",
        lambda s: _is(s, "kv_layout", layout),
        f"kv_layout={layout}: {profile.label} has {' and '.join(profile.parallel.kv_layouts)}",
    )


def _dtype(name: str, has: str, dtype: str) -> Limit:
    return Limit("kv_dtype", lambda s: _is(s, "kv_dtype", dtype), f"kv_dtype={dtype}: {name} has {has}")


def _kernels(
    name: str, where: str, dtype: str, kernels: list[Kernel], heads: int | None, interleave: int
) -> Iterator[Limit]:
    """Limits of the backends that read one dtype."""
    blocks = sorted({b for k in kernels for b in k.blocks})
    yield Limit(
        "block_size",
        lambda s: _is(s, "kv_dtype", dtype) & _none_of(s.block_size, blocks),
        lambda s: f"block_size={s.block_size}: {name} has blocks of {', '.join(map(str, blocks))} for {where}",
    )
    able = [k for k in kernels if k.takes(dtype, dcp=True, interleave=interleave)]
    sharded = sorted({b for k in able for b in k.blocks if b % interleave == 0})
    runs = f" and runs of {interleave} tokens" if interleave > 1 else ""
    only = f", only with blocks of {', '.join(map(str, sharded))}" if sharded else ""
    yield Limit(
        "dcp",
        lambda s: (s.dcp > 1) & _is(s, "kv_dtype", dtype) & _none_of(s.block_size, sharded),
        lambda s: f"dcp={s.dcp}: {name} has no backend for it with blocks of {s.block_size}{runs} in {where}{only}",
    )
    if heads is None:
        return
    choosy = [k for k in kernels if k.local_heads]
    if choosy:
        anywhere = sorted({b for k in kernels if not k.local_heads for b in k.blocks})
        allowed = sorted({h for k in choosy for h in k.local_heads})
        yield Limit(
            "tp",
            lambda s: (
                _is(s, "kv_dtype", dtype) & _none_of(s.block_size, anywhere) & _none_of(heads * s.cp // s.tp, allowed)
            ),
            lambda s: (
                f"tp={s.tp}: {heads * s.cp // s.tp} heads a rank, {name} has kernels for "
                f"{' and '.join(map(str, allowed))} with blocks of {s.block_size} for {where}"
            ),
        )
    caps = [k.dcp_heads for k in kernels if dtype in k.dcp]
    if caps and all(caps):
        cap = max(c for c in caps if c)
        yield Limit(
            "dcp",
            lambda s: (s.dcp > 1) & _is(s, "kv_dtype", dtype) & (heads // s.tp > cap),
            lambda s: f"dcp={s.dcp} with {heads // s.tp} heads a rank: {name} takes at most {cap} with {where}",
        )


def _context_parallel(profile: Profile, attention: str, interleave: int) -> Iterator[Limit]:
    name, dcp, cp = profile.label, profile.parallel.dcp, profile.parallel.cp
    if dcp is None:
        yield Limit("dcp", lambda s: s.dcp > 1, lambda s: f"dcp={s.dcp}: {name} has no decode context parallelism")
    elif not dcp.mtp:
        yield Limit(
            "dcp",
            lambda s: (s.dcp > 1) & (s.mtp > 0),
            lambda s: f"dcp={s.dcp} with mtp={s.mtp}: {name} has one or the other",
        )
    elif interleave > 1 and not dcp.interleave:
        yield Limit("dcp", lambda s: s.dcp > 1, f"runs of {interleave} tokens: {name} deals out single tokens")
    elif interleave > 1 and not dcp.interleave_mtp:
        yield Limit(
            "dcp",
            lambda s: (s.dcp > 1) & (s.mtp > 0),
            lambda s: f"dcp={s.dcp} with mtp={s.mtp}: {name} deals out single tokens then, no runs of {interleave}",
        )
    if cp is None or attention not in cp.attention:
        yield Limit(
            "cp",
            lambda s: s.cp > 1,
            lambda s: f"cp={s.cp}: {name} has no prefill context parallelism for {attention}",
        )
        return
    if dcp is not None and dcp.cp == "none":
        yield Limit(
            "cp",
            lambda s: (s.cp > 1) & (s.dcp > 1),
            lambda s: f"cp={s.cp} with dcp={s.dcp}: {name} has one or the other",
        )
    elif dcp is not None:
        yield Limit(
            "cp",
            lambda s: (s.cp > 1) & (s.dcp > 1) & (s.dcp != s.cp) & (s.dcp != s.tp),
            lambda s: f"cp={s.cp} with dcp={s.dcp}: {name} takes dcp 1, {s.cp} or {s.tp} then",
        )
    if not cp.with_dp:
        yield Limit(
            "cp",
            lambda s: (s.cp > 1) & (s.dp > 1),
            lambda s: f"cp={s.cp} with dp={s.dp}: {name} has one or the other",
        )
    if cp.whole_group:
        yield Limit(
            "cp",
            lambda s: (s.cp > 1) & (s.cp != s.tp),
            lambda s: f"cp={s.cp} of tp={s.tp}: {name} spans all ranks of an attention group or none",
        )
    if cp.full_ep:
        yield Limit(
            "cp",
            lambda s: (s.cp > 1) & (s.ep != s.tp * s.dp),
            lambda s: f"cp={s.cp} with ep={s.ep}: {name} wants the experts over all {s.tp * s.dp} ranks then",
        )
    if cp.max_ranks:
        most = cp.max_ranks
        yield Limit(
            "cp",
            lambda s: (s.cp > 1) & (s.tp * s.dp > most),
            lambda s: f"cp={s.cp} over {s.tp * s.dp} ranks: {name} takes at most {most}",
        )


def _overlap_and_drafts(profile: Profile) -> Iterator[Limit]:
    name, two = profile.label, profile.parallel.two_batch
    if two is None:
        yield Limit(
            "two_batch_overlap",
            lambda s: s.two_batch_overlap != 0,
            f"two_batch_overlap: {name} has none",
        )
    else:
        if not two.mtp:
            yield _no_overlap(name, "with MTP", lambda s: s.mtp > 0)
        if not two.pp:
            yield _no_overlap(name, "with pipeline parallelism", lambda s: s.pp > 1)
        if not two.context_parallel:
            yield _no_overlap(name, "with context parallelism", lambda s: (s.cp > 1) | (s.dcp > 1))
        if two.dp:
            yield _no_overlap(name, "without attention DP", lambda s: s.dp == 1)
        if two.full_ep:
            yield _no_overlap(name, "unless EP spans all ranks", lambda s: (s.ep == 1) | (s.ep != s.tp * s.dp))
    if profile.mtp is None:
        yield Limit("mtp", lambda s: s.mtp > 0, lambda s: f"mtp={s.mtp}: {name} has none")
    elif not profile.parallel.mtp_with_pp:
        yield Limit(
            "mtp",
            lambda s: (s.mtp > 0) & (s.pp > 1),
            lambda s: f"mtp={s.mtp} with pp={s.pp}: {name} does not serve drafts through a pipeline",
        )


def _no_overlap(name: str, words: str, test: Callable[[Any], Any]) -> Limit:
    return Limit(
        "two_batch_overlap",
        lambda s: (s.two_batch_overlap != 0) & test(s),
        f"two_batch_overlap: not {words} in {name}",
    )


def context_merge(profile: Profile, pattern: str | None, interleave: int) -> Merge:
    """The merge of decode context parallelism that is asked for; one line where the engine has none such."""
    name, dcp = profile.label, profile.parallel.dcp
    asked = f"--dcp-merge {pattern}" if pattern is not None else f"--dcp-interleave {interleave}"
    if dcp is None:
        raise MlaplanError(f"{asked}: {name} has no decode context parallelism")
    has = [m.pattern for m in dcp.merges]
    if pattern is not None and pattern not in has:
        raise MlaplanError(f"{asked}: {name} merges by {' or '.join(has)}")
    if interleave > 1 and not dcp.interleave:
        raise MlaplanError(f"--dcp-interleave {interleave}: {name} deals out single tokens; expected 1")
    return merge_of(dcp, pattern, interleave)


def shared_ranks(profile: Profile, model: Any, ranks: int) -> int:
    """EP ranks set apart for the shared experts; one line where the engine or the model has no use for them."""
    asked = f"--shared-ranks {ranks}"
    if not profile.parallel.shared_ranks:
        raise MlaplanError(
            f"{asked}: {profile.label} keeps the shared experts on every rank; --engine generic may set some apart"
        )
    if not any(f.kind == "moe" and f.shared_experts for f in model.ffn.values()):
        raise MlaplanError(f"{asked}: {model.title} has no shared experts")
    return ranks


def gather_only(profile: Profile, engine: EngineCosts) -> EngineCosts:
    """The engine with its dispatch left off, as by a backend of its experts that has none."""
    if not engine.gather:
        raise MlaplanError(f"--gather-only: {profile.label} reaches experts under attention DP by a dispatch only")
    return engine._replace(dispatch=False)


def told_limits(profile: Profile, strategy: Any, model: Any = None, chip: Any = None, *, moe: bool = True) -> list[str]:
    """What of one strategy the engine cannot express, in words."""
    from mlaplan.engines.profile import attention_kind

    attention = attention_kind(model) if model is not None else getattr(strategy, "attention", "mla")
    chip_class = getattr(chip, "efficiency_class", chip) or getattr(strategy, "chip_class", "generic")
    heads, interleave = None, getattr(strategy, "dcp_interleave", 1)
    if model is not None:
        heads = max(a.heads for a in model.attention.values())
        moe = any(f.kind == "moe" for f in model.ffn.values())
    found = [
        limit.text(strategy)
        for limit in limits(profile, attention, chip_class, heads=heads, moe=moe, interleave=interleave)
        if limit.breaks(strategy)
    ]
    merge, dcp = getattr(strategy, "dcp_merge", None), profile.parallel.dcp
    if merge is not None and dcp is not None and merge not in (has := [m.pattern for m in dcp.merges]):
        found.append(f"dcp_merge={merge}: {profile.label} has {' and '.join(has)}")
    if model is not None and attention != "gqa" and model.name.startswith(profile.expands_mla):
        found.append(f"attention: {profile.label} caches {model.name} as full keys and values, not as latents")
    return list(dict.fromkeys(found))


def _always(_strategy: Any) -> bool:
    return True


def _is(s: Any, name: str, word: str) -> Any:
    """Whether a coded field has this word, for a strategy (text) or a column (codes)."""
    value = getattr(s, name)
    return value == (word if isinstance(value, str) else CODED[name].index(word))


def _none_of(value: Any, allowed: list[int]) -> Any:
    if isinstance(value, int):
        return value not in allowed
    import numpy as np

    return ~np.isin(value, allowed)
