"""What an attention tile keeps on the chip, which level of memory holds it, and what a spill costs.

A task works on `rows` query rows (query tokens x heads) and one slice of `tokens` cached tokens at a time:

                     absorbed                     naive: keys and values recovered from the latent
    query            rows (d_c + d_r) 2           rows (d_n + d_r) 2
    cache            depth tokens row             the same: `depth` slices staged, one read while others arrive
    scores           rows tokens 4                the same, fp32
    state            rows 2 4                     the same: running maximum and sum
    output           rows d_c 4                   rows d_v 4
    recovered        -                            tokens heads (d_n + d_v) 2
    weights          -                            heads d_c (d_n + d_v) 2 resident; two heads' share if streamed

Tiles of a matrix unit below that (fragments) are not modelled. Source: FlashAttention, arXiv:2205.14135, for the
parts; DeepSeek-V2, arXiv:2405.04434, sec. 2.1, for the shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mlaplan.costs.roofline import ceil_div

if TYPE_CHECKING:
    from mlaplan.specs.chip import Chip, OnChip
    from mlaplan.specs.model import MLA

FORMS = ("absorbed", "naive")
PARTS = ("state", "output", "scores", "query", "cache", "recovered", "weights")  # the hottest first
SCORE_BYTES = STATE_BYTES = OUTPUT_BYTES = 4
ELEMENT_BYTES = 2
DEVICE = "device memory"
CHUNKS = (32, 64, 128, 256)  # query chunks that kernels offer
GUARD = (4, 5)  # the part of the memory that a tile may take, as a fraction of whole numbers

# what a level can hold where hardware reserves it; every other level holds anything
ROLES: dict[str, tuple[str, ...]] = {
    "registers": ("state", "output", "scores"),
    "L0A": ("query",),
    "L0B": ("cache", "recovered", "weights"),
    "L0C": ("output", "scores"),
    "L1": ("query", "cache", "recovered", "weights"),
    "UB": ("state", "scores", "output"),
}


class Tile(NamedTuple):
    """One task's share of the work on one core (or on a chip whose cores are not told apart)."""

    rows: int  # query tokens x heads
    heads: int
    slice_tokens: int
    depth: int = 2
    weights_resident: bool = False


def working_set(a: MLA, tile: Tile, form: str, row_bytes: float) -> dict[str, float]:
    """Bytes of every part of a tile, by name. [B]"""
    naive = form == "naive"
    d_q = (a.qk_nope_head_dim if naive else a.kv_lora_rank) + a.qk_rope_head_dim
    d_o = a.v_head_dim if naive else a.kv_lora_rank
    per_head = a.kv_lora_rank * (a.qk_nope_head_dim + a.v_head_dim) * ELEMENT_BYTES
    recovered = tile.slice_tokens * tile.heads * (a.qk_nope_head_dim + a.v_head_dim) * ELEMENT_BYTES
    held = tile.heads if tile.weights_resident else min(2, tile.heads)
    return {
        "state": tile.rows * 2.0 * STATE_BYTES,
        "output": float(tile.rows * d_o * OUTPUT_BYTES),
        "scores": float(tile.rows * tile.slice_tokens * SCORE_BYTES),
        "query": float(tile.rows * d_q * ELEMENT_BYTES),
        "cache": tile.depth * tile.slice_tokens * row_bytes,
        "recovered": float(recovered) if naive else 0.0,
        "weights": float(held * per_head) if naive else 0.0,
    }


def traffic(parts: dict[str, float], slices: int, depth: int) -> dict[str, float]:
    """Bytes that each part moves at its level over a task of `slices` slices. [B]

    State, output and scores are written and read once a slice, the query is read once a slice, a staged or
    recovered slice is written and read, weights are read once a slice.
    """
    times: dict[str, float] = {"state": 2 * slices, "output": 2 * slices, "scores": 2 * slices, "query": slices}
    times |= {"cache": 2.0 * slices / depth, "recovered": 2 * slices, "weights": slices}
    return {name: size * times[name] for name, size in parts.items()}


class Placed(NamedTuple):
    """One part and where it is. `spill_s`: time of its traffic at a level that every core shares, else 0."""

    part: str
    bytes: float
    level: str
    spill_s: float


class Fit(NamedTuple):
    """Placement of a whole tile. `room`: bytes that each level has left, per core or per chip."""

    parts: tuple[Placed, ...]
    room: dict[str, float]

    @property
    def total_bytes(self) -> float:
        return sum(p.bytes for p in self.parts)

    @property
    def spill_s(self) -> float:
        return sum(p.spill_s for p in self.parts)

    @property
    def spilled(self) -> tuple[str, ...]:
        return tuple(p.part for p in self.parts if p.spill_s > 0)

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels in use, the nearest first."""
        return tuple(dict.fromkeys(p.level for p in self.parts))


def home_levels(chip: Chip) -> tuple[OnChip, ...]:
    """The levels that a tile is meant to stay in: all but the last one that the whole chip shares."""
    shared = [level for level in chip.on_chip if level.scope == "chip"]
    return tuple(level for level in chip.on_chip if len(chip.on_chip) == 1 or level not in shared[-1:])


def usable_bytes(level: OnChip) -> float:
    """What a kernel may take of a level. [B]"""
    return float(level.capacity) * (float(level.usable) if level.usable is not None else 1.0)


def place(chip: Chip, parts: dict[str, float], cores: int, slices: int = 1, depth: int = 2) -> Fit:
    """Each part in the nearest level that may hold it and has room, the hottest part first.

    parts: of one core; a level of the whole chip holds those of all `cores`. A part outside the home levels costs
    its traffic over the bandwidth of where it is (the device memory's, where the level's is not known).
    """
    home = home_levels(chip)
    room = {level.name: usable_bytes(level) for level in chip.on_chip}
    moved = traffic(parts, slices, depth)
    placed = []
    for name in PARTS:
        if parts[name] == 0:
            continue
        where = None
        for level in chip.on_chip:
            size = parts[name] * (cores if level.scope == "chip" else 1)
            if name in ROLES.get(level.name, PARTS) and size <= room[level.name]:
                where = level
                room[level.name] -= size
                break
        bandwidth = float(chip.memory.bandwidth)
        if where is not None and where.bandwidth is not None:
            bandwidth = float(where.bandwidth)
        spill_s = 0.0 if where in home else moved[name] * cores / bandwidth
        placed.append(Placed(name, parts[name], where.name if where is not None else DEVICE, spill_s))
    return Fit(tuple(placed), room)


# ---- the tile of B x Q_c x H x D ----


def query_output_tile_bytes(batch: int, chunk: int, heads: int, head_dim: int, element_bytes: int = 2) -> int:
    """B Q_c H D w: queries or outputs of one chunk of every sequence. It is no score matrix (B H Q_c S). [B]"""
    return batch * chunk * heads * head_dim * element_bytes


def within_guard(nbytes: int, sram_bytes: int, guard: tuple[int, int] = GUARD) -> bool:
    """nbytes <= guard x sram, in whole numbers: a tile of exactly the guard fits."""
    part, whole = guard
    return whole * nbytes <= part * sram_bytes


class ChunkFit(NamedTuple):
    """The largest chunk that fits, or None and why. `tile_bytes` is that of the chunk, or of the smallest tried."""

    chunk: int | None
    tile_bytes: int
    reason: str


def largest_chunk(
    batch: int, heads: int, head_dim: int, sram_bytes: int, candidates: Sequence[int] = CHUNKS, q_len: int | None = None
) -> ChunkFit:
    """The largest candidate whose Q/O tile stays within the guard; no more than the query tokens there are.

    q_len: query tokens of a sequence; with one there is nothing to cut, and KV slices are what is left to choose.
    """
    sizes = sorted(candidates)
    if q_len is not None:
        sizes = sorted({min(c, q_len) for c in sizes})

    def tile(chunk: int) -> int:
        return query_output_tile_bytes(batch, chunk, heads, head_dim)

    fitting = [c for c in sizes if within_guard(tile(c), sram_bytes)]
    if fitting:
        chunk = fitting[-1]
        if q_len == 1:
            why = f"one query token a sequence: {heads} rows of heads, nothing to cut; choose KV slices instead"
        elif chunk == q_len:
            why = f"all {q_len} query tokens of a sequence"
        else:
            why = "the largest that stays within the guard"
        return ChunkFit(chunk, tile(chunk), why)
    least = sizes[0]
    part, whole = GUARD
    one = query_output_tile_bytes(batch, 1, heads, head_dim)
    possible = part * sram_bytes // (whole * one)
    pieces = ceil_div(whole * tile(least), part * sram_bytes)
    smaller = f"a chunk of {possible}" if possible else "no chunk of this batch"
    why = f"a chunk of {least} is over {part}/{whole} of the memory: {smaller} would fit"
    if pieces <= batch:
        why += f", or the batch in {pieces} parts"
    return ChunkFit(None, tile(least), why)
