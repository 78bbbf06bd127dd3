"""Random blocks, caches and queries that the kernel tests share."""

from __future__ import annotations

import numpy as np

from mlaplan.kernel import block
from mlaplan.kernel.arithmetic import EXACT, Arithmetic
from mlaplan.kernel.rope import Yarn, logit_scale, rope_tables
from mlaplan.kernel.shapes import Shapes
from mlaplan.kernel.tolerance import FP64, difference
from mlaplan.kernel.weights import Weights, random_weights

SMALL = Shapes(
    hidden_size=48,
    heads=8,
    kv_lora_rank=32,
    qk_nope_head_dim=16,
    qk_rope_head_dim=8,
    v_head_dim=12,
    q_lora_rank=24,
)
YARN = Yarn(factor=40.0, original_positions=64)


def setting(
    shapes: Shapes = SMALL,
    positions: int = 2048,
    yarn: Yarn | None = YARN,
    how: Arithmetic = EXACT,
) -> block.Setting:
    tables = rope_tables(positions, shapes.qk_rope_head_dim, yarn=yarn)
    return block.Setting(logit_scale(shapes.qk_head_dim, yarn), tables, how)


def random_block(
    seed: int, lengths: tuple[int, ...], q_len: int = 1, shapes: Shapes = SMALL, logit_std: float = 2.0
) -> tuple[np.ndarray, list[np.ndarray], Weights]:
    """x [B, q_len, d], caches as the block itself would have written them, weights."""
    rng = np.random.default_rng(seed)
    weights = random_weights(shapes, rng, logit_std=logit_std)
    env = setting(shapes)
    caches = []
    for length in lengths:
        hidden = rng.standard_normal((1, length, shapes.hidden_size))
        caches.append(block.cache_rows(hidden, [np.arange(length)], weights, env)[0])
    x = rng.standard_normal((len(lengths), q_len, shapes.hidden_size))
    return x, caches, weights


def random_core(
    seed: int, q_len: int, heads: int, keys: int, d_c: int = 32, rope: int = 8, logit_std: float = 4.0
) -> tuple[np.ndarray, np.ndarray, float]:
    """Absorbed queries [q_len, heads, d_c + rope], cache [keys, d_c + rope], scale; logits of that std."""
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((q_len, heads, d_c + rope))
    cache = rng.standard_normal((keys, d_c + rope))
    return q, cache, logit_std * (d_c + rope) ** -0.5


def textbook(
    q: np.ndarray, cache: np.ndarray, d_c: int, scale: float, mask: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """softmax(scale q K^T) V in long double, row by row: what everything else is compared with."""
    q_len, heads, _ = q.shape
    out = np.zeros((q_len, heads, d_c))
    lse = np.full((q_len, heads), -np.inf)
    wide = cache.astype(np.longdouble)
    for i in range(q_len):
        keys = wide if mask is None else wide[mask[i]]
        if not len(keys):
            continue
        for h in range(heads):
            logits = keys @ q[i, h].astype(np.longdouble) * scale
            top = logits.max()
            p = np.exp(logits - top)
            out[i, h] = p @ keys[:, :d_c] / p.sum()
            lse[i, h] = top + np.log(p.sum())
    return out, lse


def assert_same(got: np.ndarray, reference: np.ndarray, tolerance: float = FP64) -> None:
    """max|d| / max|ref| within tolerance, over all and per leading row: a wrong mask spoils one row."""
    assert difference(got, reference).relative <= tolerance
    for g, r in zip(got, reference, strict=True):
        assert difference(g, r).relative <= 10 * tolerance


def assert_lse_same(got: np.ndarray, reference: np.ndarray, tolerance: float = FP64) -> None:
    """Empty rows one to one, the others to tolerance (1 + |lse|)."""
    assert np.array_equal(np.isneginf(got), np.isneginf(reference))
    some = np.isfinite(reference)
    assert np.all(np.abs(got[some] - reference[some]) <= tolerance * (1 + np.abs(reference[some])))
