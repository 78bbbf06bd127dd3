"""One row per chip or model: what is needed to choose one from a list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlaplan import units

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

TITLE_WIDTH = 21
CHIP_HEADER = ("name", "title", "memory", "bandwidth", "dense FLOPS", "")
MODEL_HEADER = ("name", "title", "kind", "layers", "total", "active", "KV/token", "")


def chip_row(chip: Chip) -> dict[str, Any]:
    """Key figures in SI."""
    base = next((dtype for dtype in ("bf16", "fp16", *chip.peak) if dtype in chip.peak), "")
    return {
        "title": chip.title,
        "vendor": chip.vendor,
        "unit": chip.unit,
        "class": chip.efficiency_class,
        "memory_bytes": float(chip.memory.capacity),
        "memory_bytes_per_s": float(chip.memory.bandwidth),
        "peak_dtype": base,
        "peak_flop_per_s": float(chip.peak[base]),
        "link_bytes_per_s": float(chip.scale_up.bandwidth),
        "chips_per_node": chip.scale_up.chips_per_node,
        "file": chip.origin,
    }


def model_row(model: Model) -> dict[str, Any]:
    """Key sizes; the cache is in bf16."""
    from mlaplan.costs import kv, params

    return {
        "title": model.title,
        "attention": "+".join(sorted({kind.kind for kind in model.attention.values()})),
        "layers": model.layer_count,
        "params_total": params.params_total(model),
        "params_active": params.params_active(model),
        "kv_bytes_per_token_bf16": kv.kv_bytes_per_token(model)["bf16"],
        "weights": model.weights.default,
        "file": model.origin,
    }


def columns(what: str, rows: Sequence[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and cells in people's units."""
    numbers = {folder: i + 1 for i, folder in enumerate(_folders(rows))}
    if what == "chips":
        return CHIP_HEADER, [
            (
                row["name"],
                _cut(row["title"]),
                units.format_bytes(row["memory_bytes"]),
                units.format_bytes_per_s(row["memory_bytes_per_s"]),
                f"{units.format_flops(row['peak_flop_per_s']).replace('FLOPS', '')} {row['peak_dtype']}",
                f"[{numbers[_folder(row)]}]",
            )
            for row in rows
        ]
    return MODEL_HEADER, [
        (
            row["name"],
            _cut(row["title"], 18),
            row["attention"],
            str(row["layers"]),
            units.format_count(row["params_total"]),
            units.format_count(row["params_active"]),
            f"{row['kv_bytes_per_token_bf16']:,.0f} B",
            f"[{numbers[_folder(row)]}]",
        )
        for row in rows
    ]


def folders(rows: Sequence[dict[str, Any]]) -> str:
    """Where the files of the rows lie, by the numbers in the last column."""
    return "\n".join(["", *(f"[{i + 1}] {folder}/" for i, folder in enumerate(_folders(rows)))])


def _folders(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(_folder(row) for row in rows))


def _folder(row: dict[str, Any]) -> str:
    return str(Path(row["file"]).parent)


def _cut(text: str, width: int = TITLE_WIDTH) -> str:
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"
