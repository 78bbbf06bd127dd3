"""Numbers beside the claims of the article on tensor parallelism for MLA on H100."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlaplan.costs import bounds, kv
from mlaplan.costs import collectives as net
from mlaplan.costs.collectives import Group
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.specs.model import MLA
from mlaplan.validation.articles import figures

H100 = figures("h100")
COARSE, TUNED = H100["coarse"], H100["tuned"]
ALL_REDUCES = 122  # two a layer of 61
HIDDEN, HALF_BATCH = 7168, 512  # of the 200 B model: not stated; sequences in one of two micro-batches
GQA_KV_HEADS, GQA_HEAD_DIM, RANKS = 8, 128, 8
WEIGHT_BYTES = 200e9 * 2 / 16


def row_bytes() -> float:
    a = load_model("deepseek-v3").attention["mla"]
    return kv.row_bytes(a, "bf16")


def attention() -> MLA:
    return load_model("deepseek-v3").attention["mla"]  # type: ignore[return-value]


def gqa_bytes(ranks: int) -> float:
    """Keys and values of one token in one layer on one of `ranks` GPUs, 16 bit."""
    return 2.0 * max(GQA_KV_HEADS / ranks, 1.0) * GQA_HEAD_DIM * 2.0


def eager_ms() -> float:
    """What 122 all-reduces cost more without graphs, on eight H100."""
    slower = load_chip("h100-sxm").overheads.eager_collective
    assert slower is not None
    return ALL_REDUCES * float(slower) * 1e3


def all_reduces_ms() -> float:
    """122 all-reduces of 512 tokens over eight H100."""
    size = HALF_BATCH * HIDDEN * 2.0
    one = net.collective_s(load_chip("h100-sxm"), "all_reduce", size, Group(RANKS))
    return float(ALL_REDUCES * one * 1e3)


def other_ms(row: dict[str, Any]) -> float:
    """What of a step is not communication."""
    return float(row["step_ms"] * (1 - row["comm_share"]))


def most(row: dict[str, Any]) -> float:
    """Tokens per second that the sequences in flight can yield."""
    return float(bounds.tokens_per_s(row["in_flight"], row["step_ms"] * 1e-3))


COMPUTED: dict[str, Callable[[], float]] = {
    "row": row_bytes,
    "block-16": lambda: 16 * row_bytes() / 1024,
    "block-64": lambda: 64 * row_bytes() / 1024,
    "below-gqa": lambda: row_bytes() / gqa_bytes(RANKS),
    "concurrency": lambda: gqa_bytes(1) / row_bytes(),
    "no-comm": lambda: 0.0,
    "shard": lambda: attention().kv_lora_rank / RANKS,
    "fits-h100": lambda: load_model("deepseek-v3").published.params_total.value / RANKS / 1e9,  # type: ignore[union-attr]
    "block-32": lambda: 64.0,
    "eager": eager_ms,
    "links": lambda: 450 / (400 / 8),
    "seats": lambda: TUNED["in_flight"] / COARSE["in_flight"],
    "seats-memory": lambda: 2 * 0.918 / 0.521,
    "gain": lambda: TUNED["tok_s"] / COARSE["tok_s"],
    "step-gain": lambda: 1 - TUNED["step_ms"] / COARSE["step_ms"],
    "bound-coarse": lambda: most(COARSE),
    "bound-tuned": lambda: most(TUNED),
    "comm-fall": lambda: other_ms(COARSE) - other_ms(TUNED),
    "comm-tuned": all_reduces_ms,
    "weights-step": lambda: 2 * WEIGHT_BYTES / float(load_chip("h100-sxm").memory.bandwidth) * 1e3,
    "pp-efficiency": lambda: next(float(m) for m in range(1, 99) if m / (m + 1) >= 0.92),
}
