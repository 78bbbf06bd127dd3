"""A verification step of q_len 2..4 equals decoding its tokens one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.kernel import block, context_parallel, latent_parallel, tensor_parallel

from .cases import assert_same, random_block, setting


@settings(max_examples=30)
@given(
    q_len=st.integers(2, 4),
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=3).map(tuple),
    expand=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_one_step_of_several_tokens_equals_several_steps(q_len, lengths, expand, seed):
    x, caches, weights = random_block(seed, lengths, q_len)
    env = setting()
    together, after = block.step(x, caches, weights, env, expand=expand)
    one_by_one, growing = [], caches
    for j in range(q_len):
        u, growing = block.step(x[:, j : j + 1], growing, weights, env)
        one_by_one.append(u)
    got = np.moveaxis(together, 1, 0)  # so that each position is compared on its own
    assert_same(got, np.moveaxis(np.concatenate(one_by_one, axis=1), 1, 0))
    assert all(np.allclose(a, g, rtol=0, atol=1e-13) for a, g in zip(after, growing, strict=True))


@settings(max_examples=15)
@given(q_len=st.integers(2, 4), interleave=st.sampled_from([1, 2, 16]), seed=st.integers(0, 2**32 - 1))
def test_the_same_on_context_parallel_ranks(q_len, interleave, seed):
    x, caches, weights = random_block(seed, (17, 1), q_len)
    env = setting()
    together, _ = context_parallel.step(x, context_parallel.split(weights, caches, 4, interleave), env)
    group = context_parallel.split(weights, caches, 4, interleave)
    for j in range(q_len):
        u, group = context_parallel.step(x[:, j : j + 1], group, env)
        assert_same(together[:, j], u[:, 0])


def test_a_prefill_is_a_step_onto_empty_caches():
    x, _, weights = random_block(0, (0, 0), 40)
    env = setting()
    empty = [np.zeros((0, 40)), np.zeros((0, 40))]
    whole, caches = block.step(x, empty, weights, env)
    first, half = block.step(x[:, :25], empty, weights, env, expand=True)
    second, chunked = block.step(x[:, 25:], half, weights, env)
    assert_same(np.concatenate([first, second], axis=1), whole)
    assert all(np.allclose(a, b, rtol=0, atol=1e-13) for a, b in zip(caches, chunked, strict=True))


@pytest.mark.parametrize("step", [tensor_parallel.step, latent_parallel.step])
def test_rejected_drafts_leave_no_trace(step):
    """Drop the rows of rejected tokens from every cache, and go on as if they had never been."""
    x, caches, weights = random_block(3, (20,), 4)
    env = setting()
    module = tensor_parallel if step is tensor_parallel.step else latent_parallel
    group = module.split(weights, caches, 2)
    step(x, group, env)  # ranks are values: the old ones still hold the accepted prefix
    u, _ = step(x[:, :1], group, env)
    assert_same(u, block.step(x[:, :1], caches, weights, env)[0])
