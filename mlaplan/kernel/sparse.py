"""Sparse attention of DeepSeek-V3.2: an indexer scores all earlier tokens, the core reads only the top k.

    I[t, s] = sum_j w[t, j] relu(q^I[t, j] . k^I[s] / sqrt(n))        j over indexer heads of width n
    w       = x W^w / sqrt(heads),   q^I = c^Q W^IQ,   k^I = LayerNorm(x W^IK)

The first d_h^R columns of q^I and k^I are rotated, half-split (the block itself rotates interleaved). With
k >= context every visible token is selected, and the result is that of dense attention.
Source: DeepSeek-V3.2, arXiv:2512.02556, sec. 2; huggingface/transformers modeling_deepseek_v32.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlaplan.kernel import core
from mlaplan.kernel.arithmetic import EXACT, Arithmetic
from mlaplan.kernel.norm import layer_norm
from mlaplan.kernel.partial import Partial, empty
from mlaplan.kernel.rope import HALF_SPLIT, RopeTables, rotate
from mlaplan.kernel.visibility import visible

NOTHING = -1  # an id that selects no token; any id outside [0, T) is read as that


@dataclass(frozen=True, slots=True)
class IndexerWeights:
    w_iq: np.ndarray  # W^IQ [d_c', heads, n]
    w_ik: np.ndarray  # W^IK [d, n]
    k_norm: np.ndarray  # [n]
    k_bias: np.ndarray  # [n]
    w_w: np.ndarray  # W^w [d, heads]


def random_indexer(
    hidden_size: int,
    q_lora_rank: int,
    heads: int,
    head_dim: int,
    rng: np.random.Generator,
    dtype: np.dtype | type = np.float64,
) -> IndexerWeights:
    def matrix(fan_in: int, *shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * fan_in**-0.5).astype(dtype)

    return IndexerWeights(
        w_iq=matrix(q_lora_rank, q_lora_rank, heads, head_dim),
        w_ik=matrix(hidden_size, hidden_size, head_dim),
        k_norm=(1 + 0.1 * rng.standard_normal(head_dim)).astype(dtype),
        k_bias=(0.1 * rng.standard_normal(head_dim)).astype(dtype),
        w_w=matrix(hidden_size, hidden_size, heads),
    )


def index_keys(
    x: np.ndarray,
    positions: np.ndarray,
    weights: IndexerWeights,
    rope: RopeTables,
    how: Arithmetic = EXACT,
) -> np.ndarray:
    """k^I, the indexer's own cache rows. x [t, d] -> [t, n]"""
    keys = layer_norm(how.product("indexer_k", x, weights.w_ik), weights.k_norm, weights.k_bias)
    width = 2 * rope.cos.shape[1]
    keys[:, :width] = rotate(keys[:, :width], rope, positions, HALF_SPLIT)
    return keys


def index_queries(
    c_q: np.ndarray,
    positions: np.ndarray,
    weights: IndexerWeights,
    rope: RopeTables,
    how: Arithmetic = EXACT,
) -> np.ndarray:
    """q^I. c_q [q_len, d_c'] -> [q_len, heads, n]"""
    inputs, heads, head_dim = weights.w_iq.shape
    q = how.product("indexer_q", c_q, weights.w_iq.reshape(inputs, heads * head_dim))
    q = q.reshape(len(c_q), heads, head_dim)
    width = 2 * rope.cos.shape[1]
    by_head = np.moveaxis(q[:, :, :width], 1, 0)
    q[:, :, :width] = np.moveaxis(rotate(by_head, rope, positions, HALF_SPLIT), 0, 1)
    return q


def index_scores(
    x: np.ndarray,
    q_index: np.ndarray,
    k_index: np.ndarray,
    weights: IndexerWeights,
    how: Arithmetic = EXACT,
) -> np.ndarray:
    """I[t, s], before masking. x [q_len, d], q_index [q_len, heads, n], k_index [T, n] -> [q_len, T]"""
    q_len, heads, head_dim = q_index.shape
    head_weights = how.product("indexer_w", x, weights.w_w) * x.dtype.type(heads**-0.5)  # [q_len, heads]
    scores = np.empty((q_len, len(k_index)), x.dtype)
    for t in range(q_len):
        logits = how.product("indexer_score", q_index[t], k_index.T)  # [heads, T]
        logits *= x.dtype.type(head_dim**-0.5)
        scores[t] = head_weights[t] @ np.maximum(logits, 0, out=logits)
    return scores


def select(scores: np.ndarray, mask: np.ndarray | None, k: int) -> np.ndarray:
    """Ids of the k best visible keys of each query, ascending; fewer visible: the rest is NOTHING.

    Equal scores go to the earlier key. scores [q_len, T], mask [q_len, T] or None -> [q_len, min(k, T)]
    """
    hidden = scores if mask is None else np.where(mask, scores, -np.inf)
    k = min(k, scores.shape[1])
    best = np.argsort(-hidden, axis=1, kind="stable")[:, :k]
    seen = np.take_along_axis(hidden, best, axis=1) > -np.inf
    ids = np.sort(np.where(seen, best, scores.shape[1]), axis=1)  # unseen ones last
    return np.where(ids < scores.shape[1], ids, NOTHING)


def select_sharded(
    scores: Sequence[np.ndarray],
    positions: Sequence[np.ndarray],
    query_positions: np.ndarray,
    k: int,
) -> np.ndarray:
    """The same selection when ranks hold the keys: k best of each rank, then the k best of those.

    scores N x [q_len, local T], positions N x [local T] -> global ids [q_len, min(k, T)]. What a rank sends
    is (score, global id): a local id means another token on another rank.
    """
    candidates, ids = [], []
    for local, at in zip(scores, positions, strict=True):
        if not len(at):
            continue
        chosen = select(local, visible(query_positions, at), k)
        valid = chosen != NOTHING
        candidates.append(np.where(valid, np.take_along_axis(local, np.maximum(chosen, 0), axis=1), -np.inf))
        ids.append(np.where(valid, at[np.maximum(chosen, 0)], np.iinfo(np.int64).max))
    pool, where = np.concatenate(candidates, axis=1), np.concatenate(ids, axis=1)
    by_id = np.argsort(where, axis=1, kind="stable")  # so that ties go to the earlier token, as in select
    pool, where = np.take_along_axis(pool, by_id, axis=1), np.take_along_axis(where, by_id, axis=1)
    k = min(k, sum(len(at) for at in positions))
    chosen = select(pool, None, k)
    return np.where(chosen == NOTHING, NOTHING, np.take_along_axis(where, np.maximum(chosen, 0), axis=1))


def to_local(ids: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Global ids as indices into a rank's own rows; NOTHING for tokens that live elsewhere."""
    if not len(positions):
        return np.full_like(ids, NOTHING)
    at = np.searchsorted(positions, ids)
    found = (ids >= 0) & (at < len(positions)) & (positions[np.minimum(at, len(positions) - 1)] == ids)
    return np.where(found, at, NOTHING)


def sparse_absorbed(
    q_latent: np.ndarray,
    cache: np.ndarray,
    ids: np.ndarray,
    kv_lora_rank: int,
    scale: float,
    how: Arithmetic = EXACT,
) -> Partial:
    """Absorbed attention of each query over its own selection; the mask was applied when selecting.

    q_latent [q_len, n_h, d_c + d_h^R], cache [T, .], ids [q_len, k] -> out [q_len, n_h, d_c]. A query with no
    valid id gives (0, -inf).
    """
    result = empty(q_latent.shape[:2], kv_lora_rank, q_latent.dtype)
    for t in range(len(q_latent)):
        valid = ids[t][(ids[t] >= 0) & (ids[t] < len(cache))]
        one = core.absorbed(q_latent[t : t + 1], cache[valid], kv_lora_rank, scale, how=how)
        result.out[t], result.lse[t] = one.out[0], one.lse[0]
    return result
