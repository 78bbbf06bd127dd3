"""One MLA block: hidden states in, hidden states and new cache rows out (DeepSeek-V2, appendix C).

    c^Q         = norm(x W^DQ)                              q_a
    [q^C ; q^R] = c^Q [W^UQ ; W^QR],  q^R rotated           q_b
    [c^KV; k^R] = x [W^DKV ; W^KR],   c^KV normed, k^R rotated   kv_a      <- this is what is cached
    o           = attention                                 q_absorb, core, v_up
    u           = o W^O                                     o_proj

Every partition of the block is built from these five functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mlaplan.kernel import core
from mlaplan.kernel.arithmetic import EXACT, Arithmetic
from mlaplan.kernel.norm import rms_norm
from mlaplan.kernel.rope import INTERLEAVED, RopeTables, rotate
from mlaplan.kernel.visibility import step_positions
from mlaplan.kernel.weights import Weights


@dataclass(frozen=True, slots=True)
class Setting:
    """What a block computes with besides its weights."""

    scale: float  # of the logits, see rope.logit_scale
    rope: RopeTables
    how: Arithmetic = EXACT
    store: Callable[[np.ndarray], np.ndarray] | None = None  # rounding of the rows written to the cache


def step(
    x: np.ndarray, past: Sequence[np.ndarray], weights: Weights, setting: Setting, expand: bool = False
) -> tuple[np.ndarray, list[np.ndarray]]:
    """One forward pass of q_len new tokens for each of B sequences with caches of any lengths.

    x [B, q_len, d], past B x [T_b, d_c + d_h^R] -> u [B, q_len, d], caches B x [T_b + q_len, d_c + d_h^R].
    A prefill is a step onto empty caches. expand=True is the naive core, False the absorbed one.
    """
    at = [step_positions(len(rows), x.shape[1]) for rows in past]
    c_q = query_latents(x, weights, setting)
    q = queries(c_q, at, weights, setting)
    new = cache_rows(x, at, weights, setting)
    caches = [np.concatenate([old, rows]) for old, rows in zip(past, new, strict=True)]
    if expand:
        o = np.stack(
            [
                core.naive(q[b], caches[b], weights, setting.scale, at[b], np.arange(len(caches[b])), setting.how).out
                for b in range(len(caches))
            ]
        )
    else:
        q_latent = absorb(q, weights, setting)
        o_latent = np.stack(
            [
                core.absorbed(
                    q_latent[b],
                    caches[b],
                    weights.w_uk.shape[2],
                    setting.scale,
                    at[b],
                    np.arange(len(caches[b])),
                    setting.how,
                ).out
                for b in range(len(caches))
            ]
        )
        o = expand_output(o_latent, weights, setting)
    return output(o, weights, setting), caches


def query_latents(x: np.ndarray, weights: Weights, setting: Setting) -> np.ndarray:
    """c^Q = norm(x W^DQ), or x itself in a model without query compression. [B, q_len, d_c' or d]"""
    if weights.w_dq is None or weights.q_norm is None:
        return x
    return rms_norm(setting.how.product("q_a", x, weights.w_dq), weights.q_norm, weights.norm_eps)


def queries(c_q: np.ndarray, positions: Sequence[np.ndarray], weights: Weights, setting: Setting) -> np.ndarray:
    """[q^C ; q^R] = c^Q [W^UQ ; W^QR] with q^R rotated. [B, q_len, n_h, d_h + d_h^R]"""
    inputs, heads, width = weights.w_uq.shape
    q = setting.how.product("q_b", c_q, weights.w_uq.reshape(inputs, heads * width))
    q = q.reshape(*c_q.shape[:2], heads, width)
    d_h = weights.w_uk.shape[1]
    for b, at in enumerate(positions):
        by_head = np.moveaxis(q[b, :, :, d_h:], 1, 0)  # [n_h, q_len, d_h^R]
        q[b, :, :, d_h:] = np.moveaxis(rotate(by_head, setting.rope, at, INTERLEAVED), 0, 1)
    return q


def cache_rows(x: np.ndarray, positions: Sequence[np.ndarray], weights: Weights, setting: Setting) -> np.ndarray:
    """The rows to cache: [norm(x W^DKV) ; rotated x W^KR]. [B, q_len, d_c + d_h^R]"""
    rows = setting.how.product("kv_a", x, weights.w_dkv)
    d_c = len(weights.kv_norm)
    rows[..., :d_c] = rms_norm(rows[..., :d_c], weights.kv_norm, weights.norm_eps)
    for b, at in enumerate(positions):
        rows[b, :, d_c:] = rotate(rows[b, :, d_c:], setting.rope, at, INTERLEAVED)
    return rows if setting.store is None else setting.store(rows)


def absorb(q: np.ndarray, weights: Weights, setting: Setting) -> np.ndarray:
    """[q^C ; q^R] -> [W^UK^T q^C ; q^R]: queries that meet the latent itself. [B, q_len, n_h, d_c + d_h^R]"""
    batch, q_len, heads, _ = q.shape
    d_h, d_c = weights.w_uk.shape[1:]
    by_head = np.moveaxis(q[..., :d_h], 2, 0).reshape(heads, batch * q_len, d_h)
    latent = setting.how.product("q_absorb", by_head, weights.w_uk)  # [n_h, B q_len, d_c]
    latent = np.moveaxis(latent.reshape(heads, batch, q_len, d_c), 0, 2)
    return np.concatenate([latent, q[..., d_h:]], axis=-1)


def expand_output(o_latent: np.ndarray, weights: Weights, setting: Setting) -> np.ndarray:
    """o = W^UV o_latent per head: [B, q_len, n_h, d_c] -> [B, q_len, n_h, d_v]."""
    batch, q_len, heads, d_c = o_latent.shape
    by_head = np.moveaxis(o_latent, 2, 0).reshape(heads, batch * q_len, d_c)
    o = setting.how.product("v_up", by_head, np.swapaxes(weights.w_uv, 1, 2))  # [n_h, B q_len, d_v]
    return np.moveaxis(o.reshape(heads, batch, q_len, weights.w_uv.shape[1]), 0, 2)


def output(o: np.ndarray, weights: Weights, setting: Setting) -> np.ndarray:
    """u = sum over heads of o_h W^O_h: [B, q_len, n_h, d_v] -> [B, q_len, d]."""
    heads, d_v, d = weights.w_o.shape
    flat = o.reshape(*o.shape[:2], heads * d_v)
    return setting.how.product("o_proj", flat, weights.w_o.reshape(heads * d_v, d))
