"""Numbers beside the claims of the K3 article.

The factors by which compute would have to shrink are solved from the article's table: step x utilisation of a row over
that of the first. They reproduce the table by construction, so they validate nothing and no chip file holds them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from mlaplan.costs import bounds, chunks, gather, overlap, sram
from mlaplan.costs.chunks import GatherPlan
from mlaplan.costs.gather import Merge
from mlaplan.costs.policies import ARTICLE_CHUNKS
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.specs.model import MLA
from mlaplan.validation.articles import figures

MIB = 2.0**20
K3 = figures("k3")
ROWS = K3["rows"]
SLOW_SHARE, SLOW_SLICE, SEED = 0.1, 0.3, 0


def attention() -> MLA:
    """The latent that the article does not state, taken as DeepSeek-V2's."""
    return load_model("deepseek-v2").attention["mla"]  # type: ignore[return-value]


def fused_factor(row: int) -> float:
    """Busy time of a row of the table over that of the first: utilisation x step."""
    return float(ROWS[row]["busy"] * ROWS[row]["step_ms"] / (ROWS[0]["busy"] * ROWS[0]["step_ms"]))


def overlap_floor_ms(row: int) -> float:
    """The row's step, or what overlap alone can reach if that is longer: max(compute, communication)."""
    compute = ROWS[0]["busy"] * ROWS[0]["step_ms"]
    comm = K3["comm_share"] * ROWS[0]["step_ms"]
    return max(float(ROWS[row]["step_ms"]), compute, comm)


def tokens_per_s(row: int) -> float:
    """The first row's tokens per step at this row's step."""
    return float(ROWS[0]["tok_s"] * ROWS[0]["step_ms"] / ROWS[row]["step_ms"])


@cache
def long_sequence() -> GatherPlan:
    """One sequence of 32 K over eight cards, 32 heads on each, keys and values recovered as the slices come."""
    chip = load_chip("k3")
    return chunks.gather_plan(chip, attention(), "naive", 1, K3["context"], K3["heads"], K3["cards"])


@cache
def many_sequences() -> GatherPlan:
    """Batch and context of the article's threshold, 16 heads a card."""
    chip = load_chip("k3")
    return chunks.gather_plan(chip, attention(), "naive", K3["from_batch"], K3["from_context"], 16, K3["cards"])


def excess() -> float:
    """Step of the larger stated slice at the stated depth over the best of the sweep."""
    found = {(c.slice_bytes, c.depth): c.step_s for c in many_sequences().sweep}
    return found[K3["slice_bytes"][1], K3["depth"]] / min(found.values())


def jitter_factor() -> float:
    """The step with one slice in ten slower by 30 % over the step without, at the stated slice and depth."""
    from mlaplan.costs import slices

    plan = many_sequences()
    p = overlap.pipeline(plan.work, plan.rates, K3["slice_bytes"][1], K3["depth"])
    return slices.timeline(p, slices.jittered(p, SLOW_SHARE, SLOW_SLICE, SEED)).total_s / slices.timeline(p).total_s


def least_tokens() -> float:
    """Least batch x context for which slices beat one gather."""
    plan = many_sequences()
    grid = overlap.engagement(plan.work, plan.rates, chunks.BATCHES, chunks.CONTEXTS, plan.picked.depth)
    paying = np.asarray(grid.saved_s) > 0
    return float((np.outer(grid.batches, grid.contexts)[paying]).min())


def prefill_factor() -> float:
    """A prefill in query chunks and slices over the same with one gather."""
    found = chunks.border(many_sequences(), (K3["from_batch"], K3["from_context"]))
    return 1.0 - found.prefill_saved


def recover_share() -> float:
    """Part of the naive work at one query token that recovers keys and values."""
    a = attention()
    recover = a.kv_lora_rank * (a.qk_nope_head_dim + a.v_head_dim)
    return recover / (recover + a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim)


def tile(chunk: int) -> float:
    return sram.query_output_tile_bytes(K3["batch"], chunk, K3["heads"], K3["head_dim"]) / MIB


def fallback() -> float:
    """The chunk that the repaired formula takes where none fits."""
    return float(min(ARTICLE_CHUNKS))


def least_sram_mib() -> float:
    """The least whole MiB of memory whose guard admits the tile of 64."""
    size = sram.query_output_tile_bytes(K3["batch"], K3["q_chunk"], K3["heads"], K3["head_dim"])
    return float(next(m for m in range(1, 1024) if sram.within_guard(size, m * 2**20)))


COMPUTED: dict[str, Callable[[], float]] = {
    "comm-share": lambda: K3["comm_share"],
    "serial": lambda: K3["comm_share"] + ROWS[0]["busy"],
    "order-of-magnitude": lambda: 2 * 128 * 128 / (512 + 64),
    "gather-bytes": lambda: K3["cards"] / ((K3["cards"] - 1) / K3["cards"]),
    "rope": lambda: float(attention().kv_lora_rank + attention().qk_rope_head_dim),
    "qk-flops": lambda: float(K3["heads"]),
    "tile-64": lambda: tile(64),
    "tile-128": lambda: tile(128),
    "tile-name": lambda: K3["batch"] * K3["heads"] * 64 * (K3["slice_bytes"][1] // 1152 + 1) * 4 / MIB,
    "chunk-over-queries": lambda: float(sram.largest_chunk(32, 32, 128, 24 * 2**20, q_len=1).chunk or 0),
    "candidates": lambda: 4.0,
    "guard": least_sram_mib,
    "fallback": fallback,
    "calc-estimate": recover_share,
    "tokens-fused": lambda: tokens_per_s(2),
    "tokens-deep": lambda: tokens_per_s(3),
    "layers": lambda: K3["batch"] / (ROWS[0]["tok_s"] * ROWS[0]["step_ms"] * 1e-3),
    "chunking-gain": lambda: 1 - ROWS[1]["step_ms"] / ROWS[0]["step_ms"],
    "whole-gain": lambda: 1 - ROWS[3]["step_ms"] / ROWS[0]["step_ms"],
    "busy-gain": lambda: ROWS[3]["busy"] - ROWS[2]["busy"],
    "deep-latency": lambda: overlap_floor_ms(3),
    "fused-latency": lambda: overlap_floor_ms(2),
    "chunking-latency": lambda: overlap_floor_ms(1),
    "factor-chunking": lambda: fused_factor(1),
    "factor-fused": lambda: fused_factor(2),
    "factor-deep": lambda: fused_factor(3),
    "model-serial": lambda: long_sequence().modes[0].step_s * 1e3,
    "model-deep": lambda: long_sequence().modes[3].step_s * 1e3,
    "row-128": lambda: float(sram.largest_chunk(32, 32, 128, 31 * 2**20).chunk or 0),
    "stable": lambda: float(sram.largest_chunk(32, 32, 128, 24 * 2**20).chunk or 0),
    "slices": excess,
    "staging": lambda: K3["depth"] * K3["slice_bytes"][1] / 1024,
    "end-to-end": lambda: bounds.amdahl_share(1 - ROWS[1]["step_ms"] / ROWS[0]["step_ms"], K3["end_to_end_gain"]),
    "latent-space": lambda: float(attention().kv_lora_rank + attention().qk_rope_head_dim),
    "threshold": least_tokens,
    "prefill": prefill_factor,
    "jitter": jitter_factor,
    "alternative": lambda: gather.byte_crossover(attention(), Merge(2.0, 0.0)),
}
