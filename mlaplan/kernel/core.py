"""The attention core of MLA, twice: with keys and values expanded per head, and in latent space.

Naive and absorbed give the same numbers, because W^UK may be moved from the key to the query:

    q^C . k^C  =  q^C . (W^UK c)  =  (W^UK^T q^C) . c

and W^UV from the value to the output. Naive costs 2 T n_h (d_h + d_h^R + d_v) FLOP a query once the keys are
expanded, absorbed 2 T n_h (2 d_c + d_h^R) but reads only T (d_c + d_h^R) elements, once for all heads. Hence
naive for prefill, absorbed for decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mlaplan.kernel.arithmetic import EXACT, Arithmetic
from mlaplan.kernel.partial import Partial, empty, log_sum
from mlaplan.kernel.visibility import visible
from mlaplan.kernel.weights import Weights

SOFTMAX_ROWS = 32  # rows exponentiated at a time, so that they stay in the cache between the passes


def naive(
    q: np.ndarray,
    cache: np.ndarray,
    weights: Weights,
    scale: float,
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    how: Arithmetic = EXACT,
) -> Partial:
    """Expand, then attend head by head. q [q_len, n_h, d_h + d_h^R], cache [T, d_c + d_h^R].

    k_h = [c W^UK_h ; k^R],  v_h = c W^UV_h,  o_h = softmax(scale q_h k_h^T) v_h   -> out [q_len, n_h, d_v]
    """
    d_h, d_c = weights.w_uk.shape[1:]
    c_kv, k_rope = cache[:, :d_c], cache[:, d_c:]
    mask = visible(query_positions, key_positions)
    result = empty(q.shape[:2], weights.w_uv.shape[1], q.dtype)
    if not len(cache):
        return result
    for head in range(weights.heads):
        k_nope = how.product("k_up", c_kv, weights.w_uk[head].T)  # [T, d_h]
        value = how.product("v_up", c_kv, weights.w_uv[head].T)  # [T, d_v]
        logits = how.product("core", q[:, head, :d_h], k_nope.T)
        logits += how.product("core", q[:, head, d_h:], k_rope.T)
        logits *= q.dtype.type(scale)
        if mask is not None:
            np.copyto(logits, -np.inf, where=~mask)
        total, lse = exponentiate(logits)
        result.out[:, head] = how.product("core", logits, value) / total[:, None]
        result.lse[:, head] = lse
    return result


def absorbed(
    q_latent: np.ndarray,
    cache: np.ndarray,
    kv_lora_rank: int,
    scale: float,
    query_positions: np.ndarray | None = None,
    key_positions: np.ndarray | None = None,
    how: Arithmetic = EXACT,
) -> Partial:
    """Attend to the cached rows as they lie. q_latent [q_len, n_h, d_c + d_h^R], cache [T, d_c + d_h^R].

    o = softmax(scale q [c ; k^R]^T) c  -> out [q_len, n_h, d_c], lse [q_len, n_h]

    All heads and all queries of a sequence are the rows of one matrix. The score tile [q_len n_h, T] is the
    one large temporary. Without positions every query sees every key.
    """
    q_len, heads, width = q_latent.shape
    keys = len(cache)
    if not keys or not q_latent.size:
        return empty((q_len, heads), kv_lora_rank, q_latent.dtype)
    scaled = (q_latent * q_latent.dtype.type(scale)).reshape(q_len * heads, width)
    cache = how.rounded(cache)
    logits = np.matmul(how.rounded(scaled), cache.T)
    if query_positions is not None and key_positions is not None:
        mask = visible(query_positions, key_positions)
        if mask is not None:
            np.copyto(logits.reshape(q_len, heads, keys), -np.inf, where=~mask[:, None, :])
    total, lse = exponentiate(logits)
    out = np.matmul(how.rounded(logits), cache[:, :kv_lora_rank])
    out /= total[:, None]
    how.count(
        "core",
        flops=2 * q_len * heads * keys * (width + kv_lora_rank),
        read=cache.size + q_latent.size,
        written=out.size,
    )
    return Partial(out.reshape(q_len, heads, kv_lora_rank), lse.reshape(q_len, heads))


def absorbed_batch(
    q_latent: Sequence[np.ndarray],
    caches: Sequence[np.ndarray],
    kv_lora_rank: int,
    scale: float,
    workers: int = 1,
) -> list[Partial]:
    """Decode of several sequences, each with a cache of its own length; every query sees its whole cache.

    With workers > 1 the (sequence, head group) pairs run on threads; keep the BLAS at one thread then.
    """
    if workers == 1:
        return [absorbed(q, c, kv_lora_rank, scale) for q, c in zip(q_latent, caches, strict=True)]
    groups = max(1, workers // max(len(caches), 1))
    jobs = [
        (part, cache) for q, cache in zip(q_latent, caches, strict=True) for part in np.array_split(q, groups, axis=1)
    ]
    with ThreadPoolExecutor(workers) as pool:
        done = list(pool.map(lambda job: absorbed(job[0], job[1], kv_lora_rank, scale), jobs))
    return [
        Partial(
            np.concatenate([p.out for p in done[i : i + groups]], axis=1),
            np.concatenate([p.lse for p in done[i : i + groups]], axis=1),
        )
        for i in range(0, len(done), groups)
    ]


def exponentiate(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace logits [rows, T] by exp(logit - row maximum) in place; return row sums and natural lse, [rows].

    A row of -inf alone becomes zeros with sum 1 and lse -inf: -inf - (-inf) is never formed, and the division
    that follows gives 0.
    """
    rows = len(logits)
    total = np.empty(rows, logits.dtype)
    shift = np.empty(rows, logits.dtype)
    for first in range(0, rows, SOFTMAX_ROWS):
        block = logits[first : first + SOFTMAX_ROWS]
        top = block.max(axis=1)
        top[np.isneginf(top)] = 0
        block -= top[:, None]
        np.exp(block, out=block)
        total[first : first + SOFTMAX_ROWS] = block.sum(axis=1)
        shift[first : first + SOFTMAX_ROWS] = top
    lse = log_sum(total, shift)
    total[total == 0] = 1
    return total, lse
