"""Dense blocks and both ends of the model, by hand."""

import pytest

from mlaplan.costs import dense

from . import round as r

ROUND = r.model()


def test_a_block_by_hand():
    ops = r.named(dense.ffn_ops(r.machine(ROUND), ROUND.ffn["f"], 32, 4, 1))
    # 500 of 2000 columns
    assert ops["dense_gate_up"].flops == 2 * 32 * 1000 * 1000
    assert ops["dense_activation"].bytes == 3 * 32 * 500 * 2
    assert ops["dense_down"].flops == 2 * 32 * 500 * 1000
    assert ops["dense_all_reduce"].link_bytes == 2 * 3 / 4 * 64_000
    assert ops["ffn_norm"].bytes == 4 * 64_000
    assert not {"dense_token_gather", "dense_token_scatter"} & set(ops)


def test_divided_tokens_are_gathered_and_scattered_instead():
    ops = r.named(dense.ffn_ops(r.machine(ROUND), ROUND.ffn["f"], 32, 4, 4))
    assert ops["dense_all_reduce"].time_s == 0
    assert ops["dense_token_gather"].link_bytes == ops["dense_token_scatter"].link_bytes == 3 / 4 * 64_000
    assert ops["ffn_norm"].bytes == 64_000


def test_the_embedding_by_hand():
    ops = r.named(dense.embedding_ops(r.machine(ROUND), 32, 2))
    assert ops["embedding"].bytes == 2 * 64_000
    # V = 2 x 1/2 x 64 kB: 5 us + 64 kB / 100 GB/s
    assert ops["embedding_all_reduce"].time_s == pytest.approx(5e-6 + 0.64e-6, rel=1e-14)


def test_the_head_by_hand():
    ops = r.named(dense.head_ops(r.machine(ROUND), 32, 2))
    # half of 10,000 rows of the vocabulary, in the checkpoint's 16 bit
    assert ops["lm_head"].bytes == 5000 * 1000 * 2 + 32 * 1000 * 2 + 32 * 5000 * 2
    assert ops["logits_gather"].link_bytes == 32 * 10_000 * 2 / 2
    assert ops["sampling"].bytes == 32 * 10_000 * 4


def test_a_drafts_projection_reads_hidden_state_and_embedding():
    op = dense.mtp_projection(r.machine(ROUND), 16)
    assert op.flops == 2 * 16 * 2000 * 1000
