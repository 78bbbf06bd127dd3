"""`mlaplan verify`: compute one attention in every way a deployment may, and compare."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mlaplan.cli.formats import Format
from mlaplan.cli.options import ModelName, Output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlaplan.kernel.shapes import Shapes

PLOT_CONTEXTS = (64, 256, 1024, 4096)


def verify(
    model: ModelName,
    attention: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which attention, if the model has several.")
    ] = None,
    context: Annotated[
        str, typer.Option(metavar="TOKENS", help="Cached tokens of the longest sequence; 4k is 4096.")
    ] = "512",
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Sequences, of mixed lengths.")] = 2,
    q_len: Annotated[int, typer.Option(min=1, metavar="N", help="New tokens a sequence, as in MTP.")] = 2,
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
    from mlaplan.errors import MlaplanError
    from mlaplan.kernel.cache_formats import ALIASES, FORMATS
    from mlaplan.kernel.case import DTYPES
    from mlaplan.kernel.verify import reduced
    from mlaplan.kernel.verify import verify as run
    from mlaplan.report import verify_table
    from mlaplan.units import parse_tokens

    known("--dtype", dtype, DTYPES)
    if kv_dtype is not None:
        known("--kv-dtype", kv_dtype, [*FORMATS, *ALIASES])
        kv_dtype = ALIASES.get(kv_dtype, kv_dtype)
    tokens, group_sizes = parse_tokens(context), whole_numbers("--ranks", ranks)
    if tokens < 1:
        raise MlaplanError(f"--context {context}: expected at least 1 token")
    name, shapes, top_k = shapes_of(model, attention)
    small = reduced(shapes)
    rows = run(
        small,
        context=tokens,
        batch=batch,
        q_len=q_len,
        dtype=dtype,
        kv_dtype=kv_dtype,
        ranks=group_sizes,
        top_k=top_k,
        logit_std=logit_std,
        seed=seed,
    )
    about = {
        "model": model,
        "attention": name,
        "heads": shapes.heads,
        "hidden_size": small.hidden_size,
        "context_tokens": tokens,
        "batch": batch,
        "q_len": q_len,
        "dtype": dtype,
        "kv_dtype": kv_dtype,
        "logit_std": logit_std,
        "seed": seed,
    }
    text = verify_table.render(about, rows, output.value)
    if file is None:
        print(text)
    else:
        write(file, text)
    if plot is not None:
        from mlaplan.kernel.cache_error import cache_errors
        from mlaplan.report.verify_plot import draw_cache_errors

        contexts = [c for c in PLOT_CONTEXTS if c < tokens] + [tokens]
        draw_cache_errors(cache_errors(shapes, contexts, list(FORMATS), logit_std, seed=seed), model, plot)
        print(f"wrote {plot}", file=sys.stderr)
    wrong = sum(not row.ok for row in rows)
    print(f"{len(rows)} variants, {wrong} out of tolerance", file=sys.stderr)
    return 1 if wrong else 0


def shapes_of(model_name: str, attention: str | None) -> tuple[str, Shapes, int | None]:
    """Name, shapes and top-k of the model's MLA, or of the attention named."""
    from mlaplan.errors import MlaplanError
    from mlaplan.kernel.shapes import Shapes
    from mlaplan.specs.lookup import load_model

    model = load_model(model_name)
    kinds = {name: a for name, a in model.attention.items() if a.kind == "mla"}
    if not kinds:
        raise MlaplanError(f"{model_name} has no MLA to verify: its attention is of another kind")
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


def write(file: str, text: str) -> None:
    from pathlib import Path

    from mlaplan.errors import MlaplanError

    try:
        Path(file).write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        raise MlaplanError(f"{file}: cannot be written: {problem.strerror}") from None
    print(f"wrote {file}", file=sys.stderr)
