"""`mlaplan chunks`: query chunks, KV slices and pipeline depth inside one group of chips."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mlaplan.cli import options as o
from mlaplan.errors import EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from mlaplan.costs.policies import Device, Replayed
    from mlaplan.costs.study import Asked
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import MLA, Model


class TableFormat(StrEnum):
    """How the result is written to stdout."""

    table = "table"
    json = "json"


class Form(StrEnum):
    """How the attention uses the latent cache."""

    absorbed = "absorbed"
    naive = "naive"


class Policy(StrEnum):
    """How a step's query chunk is chosen."""

    static = "static"
    formula = "formula"
    feedback = "feedback"


class CacheDtype(StrEnum):
    """What the cache holds."""

    bf16 = "bf16"
    fp8 = "fp8"


class Traffic(StrEnum):
    """Traces that are drawn, not read."""

    steady = "steady"
    mixed = "mixed"
    noisy = "noisy"


def chunks(
    model: o.ModelName,
    chip: o.ChipName,
    devices: Annotated[
        int, typer.Option("--devices", min=1, max=o.MOST, metavar="N", help="Chips that share every sequence.")
    ],
    batch: Annotated[int, typer.Option("--batch", min=1, max=o.MOST, metavar="N", help="Sequences of the step.")],
    context: Annotated[str, typer.Option("--context", metavar="TOKENS", help="Cached tokens of each; 4k is 4096.")],
    q_len: Annotated[int, typer.Option("--q-len", min=1, max=131072, metavar="N", help="Query tokens of each.")] = 1,
    attention: Annotated[
        str | None, typer.Option("--attention", metavar="NAME", help="Which attention, if the model has several.")
    ] = None,
    form: Annotated[Form | None, typer.Option("--form", help="Absorbed or naive; by default the faster.")] = None,
    kv_dtype: Annotated[CacheDtype, typer.Option("--kv-dtype", help="Dtype of the cache.")] = CacheDtype.bf16,
    jitter: Annotated[
        float | None,
        typer.Option(
            "--jitter", min=0, max=10, metavar="X", help="How much slower a single slice may be; the link's if none."
        ),
    ] = None,
    pattern: Annotated[
        o.Pattern, typer.Option("--merge", help="Merge by all-gather and reduce-scatter, or by all-to-all.")
    ] = o.Pattern.ag_rs,
    out_bytes: Annotated[
        int, typer.Option("--merge-bytes", min=2, max=4, metavar="N", help="Bytes of a partial output: 4 is fp32.")
    ] = 4,
    interleave: Annotated[
        int, typer.Option("--interleave", min=1, metavar="TOKENS", help="Tokens in a row that one rank holds.")
    ] = 1,
    trace: Annotated[
        str | None,
        typer.Option("--replay", metavar="FILE", help="Steps as CSV: batch,q_len,kv_len,comm_us,queue_depth."),
    ] = None,
    drawn: Annotated[Traffic | None, typer.Option("--traffic", help="Replay a drawn trace instead.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, metavar="N", help="Seed of a drawn trace; 0 if none.")
    ] = None,
    policy: Annotated[
        Policy | None, typer.Option("--policy", help="Policy whose steps are told; feedback if none.")
    ] = None,
    settings: o.Settings = None,
    output: Annotated[TableFormat, typer.Option("--format", help="How to write the result.")] = TableFormat.table,
    file: o.Output = None,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="PATH", help="Draw the timeline; the suffix is the file type.")
    ] = None,
) -> int:
    """Choose query chunk, slice and pipeline depth of a group of chips.

    The gather of a latent cache in slices that hide behind compute, its working set on the chip, the alternatives
    to gathering, and how the work is laid over the cores. With a trace: how policies choose, step by step.
    """
    from mlaplan.cli.output import check, check_picture, write
    from mlaplan.cli.questions import tell, tokens
    from mlaplan.costs import study
    from mlaplan.costs.merge import Merge
    from mlaplan.report import chunks_data, chunks_text
    from mlaplan.report.tables import as_json
    from mlaplan.specs.lookup import load_chip, load_model
    from mlaplan.validation.articles import stated

    check(file)
    check_picture(plot)
    cached = tokens("--context", context)
    if cached < 1:
        raise MlaplanError(f"--context {context}: expected at least 1 token")
    if trace is not None and drawn is not None:
        raise MlaplanError("--replay and --traffic: give one of them")
    if policy is not None and trace is None and drawn is None:
        raise MlaplanError(f"--policy {policy.value}: there are no steps to tell; expected --replay or --traffic")
    if seed is not None and drawn is None:
        raise MlaplanError(f"--seed {seed}: nothing is drawn; expected --traffic")
    if jitter is not None and math.isnan(jitter):
        raise MlaplanError("--jitter nan: expected a number from 0 to 10")
    if out_bytes == 3:
        raise MlaplanError("--merge-bytes 3: no dtype has three bytes; expected 2 or 4")
    spec, found_chip = load_model(model), load_chip(chip, settings or ())
    tell(warning.text() for warning in found_chip.warnings)
    a = _mla(spec, attention)
    if devices > a.heads:
        raise MlaplanError(f"--devices {devices}: {spec.name} has {a.heads} heads; expected {a.heads} chips at most")
    if found_chip.scale_out is None and devices > found_chip.scale_up.chips_per_node:
        most = found_chip.scale_up.chips_per_node
        raise MlaplanError(f"--devices {devices}: {found_chip.name} has no network; expected {most} chips at most")
    merge = Merge(float(out_bytes), 4.0, pattern.value, interleave)
    asked = study.Asked(devices, batch, cached, q_len, kv_dtype.value, jitter, merge)
    claim = stated()
    s = study.study(found_chip, a, asked, form.value if form else None, claim)
    runs, source = _replayed(found_chip, a, s.form, asked, trace, drawn, seed or 0)
    if output is TableFormat.json:
        write(as_json(chunks_data.document(spec, found_chip, s, runs, source)), file)
    else:
        text = chunks_text.report(spec, found_chip, s, claim)
        if runs:
            text += "\n\n" + chunks_text.replay(runs, (policy or Policy.feedback).value, source or "")
        write(text, file)
    if plot is not None:
        from mlaplan.report.chunks_plot import draw

        draw(spec, found_chip, s, plot)
        tell([f"written to {plot}"])
    return EXIT_OK


def _mla(model: Model, name: str | None) -> MLA:
    """The model's dense MLA, or the one named."""
    from mlaplan.errors import nearest

    kinds = {n: a for n, a in model.attention.items() if a.kind == "mla"}
    if not kinds:
        raise MlaplanError(f"{model.name} has no MLA: its attention is of another kind")
    if name is not None and name not in kinds:
        near = nearest(name, list(kinds))
        hint = f"; did you mean '{near}'?" if near else ""
        raise MlaplanError(f"--attention {name}: expected one of {', '.join(kinds)}{hint}")
    found = kinds[name or next(iter(kinds))]
    if found.sparse:
        raise MlaplanError(
            f"{model.name} selects its tokens (sparse attention); slices of a whole cache are not its way"
        )
    return found


def _replayed(
    chip: Chip, a: MLA, form: str, asked: Asked, trace: str | None, drawn: Traffic | None, seed: int
) -> tuple[list[Replayed], str | None]:
    """Every policy over the trace."""
    from mlaplan.costs import chunks as c
    from mlaplan.costs import overlap, policies, traces

    if trace is None and drawn is None:
        return [], None
    if asked.devices < 2:
        raise MlaplanError("--replay: one chip gathers nothing; expected --devices 2 or more")
    heads = -(-a.heads // asked.devices)
    work = overlap.Work(a, form, 1.0, 1.0, heads, asked.devices, kv_dtype=asked.kv_dtype)
    device: Device = policies.Device(work, overlap.rates(chip, asked.devices, form), c.on_chip_bytes(chip))
    steps = traces.read(trace) if trace is not None else traces.synthetic(device, drawn or "mixed", seed=seed)
    runs = [policies.replay(device, steps, name) for name in policies.POLICIES]
    wide = policies.formula(device, policies.CHUNKS)
    runs.insert(2, policies.replay(device, steps, "formula, any chunk", wide))
    return runs, trace if trace is not None else f"{drawn} traffic, seed {seed}"
