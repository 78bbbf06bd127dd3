"""The block against a transcription of the paper's equations, token by token and head by head.

DeepSeek-V2, arXiv:2405.04434, eq. 9 to 19 and appendix C, in plain loops that share no code with the package.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.kernel import block
from mlaplan.kernel.rope import Yarn, logit_scale, rope_tables
from mlaplan.kernel.shapes import DEEPSEEK_V3, Shapes
from mlaplan.kernel.weights import random_weights

from .cases import SMALL, assert_same

PLAIN = replace(SMALL, q_lora_rank=None)


def rms(x, weight):
    return np.array([v / np.sqrt(sum(x * x) / len(x) + 1e-6) * w for v, w in zip(x, weight, strict=True)])


def turned(x, position, theta):
    """R_t x: each adjacent pair as a complex number, times e^(i t theta^(-2j/n))."""
    out = []
    for j in range(len(x) // 2):
        z = complex(x[2 * j], x[2 * j + 1]) * np.exp(1j * position * theta ** (-2 * j / len(x)))
        out += [z.real, z.imag]
    return np.array(out)


def paper(x, w, s: Shapes, theta: float) -> np.ndarray:
    """Outputs u_t of one sequence from its hidden states h_t. [T, d] -> [T, d]"""
    keys, values, outputs = [], [], []
    for t, h in enumerate(x):
        down = h @ w.w_dkv
        c_kv = rms(down[: s.kv_lora_rank], w.kv_norm)
        k_rope = turned(down[s.kv_lora_rank :], t, theta)
        keys.append([np.concatenate([w.w_uk[i] @ c_kv, k_rope]) for i in range(s.heads)])
        values.append([w.w_uv[i] @ c_kv for i in range(s.heads)])
        c_q = h if w.w_dq is None else rms(h @ w.w_dq, w.q_norm)
        u = np.zeros(s.hidden_size)
        for i in range(s.heads):
            q = c_q @ w.w_uq[:, i]
            q = np.concatenate([q[: s.qk_nope_head_dim], turned(q[s.qk_nope_head_dim :], t, theta)])
            logits = np.array([q @ keys[j][i] / np.sqrt(s.qk_head_dim) for j in range(t + 1)])
            p = np.exp(logits - logits.max())
            o = sum(p[j] / p.sum() * values[j][i] for j in range(t + 1))
            u += o @ w.w_o[i]
        outputs.append(u)
    return np.array(outputs)


@settings(max_examples=15)
@given(
    shapes=st.sampled_from([SMALL, PLAIN]),
    tokens=st.integers(1, 7),
    first=st.integers(0, 7),
    theta=st.sampled_from([10000.0, 50000.0]),
    expand=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_prefill_and_a_step_are_the_papers_equations(shapes, tokens, first, theta, expand, seed):
    rng = np.random.default_rng(seed)
    weights = random_weights(shapes, rng, logit_std=3.0)
    x = rng.standard_normal((1, tokens, shapes.hidden_size))
    setting = block.Setting(logit_scale(shapes.qk_head_dim), rope_tables(tokens, shapes.qk_rope_head_dim, theta))
    first = min(first, tokens)
    before, caches = block.step(x[:, :first], [np.zeros((0, shapes.cache_dim))], weights, setting, expand)
    after, caches = block.step(x[:, first:], caches, weights, setting, expand)
    assert_same(np.concatenate([before, after], axis=1)[0], paper(x[0], weights, shapes, theta))
    assert caches[0].shape == (tokens, shapes.cache_dim)


def test_sequences_of_a_batch_do_not_meet():
    rng = np.random.default_rng(0)
    weights = random_weights(SMALL, rng, logit_std=3.0)
    setting = block.Setting(logit_scale(24), rope_tables(20, 8))
    x = rng.standard_normal((3, 5, SMALL.hidden_size))
    together, _ = block.step(x, [np.zeros((0, 40))] * 3, weights, setting)
    for b in range(3):
        assert_same(together[b], paper(x[b], weights, SMALL, 10000.0))


def test_the_scale_and_yarn_enter_where_they_should():
    """mscale squared on the logits, slower rotations in the tables, and nothing else."""
    rng = np.random.default_rng(1)
    weights = random_weights(SMALL, rng)
    x = rng.standard_normal((1, 30, SMALL.hidden_size))
    yarn, nothing = Yarn(factor=40.0, original_positions=16), [np.zeros((0, 40))]
    yarned = block.Setting(logit_scale(24, yarn), rope_tables(30, 8, yarn=yarn))
    u, _ = block.step(x, nothing, weights, yarned)
    stretched = replace(weights, w_uq=weights.w_uq * (logit_scale(24, yarn) * 24**0.5))
    same, _ = block.step(x, nothing, stretched, block.Setting(24**-0.5, yarned.rope))
    assert_same(u, same)
    plain, _ = block.step(x, nothing, stretched, block.Setting(24**-0.5, rope_tables(30, 8)))
    assert np.abs(u - plain).max() > 1e-3


def test_widths_of_v3():
    assert DEEPSEEK_V3.cache_dim == 576
    assert DEEPSEEK_V3.qk_head_dim == 192
    assert DEEPSEEK_V3.query_input == 1536
    assert replace(DEEPSEEK_V3, q_lora_rank=None).query_input == 7168


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_dtype_of_the_input_is_kept(dtype):
    rng = np.random.default_rng(2)
    weights = random_weights(SMALL, rng, dtype)
    setting = block.Setting(24**-0.5, rope_tables(9, 8))
    x = rng.standard_normal((1, 4, SMALL.hidden_size)).astype(dtype)
    u, caches = block.step(x, [np.zeros((5, 40), dtype)], weights, setting)
    assert u.dtype == caches[0].dtype == dtype
