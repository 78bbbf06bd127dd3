"""The ways to compute one case that `verify` compares, each as (name, result, reference, bytes)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mlaplan.kernel import block, composed, core, sparse
from mlaplan.kernel.case import Case
from mlaplan.kernel.composed import Layout
from mlaplan.kernel.online import cut, streamed
from mlaplan.kernel.paging import BlockPool
from mlaplan.kernel.paging import Sequence as PagedSequence
from mlaplan.kernel.partial import Partial, merge
from mlaplan.kernel.pipeline_parallel import Layer
from mlaplan.kernel.query_chunks import chunk_bounds
from mlaplan.kernel.staging import stream_through_staging
from mlaplan.kernel.traffic import ALL_TO_ALL, GATHER_SCATTER, LATENT_SHARDED, SEQUENCE_SHARDED
from mlaplan.kernel.visibility import step_positions, visible

CoreFunction = Callable[[np.ndarray, np.ndarray, np.ndarray], Partial]


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    got: np.ndarray
    reference: np.ndarray
    sent_bytes: float = 0.0  # counted, all ranks together
    expected_bytes: float = 0.0  # by closed form


def with_core(case: Case, attend: CoreFunction) -> np.ndarray:
    """The block around another absorbed core: attend(q_latent, cache, query positions) of one sequence."""
    weights, setting = case.weights, case.setting
    at = [step_positions(length, case.x.shape[1]) for length in case.lengths]
    q = block.queries(block.query_latents(case.x, weights, setting), at, weights, setting)
    q_latent = block.absorb(q, weights, setting)
    new = block.cache_rows(case.x, at, weights, setting)
    caches = [np.concatenate(pair) for pair in zip(case.caches, new, strict=True)]
    done = [attend(q_latent[b], caches[b], at[b]).out for b in range(len(caches))]
    return block.output(block.expand_output(np.stack(done), weights, setting), weights, setting)


def one_rank(case: Case, slice_tokens: int, block_sizes: Sequence[int], seed: int) -> Iterator[Outcome]:
    """Naive, absorbed, streamed, split, staged, chunked, paged, and token by token."""
    rng = np.random.default_rng(seed)
    d_c, scale = case.shapes.kv_lora_rank, case.setting.scale

    def shuffled(cache: np.ndarray) -> list:
        slices = cut(cache, slice_tokens)
        return [slices[i] for i in rng.permutation(len(slices))]

    def stream(q: np.ndarray, cache: np.ndarray, at: np.ndarray) -> Partial:
        return streamed(q, shuffled(cache), d_c, scale, at)

    def split(q: np.ndarray, cache: np.ndarray, at: np.ndarray) -> Partial:
        slices = shuffled(cache)
        return merge(streamed(q, slices[worker::4], d_c, scale, at) for worker in range(4))

    def stage(q: np.ndarray, cache: np.ndarray, at: np.ndarray) -> Partial:
        slices = cut(cache, slice_tokens)
        arrival = rng.permutation(len(slices)).tolist()
        return stream_through_staging(q, slices, arrival, d_c, scale, at, depth=2, workers=3, q_chunk=1)

    def chunk(q: np.ndarray, cache: np.ndarray, at: np.ndarray) -> Partial:
        spans = chunk_bounds(len(q), 1)
        parts = [core.absorbed(q[a:b], cache, d_c, scale, at[a:b], np.arange(len(cache))) for a, b in spans]
        return Partial(np.concatenate([p.out for p in parts]), np.concatenate([p.lse for p in parts]))

    yield Outcome("naive", block.step(case.x, case.caches, case.weights, case.setting, expand=True)[0], case.reference)
    yield Outcome("absorbed", block.step(case.x, case.caches, case.weights, case.setting)[0], case.reference)
    yield Outcome(f"streamed, shuffled slices of {slice_tokens}", with_core(case, stream), case.reference)
    yield Outcome("split KV, merged by LSE", with_core(case, split), case.reference)
    yield Outcome("staged, 2 buffers, 3 threads", with_core(case, stage), case.reference)
    yield Outcome("query chunks of 1", with_core(case, chunk), case.reference)
    for block_size in block_sizes:
        got = with_core(case, paged(block_size, d_c, scale, rng))
        yield Outcome(f"paged, shuffled blocks of {block_size}", got, case.reference)
    if case.x.shape[1] > 1:
        yield Outcome("token by token", one_by_one(case), case.reference)


def paged(block_size: int, d_c: int, scale: float, rng: np.random.Generator) -> CoreFunction:
    """Through a shuffled pool, half of the rows in blocks shared with another sequence."""

    def attend(q: np.ndarray, cache: np.ndarray, at: np.ndarray) -> Partial:
        blocks = 2 * -(-len(cache) // block_size) + 2
        pool = BlockPool(blocks, block_size, cache.shape[1], cache.dtype, rng.permutation(blocks))
        parent = PagedSequence()
        pool.append(parent, cache[: len(cache) // 2])
        child = pool.fork(parent, parent.length)
        pool.append(child, cache[len(cache) // 2 :])
        return streamed(q, pool.slices(child), d_c, scale, at)

    return attend


def one_by_one(case: Case) -> np.ndarray:
    """The tokens of the step decoded one after the other."""
    caches, outputs = case.caches, []
    for j in range(case.x.shape[1]):
        u, caches = block.step(case.x[:, j : j + 1], caches, case.weights, case.setting)
        outputs.append(u)
    return np.concatenate(outputs, axis=1)


def layouts(case: Case, ranks: Sequence[int], interleaves: Sequence[int]) -> list[Layout]:
    """Every partition on its own, for the rank counts that divide heads, latent and rope columns."""
    found = []
    for n in ranks:
        if case.shapes.heads % n:
            continue
        found.append(Layout(tp=n))
        for index, interleave in enumerate(interleaves):
            exchange = (GATHER_SCATTER, ALL_TO_ALL)[index % 2]
            found.append(Layout(n, kv_layout=SEQUENCE_SHARDED, dcp=n, interleave=interleave, exchange=exchange))
        if case.shapes.kv_lora_rank % n == 0 and case.shapes.qk_rope_head_dim % n == 0:
            found.append(Layout(n, kv_layout=LATENT_SHARDED))
    found.append(Layout(dp=min(2, len(case.x))))
    found.append(Layout(pp=2))
    return found


def partitioned(case: Case, layout: Layout, reference: np.ndarray) -> Outcome:
    """One layout of the block; with pp > 1 of that many layers, as in case.layers_reference."""
    setting, ledger = case.counted()
    if layout.pp == 1:
        got = composed.attention(case.x, case.caches, case.weights, setting, layout)
    else:
        norm = np.ones(case.shapes.hidden_size, case.x.dtype)
        layers = [Layer(norm, case.weights, case.caches)] * layout.pp
        got = composed.step(case.x, layers, setting, layout) - case.x
    expected = composed.expected_total_bytes(case.shapes, layout, layout.pp, case.lengths, case.x.shape[1])
    return Outcome(layout.text(), got, reference, ledger.total_bytes(), expected)


def sparse_selection(case: Case, top_k: int, ranks: int, seed: int) -> Iterator[Outcome]:
    """A selection of everything against dense; a selection made on ranks against the same made on one."""
    d_c, scale = case.shapes.kv_lora_rank, case.setting.scale

    def scores(q: np.ndarray, cache: np.ndarray) -> np.ndarray:
        return np.random.default_rng([seed, len(cache)]).standard_normal((len(q), len(cache)))

    def on_one_rank(k: int) -> CoreFunction:
        def attend(q: np.ndarray, cache: np.ndarray, at: np.ndarray) -> Partial:
            ids = sparse.select(scores(q, cache), visible(at, np.arange(len(cache))), k)
            return sparse.sparse_absorbed(q, cache, ids, d_c, scale)

        return attend

    def on_ranks(q: np.ndarray, cache: np.ndarray, at: np.ndarray) -> Partial:
        positions = [np.arange(len(cache))[rank::ranks] for rank in range(ranks)]
        whole = scores(q, cache)
        ids = sparse.select_sharded([whole[:, p] for p in positions], positions, at, top_k)
        return merge(sparse.sparse_absorbed(q, cache[p], sparse.to_local(ids, p), d_c, scale) for p in positions)

    longest = max(case.lengths) + case.x.shape[1]
    dense = with_core(case, on_one_rank(longest))
    yield Outcome("sparse, k = context, against dense", dense, case.reference)
    whole = with_core(case, on_one_rank(top_k))
    yield Outcome(f"sparse, k = {top_k}, selected on {ranks} ranks", with_core(case, on_ranks), whole)
