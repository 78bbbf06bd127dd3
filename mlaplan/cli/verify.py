"""`mlaplan verify`: compute one attention in every way a deployment may, and compare."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from mlaplan.cli.formats import Format
from mlaplan.cli.options import Output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlaplan.kernel.composed import Layout
    from mlaplan.kernel.shapes import Shapes

CONTEXT = 512
PLOT_CONTEXTS = (64, 256, 1024, 4096)


def verify(
    model: Annotated[
        str | None, typer.Argument(help="a model by name, a YAML file or a config.json", metavar="[MODEL]")
    ] = None,
    plan: Annotated[
        str | None, typer.Option(metavar="FILE", help="Verify exactly the partition of a saved plan.")
    ] = None,
    attention: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which attention, if the model has several.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="TOKENS", help="Cached tokens of the longest sequence; 512 by default.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Sequences, of mixed lengths; 2 by default.")
    ] = None,
    q_len: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="New tokens a sequence, as in MTP; 2 by default.")
    ] = None,
    dtype: Annotated[str, typer.Option(metavar="DTYPE", help="fp64 or fp32.")] = "fp64",
    kv_dtype: Annotated[
        str | None, typer.Option(metavar="DTYPE", help="Round the cache: bf16, fp8, fp8_ds_mla, int8...")
    ] = None,
    ranks: Annotated[str, typer.Option(metavar="N,N", help="Group sizes to try.")] = "2,4,8",
    logit_std: Annotated[float, typer.Option(min=0.1, max=64, metavar="X", help="Spread of the logits.")] = 4.0,
    seed: Annotated[int, typer.Option(min=0, metavar="N")] = 0,
    output: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.table,
    file: Output = None,
    plot: Annotated[
        str | None, typer.Option(metavar="PATH", help="Draw the error of a rounded cache against context.")
    ] = None,
) -> int:
    """Prove that every variant computes the same attention.

    A random block of the model's heads, in a narrower model, runs naive, absorbed, streamed, paged and on
    every partition; each result is compared with naive attention in fp64, its bytes with their closed form.

    Exit code: 0 if all agree, 1 if one does not, 2 for bad usage.
    """
    from mlaplan.cli.output import check, check_picture, write
    from mlaplan.cli.questions import tokens as parsed
    from mlaplan.errors import MlaplanError
    from mlaplan.kernel.cache_formats import ALIASES, FORMATS
    from mlaplan.kernel.case import DTYPES
    from mlaplan.kernel.verify import reduced
    from mlaplan.kernel.verify import verify as run
    from mlaplan.report import verify_table

    check(file)
    check_picture(plot)
    known("--dtype", dtype, DTYPES)
    if (model is None) == (plan is None):
        raise MlaplanError("give a MODEL, or a saved plan with --plan")
    asked = Asked(model or "", context, batch, q_len, kv_dtype) if plan is None else of_plan(
        plan, context, batch, q_len, kv_dtype
    )  # fmt: skip
    kv_dtype = asked.kv_dtype
    if kv_dtype is not None:
        known("--kv-dtype", kv_dtype, [*FORMATS, *ALIASES])
        kv_dtype = ALIASES.get(kv_dtype, kv_dtype)
    tokens, group_sizes = parsed("--context", asked.context or str(CONTEXT)), whole_numbers("--ranks", ranks)
    if tokens < 1:
        raise MlaplanError(f"--context {context}: expected at least 1 token")
    name, shapes, top_k = shapes_of(asked.model, attention)
    small, sequences, new = reduced(shapes), asked.batch or 2, asked.q_len or 2
    only: dict[str, Any] = {"only": asked.layouts, "block_sizes": asked.block_sizes} if plan is not None else {}
    rows = run(
        small,
        context=tokens,
        batch=sequences,
        q_len=new,
        dtype=dtype,
        kv_dtype=kv_dtype,
        ranks=group_sizes,
        top_k=top_k,
        logit_std=logit_std,
        seed=seed,
        **only,
    )
    about = {
        "model": model or asked.model.name,
        "attention": name,
        "heads": shapes.heads,
        "hidden_size": small.hidden_size,
        "context_tokens": tokens,
        "batch": sequences,
        "q_len": new,
        "dtype": dtype,
        "kv_dtype": kv_dtype,
        "logit_std": logit_std,
        "seed": seed,
    }
    text = verify_table.render(about, rows, output.value)
    write(text, file)
    if plot is not None:
        from mlaplan.kernel.cache_error import cache_errors
        from mlaplan.report.verify_plot import draw_cache_errors

        contexts = [c for c in PLOT_CONTEXTS if c < tokens] + [tokens]
        draw_cache_errors(
            cache_errors(shapes, contexts, list(FORMATS), logit_std, seed=seed), str(about["model"]), plot
        )
        print(f"written to {plot}", file=sys.stderr)
    wrong = sum(not row.ok for row in rows)
    print(f"{len(rows)} variants, {wrong} out of tolerance", file=sys.stderr)
    return 1 if wrong else 0


class Asked(NamedTuple):
    """What to compute; None leaves the verb's default. A plan also fixes the layouts and block sizes."""

    model: Any  # a name, or the model of a plan
    context: str | None
    batch: int | None
    q_len: int | None
    kv_dtype: str | None
    layouts: tuple[Layout, ...] = ()
    block_sizes: tuple[int, ...] = ()


def of_plan(path: str, context: str | None, batch: int | None, q_len: int | None, kv_dtype: str | None) -> Asked:
    """The attention of a saved plan: its partition, cache dtype, block size and MTP depth, at a reduced context.

    Every attention-DP rank gets at least one sequence; many ranks get shorter ones, so that it stays a laptop's work.
    """
    from mlaplan.kernel.composed import Layout
    from mlaplan.validation.measured import read_plan

    q, st, _ = read_plan(path)
    layout = Layout(st.tp // st.cp, st.dp, st.pp, st.kv_layout.replace("_", "-"), st.dcp)
    if st.cp > 1:
        print(f"note: the {st.cp} ranks of prefill context parallelism hold copies in a decode step", file=sys.stderr)
    sequences = max(batch or 2, st.dp)
    length = context or str(max(CONTEXT * 8 // max(sequences, 8), 64))
    rounded = kv_dtype or (st.kv_dtype if st.kv_dtype not in ("bf16", "fp16") else None)
    return Asked(q.setting.model, length, sequences, q_len or 1 + st.mtp, rounded, (layout,), (st.block_size,))


def shapes_of(model: Any, attention: str | None) -> tuple[str, Shapes, int | None]:
    """Name, shapes and top-k of the model's MLA, or of the attention named; the model by name or as read."""
    from mlaplan.errors import MlaplanError
    from mlaplan.kernel.shapes import Shapes
    from mlaplan.specs.lookup import load_model

    model = load_model(model) if isinstance(model, str) else model
    kinds = {name: a for name, a in model.attention.items() if a.kind == "mla"}
    if not kinds:
        raise MlaplanError(f"{model.name} has no MLA to verify: its attention is of another kind")
    if attention is not None:
        known("--attention", attention, kinds)
    name = attention or next(iter(kinds))
    a = kinds[name]
    shapes = Shapes(
        hidden_size=model.hidden_size,
        heads=a.heads,
        kv_lora_rank=a.kv_lora_rank,
        qk_nope_head_dim=a.qk_nope_head_dim,
        qk_rope_head_dim=a.qk_rope_head_dim,
        v_head_dim=a.v_head_dim,
        q_lora_rank=a.q_lora_rank,
    )
    return name, shapes, a.sparse.top_k if a.sparse else None


def known(option: str, value: str, choices: Iterable[str]) -> None:
    """Refuse a value outside `choices`, naming the nearest."""
    from mlaplan.errors import MlaplanError, nearest

    names = list(choices)
    if value not in names:
        near = nearest(value, names)
        hint = f"; did you mean '{near}'?" if near else ""
        raise MlaplanError(f"{option} {value}: expected one of {', '.join(names)}{hint}")


def whole_numbers(option: str, text: str) -> list[int]:
    """The text 2,4,8 as [2, 4, 8]."""
    from mlaplan.errors import MlaplanError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise MlaplanError(f"{option} {text}: expected whole numbers such as 2,4,8")
    return [int(part) for part in parts]
