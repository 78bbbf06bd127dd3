"""Numbers and strategies in a person's words: what all texts about plans share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlaplan import units
from mlaplan.report.tables import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlaplan.costs.engine import Interval
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model
    from mlaplan.strategy import Strategy
    from mlaplan.workload import Workload

LABEL = 11  # columns of the label before each paragraph
MAIN_KERNELS = {"gemm", "mla_decode", "grouped_gemm"}  # most of a step is in these


def line(label: str, content: str) -> str:
    """`label      content`, folded under its first word."""
    return wrapped(content, label=label.ljust(LABEL))


def kernels(chip: Chip) -> list[str]:
    """Where kernel times are from: a calibration, or the chip's class where its own file has not the main ones."""
    if chip.calibration:
        return [chip.calibration]
    if chip.efficiency.keys() >= MAIN_KERNELS:
        return []
    own = ", ".join(chip.efficiency)
    apart = f" but for {own}" if own else ""
    return [f"not calibrated: defaults of class {chip.efficiency_class}{apart}, and bands as wide as theirs"]


def plain(value: float) -> str:
    """A number of some three digits: 688.6 -> '689', 21.5 -> '21.5', 12345 -> '12,345'."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def span(value: Interval, shown: Callable[[float], str] = plain) -> str:
    """`46.5 ms (36.4 ms to 70.0 ms)`; the value alone where it is exact."""
    low, high = shown(value.low), shown(value.high)
    if low == high == shown(value.value):
        return shown(value.value)
    # one unit is enough where all three have it
    if low.split(" ")[1:] == high.split(" ")[1:]:
        low = low.split(" ")[0]
    return f"{shown(value.value)} ({low} to {high})"


DATA = ("hardware", "models")


def file(path: str) -> str:
    """A file as seen from the working folder, or its name alone where it is elsewhere: a result is read by others.

    Files among the data, wherever it lies, keep the folder that says which they are: models/deepseek-v3.yaml.
    """
    from pathlib import Path

    if not path or not Path(path).is_absolute():
        return path
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (ValueError, OSError):
        found = Path(path)
        return f"{found.parent.name}/{found.name}" if found.parent.name in DATA else found.name


def percent(share: float) -> str:
    """Whole percent from ten on, tenths below; 0 for nothing."""
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 9.95 or abs(value) < 0.05 else f"{value:.1f} %"


def size(value: float) -> str:
    """Bytes, or a dash for none."""
    return units.format_bytes(value) if value else "-"


def kib(size: float) -> str:
    """Powers of two, as slices are: 64 KiB, 1 MiB."""
    if size >= 2**20:
        return f"{size / 2**20:.4g} MiB"
    return f"{size / 2**10:.4g} KiB" if size >= 2**10 else f"{size:,.0f} B"


def flops(value: float) -> str:
    """FLOP of a step, or a dash for none."""
    return units.format_flops(value).replace("FLOPS", "") if value else "-"


def dollars(value: float) -> str:
    """USD with cents."""
    return f"{value:,.2f}"


def times(count: int, noun: str) -> str:
    """`1 sequence`, `32 sequences`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def chips(strategy: Strategy, per_node: int) -> str:
    """How many chips on how many nodes."""
    nodes = -(-strategy.devices // per_node)
    return times(strategy.devices, "chip") + (f" ({nodes} nodes of {per_node})" if nodes > 1 else "")


def choices(strategy: Strategy) -> str:
    """Everything of a strategy beside its parallel degrees."""
    layout = strategy.kv_layout.replace("_", "-")
    parts = [
        f"{times(strategy.batch, 'sequence')} a rank",
        f"{strategy.weight_dtype} weights",
        f"{strategy.kv_dtype} cache, {layout}, blocks of {strategy.block_size}",
        f"prefill chunk {strategy.prefill_chunk:,}",
        f"{times(strategy.mtp, 'token')} drafted (MTP)" if strategy.mtp else "no MTP",
    ]
    return "; ".join(parts + ["two-batch overlap"] * bool(strategy.two_batch_overlap))


def layers(model: Model) -> str:
    """What was understood of the model, in one line."""
    from mlaplan.costs import params

    kinds = "+".join(sorted({a.kind.upper() for a in model.attention.values()}))
    sparse = any(a.kind == "mla" and a.sparse for a in model.attention.values())
    experts = next((f"{f.experts} experts" for f in model.ffn.values() if f.kind == "moe"), "dense")
    total, active = params.params_total(model), params.params_active(model)
    return (
        f"{'sparse ' * sparse}{kinds}, {model.layer_count} layers, {experts}, "
        f"{units.format_count(total)} parameters, {units.format_count(active)} active, {model.weights.default}"
    )


def workload(w: Workload) -> str:
    """Traffic and service level."""
    parts = [f"{w.isl:,} tokens in, {w.osl:,} out"]
    if w.prefix_tokens:
        parts.append(f"{w.prefix_tokens:,} of the prompt cached{_groups(w)}")
    if w.concurrency is not None:
        parts.append(f"{w.concurrency:,} in flight")
    if w.rate is not None:
        parts.append(f"{units.format_rate(w.rate).removesuffix(' /s')} requests/s")
    if w.concurrency is None and w.rate is None:
        parts.append("any number in flight")
    limits = [("TTFT", w.ttft_s), ("TPOT", w.tpot_s)]
    parts += [f"{name} up to {units.format_seconds(limit)}" for name, limit in limits if limit is not None]
    return ", ".join(parts)


def _groups(w: Workload) -> str:
    """How the cached part is shared."""
    if w.prefix_groups is None:
        return ""
    routed = "sent to a cache that has its own" if w.prefix_routed else "sent to any cache"
    return f" (one of {w.prefix_groups:,}, {routed})"
