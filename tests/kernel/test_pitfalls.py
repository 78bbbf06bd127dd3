"""The known ways to get streamed attention wrong, each shown to fail, and by how much."""

import numpy as np
import pytest

from mlaplan.kernel import core
from mlaplan.kernel.online import cut, streamed
from mlaplan.kernel.partial import Partial, merge, merge_in_order
from mlaplan.kernel.query_chunks import InOrder
from mlaplan.kernel.tolerance import FP64, difference

from .cases import random_core


def slices_of(std: float, count: int, keys: int = 512) -> tuple[list[Partial], Partial]:
    q, cache, scale = random_core(0, 1, 16, keys, logit_std=std)
    parts = [core.absorbed(q, part, 32, scale) for part in np.split(cache, count)]
    return parts, core.absorbed(q, cache, 32, scale)


@pytest.mark.parametrize("count", [2, 8, 64])
def test_a_plain_softmax_per_slice_is_wrong_however_it_is_summed(count):
    """Each slice normalised by itself, then averaged: far off at the logits of a real model."""
    parts, whole = slices_of(4.0, count)
    averaged = np.mean([p.out for p in parts], axis=0)
    assert difference(averaged, whole.out).relative > 0.2
    assert difference(merge(parts).out, whole.out).relative <= FP64


def test_bland_inputs_hide_that_mistake():
    """Logits of std 0.01, as in a public kernel test: an average passes at 1e-2. Hence std 1 to 8."""
    bland_parts, bland = slices_of(0.01, 2)
    assert difference(np.mean([p.out for p in bland_parts], axis=0), bland.out).relative < 1e-2
    parts, whole = slices_of(1.0, 2)
    assert difference(np.mean([p.out for p in parts], axis=0), whole.out).relative > 1e-2


def test_an_accumulator_that_is_not_rescaled_is_wrong_once_a_later_slice_raises_the_maximum():
    q, cache, scale = random_core(1, 1, 8, 256)
    whole = core.absorbed(q, cache, 32, scale)
    top, total, acc = np.full(8, -np.inf), np.zeros(8), np.zeros((8, 32))
    for kv in cut(cache, 32):
        logits = scale * q[0] @ kv.rows.T
        top = np.maximum(top, logits.max(axis=1))
        p = np.exp(logits - top[:, None])  # relative to the new maximum; what was summed before is not
        total, acc = total + p.sum(axis=1), acc + p @ kv.rows[:, :32]
    assert difference(acc / total[:, None], whole.out[0]).relative > 0.1
    assert difference(streamed(q, cut(cache, 32), 32, scale, np.array([255])).out, whole.out).relative <= FP64


def test_merging_with_base_2_sums_as_natural_ones_shifts_the_weights():
    parts, whole = slices_of(4.0, 4)
    mixed = [Partial(p.out, p.lse / np.log(2)) for p in parts]
    assert difference(merge(mixed).out, whole.out).relative > 0.02


def test_exponentials_without_a_maximum_overflow():
    q, cache, scale = random_core(2, 1, 4, 32, logit_std=300)
    with np.errstate(over="ignore", invalid="ignore"):
        p = np.exp((scale * q[0] @ cache.T).astype(np.float32))
        naive = p @ cache[:, :32] / p.sum(axis=1, keepdims=True)
    assert not np.isfinite(naive).all()
    assert np.isfinite(core.absorbed(q.astype(np.float32), cache.astype(np.float32), 32, scale).out).all()


@pytest.mark.parametrize("place", ["first", "last"])
def test_an_unguarded_online_softmax_turns_a_masked_slice_into_nan(place):
    """exp(-inf - -inf): for every row if the masked slice is first, for none of these rows if it is last."""
    q, cache, scale = random_core(3, 1, 4, 32)
    logits = [scale * q[0] @ cache.T, np.full((4, 32), -np.inf)]
    top, total = np.full(4, -np.inf), np.zeros(4)
    with np.errstate(invalid="ignore"):
        for block in logits[:: -1 if place == "first" else 1]:
            higher = np.maximum(top, block.max(axis=1))
            total = total * np.exp(top - higher) + np.exp(block - higher[:, None]).sum(axis=1)
            top = higher
    assert np.isnan(total).all() == (place == "first")


def test_an_uninitialised_empty_partial_poisons_a_merge_that_multiplies_by_zero():
    parts, whole = slices_of(4.0, 2)
    garbage = Partial(np.full_like(whole.out, np.nan), np.full_like(whole.lse, -np.inf))
    everything = [*parts, garbage]
    weights = [np.exp(p.lse - whole.lse)[..., None] for p in everything]
    assert np.isnan(sum(w * p.out for w, p in zip(weights, everything, strict=True))).all()
    assert difference(merge(everything).out, whole.out).relative <= FP64


def test_a_finite_sentinel_for_masked_logits_returns_the_mean_of_the_values():
    """-1e30 instead of -inf: no NaN, but a fully masked row is the average of rows it must not see."""
    _, cache, _ = random_core(4, 1, 1, 16)
    p = np.exp(np.full(16, -1e30) - -1e30)
    assert np.allclose(p @ cache[:, :32] / p.sum(), cache[:, :32].mean(axis=0))
    hidden = core.absorbed(np.ones((1, 1, 40)), cache, 32, 1.0, np.array([0]), np.arange(1, 17))
    assert not hidden.out.any()


def test_results_written_as_they_come_pick_the_wrong_row():
    """Chunks of a step finish in the order 2, 0, 1; the next token is sampled from the last row."""
    q, cache, scale = random_core(5, 6, 4, 64)
    at, keys = np.arange(58, 64), np.arange(64)
    whole = core.absorbed(q, cache, 32, scale, at, keys)
    chunks = {i: core.absorbed(q[2 * i : 2 * i + 2], cache, 32, scale, at[2 * i : 2 * i + 2], keys) for i in range(3)}
    finished = [2, 0, 1]
    as_they_come = np.concatenate([chunks[i].out for i in finished])
    ordered = InOrder(3)
    for i in finished:
        ordered.put(i, chunks[i])
    assert difference(as_they_come[-1], whole.out[-1]).relative > 0.1
    assert difference(ordered.joined().out[-1], whole.out[-1]).relative <= FP64


def test_order_dependence_in_fp32_is_bounded_and_reported(record_property):
    """20 arrival orders of 64 slices: as far apart as fp32 is from fp64, and no further; fp64 far below."""
    q, cache, scale = random_core(6, 1, 16, 4096)
    rng = np.random.default_rng(0)
    orders = [rng.permutation(64) for _ in range(20)]

    def spread(dtype: type) -> tuple[float, float]:
        qd, slices = q.astype(dtype), cut(cache.astype(dtype), 64)
        at = np.array([4095])
        outs = [streamed(qd, [slices[i] for i in order], 32, scale, at).out for order in orders]
        exact = core.absorbed(q, cache, 32, scale).out
        largest = max(difference(o, outs[0]).relative for o in outs)
        return largest, max(difference(o, exact).relative for o in outs)

    spread32, error32 = spread(np.float32)
    spread64, _ = spread(np.float64)
    record_property("fp32_order_spread", spread32)
    record_property("fp64_order_spread", spread64)
    assert 0 < spread32 <= 1e-5
    assert spread32 <= 4 * error32
    assert spread64 <= 1e-13


def test_ordered_merge_removes_order_dependence_altogether():
    parts, _ = slices_of(4.0, 16)
    narrow = {i: Partial(p.out.astype(np.float32), p.lse.astype(np.float32)) for i, p in enumerate(parts)}
    rng = np.random.default_rng(1)
    arrivals = [rng.permutation(16) for _ in range(20)]
    unordered = {merge([narrow[i] for i in order]).out.tobytes() for order in arrivals}
    ordered = {merge_in_order({i: narrow[i] for i in order}).out.tobytes() for order in arrivals}
    assert len(unordered) > 1
    assert len(ordered) == 1
