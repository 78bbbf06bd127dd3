"""The library behind `mlaplan verify`: all variants agree, bytes match, and a broken variant is found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.kernel import composed, context_parallel, latent_parallel, online, traffic, variants
from mlaplan.kernel import verify as verify_module
from mlaplan.kernel.cache_error import cache_errors
from mlaplan.kernel.case import layers_reference, random_case
from mlaplan.kernel.composed import Layout
from mlaplan.kernel.partial import Partial
from mlaplan.kernel.rope import Yarn
from mlaplan.kernel.shapes import DEEPSEEK_V3
from mlaplan.kernel.tolerance import FP64, difference
from mlaplan.kernel.traffic import ALL_TO_ALL, GATHER_SCATTER, LATENT_SHARDED, SEQUENCE_SHARDED
from mlaplan.kernel.verify import AGREES, BYTES_DIFFER, DIFFERS, MEASURED, reduced, verify

from .cases import SMALL

QUICK = {"context": 70, "ranks": (2, 4), "interleaves": (1, 16), "block_sizes": (16,), "slice_tokens": 16}


@pytest.mark.parametrize("dtype", ["fp64", "fp32"])
@pytest.mark.parametrize("q_len", [1, 3])
def test_all_variants_of_a_small_block_agree(dtype, q_len):
    rows = verify(SMALL, dtype=dtype, q_len=q_len, batch=3, top_k=2048, yarn=Yarn(), **QUICK)
    assert [r.variant for r in rows if r.verdict != AGREES] == []
    names = " ".join(r.variant for r in rows)
    kinds = "naive absorbed streamed split staged paged tp2 dcp4 latent-sharded dp2 pp2 sparse"
    for wanted in kinds.split():
        assert wanted in names
    assert ("token by token" in names) == (q_len > 1)
    assert all(r.sent_bytes > 0 for r in rows if r.variant.startswith(("tp", "pp")))


def test_reduced_v3_shapes_agree():
    shapes = reduced(DEEPSEEK_V3, hidden_size=64, q_lora_rank=32)
    assert (shapes.heads, shapes.cache_dim, shapes.hidden_size) == (128, 576, 64)
    rows = verify(shapes, context=40, ranks=(8,), interleaves=(1,), block_sizes=(64,), only=[Layout(8)])
    assert all(r.ok for r in rows)


def test_a_rounded_cache_agrees_with_itself_and_its_cost_is_measured():
    rows = verify(SMALL, kv_dtype="fp8_ds_mla", **QUICK)
    measured = [r for r in rows if r.verdict == MEASURED]
    assert [r.variant.split()[0] for r in measured] == ["bf16", "fp8_ds_mla"]
    assert measured[1].relative > measured[0].relative > 1e-4
    assert all(r.verdict == AGREES for r in rows if r not in measured)
    assert all(r.tolerance is None for r in measured)


def test_a_broken_variant_is_found(monkeypatch):
    """Slices averaged instead of merged; the partitions that do not stream still agree."""

    def averaged(parts):
        parts = list(parts)
        return Partial(np.mean([p.out for p in parts], axis=0), parts[0].lse)

    monkeypatch.setattr(variants, "merge", averaged)
    wrong = {r.variant for r in verify(SMALL, **QUICK) if not r.ok}
    assert wrong == {"split KV, merged by LSE"}


def test_a_missing_rescale_is_found(monkeypatch):
    right = online.absorb_slice

    def without_rescale(state, *arguments):
        before = state.total.copy(), state.accumulator.copy()
        fresh = online.start(len(state.total), state.accumulator.shape[1], state.total.dtype)
        right(fresh, *arguments)
        state.total[:] = before[0] + fresh.total
        state.accumulator[:] = before[1] + fresh.accumulator
        state.maximum[:] = np.maximum(state.maximum, fresh.maximum)

    monkeypatch.setattr(online, "absorb_slice", without_rescale)
    wrong = [r.variant for r in verify(SMALL, **QUICK) if r.verdict == DIFFERS]
    assert any(name.startswith("streamed") for name in wrong)
    assert any(name.startswith("paged") for name in wrong)
    assert not any(name.startswith("tp") for name in wrong)


def test_bytes_that_are_not_the_closed_form_are_found(monkeypatch):
    monkeypatch.setattr(traffic, "query_gather_bytes", lambda *_: 12345.0)
    wrong = [r for r in verify(SMALL, **QUICK) if r.verdict == BYTES_DIFFER]
    assert wrong
    assert all("dcp" in r.variant for r in wrong)


def test_reference_layers_of_one_is_the_reference():
    case = random_case(SMALL, 40, batch=2)
    assert difference(layers_reference(case, 2), case.reference).relative > 0.1
    with pytest.raises(ValueError, match="at least 1"):
        random_case(SMALL, 0)


@settings(max_examples=40)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    dcp_share=st.sampled_from([1, 2, 4]),
    dp=st.integers(1, 3),
    pp=st.integers(1, 3),
    kv_layout=st.sampled_from([traffic.REPLICATED, LATENT_SHARDED, SEQUENCE_SHARDED]),
    interleave=st.sampled_from([1, 3, 16]),
    exchange=st.sampled_from([GATHER_SCATTER, ALL_TO_ALL]),
    q_len=st.integers(1, 3),
    batch=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_composition_agrees_and_its_bytes_are_the_closed_form(
    tp, dcp_share, dp, pp, kv_layout, interleave, exchange, q_len, batch, seed
):
    dcp = max(tp // dcp_share, 1) if kv_layout == SEQUENCE_SHARDED else 1
    layout = Layout(tp, dp, pp, kv_layout, dcp, interleave, exchange)
    case = random_case(SMALL, 33, batch, q_len, seed=seed)
    reference = case.reference if pp == 1 else layers_reference(case, pp)
    outcome = variants.partitioned(case, layout, reference)
    assert difference(outcome.got, outcome.reference).relative <= FP64
    assert outcome.sent_bytes == pytest.approx(outcome.expected_bytes)


def test_per_rank_bytes_by_name_are_what_a_group_sends():
    """layer_sent_bytes is the table that a cost model compares with: names, and bytes of one rank."""
    case = random_case(SMALL, 60, batch=3, q_len=2)
    tokens = sum(case.lengths) + 3 * 2
    for step, split, arguments in (
        (context_parallel.step, context_parallel.split, (4, 2)),
        (latent_parallel.step, latent_parallel.split, (4,)),
    ):
        setting, ledger = case.counted()
        step(case.x, split(case.weights, case.caches, *arguments), setting)
        sequence = step is context_parallel.step
        expected = traffic.layer_sent_bytes(
            SMALL, 3, 2, tokens, 4, SEQUENCE_SHARDED if sequence else LATENT_SHARDED, 4 if sequence else 1
        )
        assert {t.name for t in ledger.transfers} == set(expected)
        assert {name: ledger.sent_bytes(name) for name in expected} == pytest.approx(expected)


def test_bytes_of_v3_by_hand():
    """128 sequences of 4096 tokens on 8 ranks, bf16 activations; fp32 scores, partial outputs and log-sum-exps."""
    sent = traffic.layer_sent_bytes(DEEPSEEK_V3, 128, 1, 128 * 4096, 8, SEQUENCE_SHARDED, 8)
    assert sent["query_gather"] == 7 / 8 * 128 * 128 * 576 * 2
    assert sent["output_scatter"] == 7 / 8 * 128 * 128 * 512 * 4
    halved = traffic.Widths(partial_output=2.0)
    sent16 = traffic.layer_sent_bytes(DEEPSEEK_V3, 128, 1, 128 * 4096, 8, SEQUENCE_SHARDED, 8, w=halved)
    assert sent16["output_scatter"] == 7 / 8 * 128 * 128 * 512 * 2
    assert sent["lse_gather"] == 7 * 128 * 128 * 4
    assert sent["o_proj"] == 2 * 7 / 8 * 128 * 7168 * 2
    latent = traffic.layer_sent_bytes(DEEPSEEK_V3, 128, 1, 128 * 4096, 8, LATENT_SHARDED)
    assert latent["latent_score_all_reduce"] == 2 * 7 / 8 * 128 * 128 * 4096 * 4
    assert latent["latent_query_exchange"] == 7 / 8 * 128 * 16 * 576 * 2
    assert traffic.layer_sent_bytes(DEEPSEEK_V3, 128, 1, 128 * 4096, 8) == {"o_proj": sent["o_proj"]}
    assert traffic.layer_sent_bytes(DEEPSEEK_V3, 128, 1, 128 * 4096, 1) == {}


def test_a_layout_names_itself_and_refuses_an_unknown_cache_layout():
    assert Layout().text() == "one rank"
    assert Layout(4, 2, 2).text() == "tp4 dp2 pp2"
    assert Layout(4, kv_layout=LATENT_SHARDED).text() == "tp4 latent-sharded"
    assert Layout(4, 2, 2).ranks == 16
    case = random_case(SMALL, 10)
    with pytest.raises(ValueError, match="no such kv layout"):
        composed.attention(case.x, case.caches, case.weights, case.setting, Layout(2, kv_layout="scattered"))


def test_cache_errors_are_ordered_by_format_and_use_one_random_cache():
    errors = cache_errors(SMALL, [64, 256], ["fp16", "bf16", "fp8_e4m3"])
    assert [(e.context, e.cache_format) for e in errors][:2] == [(64, "fp16"), (64, "bf16")]
    for context in (64, 256):
        by_format = [e.relative for e in errors if e.context == context]
        assert by_format == sorted(by_format)
    assert verify_module.cache_rows(SMALL, 64, "bf16", 4.0, 0)[0].verdict == MEASURED
