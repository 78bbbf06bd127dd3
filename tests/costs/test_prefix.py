"""Shared prefixes: what a cache stores once, by hand first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlaplan.costs import prefix
from mlaplan.costs.prefix import Shared


def row(**over: int) -> dict[str, int]:
    return {"block_size": 16, "dcp": 1, "dp": 1, "replicas": 1, "batch": 1, **over}


def test_twenty_prefixes_of_3000_tokens_by_hand() -> None:
    """3000 = 187 x 16 + 8, so 2992 are reused; 4608 + 512 tokens are 320 blocks of 16 without rest."""
    shared = Shared(3000, 20)
    assert prefix.stored_tokens(row(), shared) == 20 * 2992
    assert prefix.own_tokens(row(), 5120, shared) == 5120 - 2992
    assert prefix.need_tokens(row(batch=100), 5120, shared) == 20 * 2992 + 100 * 2128


def test_attention_dp_stores_a_copy_in_every_rank_unless_requests_are_routed() -> None:
    eight = row(dp=4, replicas=2)
    assert prefix.stored_tokens(eight, Shared(3000, 20, routed=False)) == 20 * 2992
    assert prefix.stored_tokens(eight, Shared(3000, 20)) == 3 * 2992  # 20 over 8 caches: the fullest has 3


def test_context_parallel_ranks_share_a_block_and_round_to_it() -> None:
    """Blocks of 16 on 4 ranks are 64 tokens: 3000 = 46 x 64 + 56."""
    assert prefix.stored_tokens(row(dcp=4), Shared(3000, 1)) == 46 * 64
    assert prefix.own_tokens(row(dcp=4), 5000, Shared(3000, 1)) == 79 * 64 - 46 * 64


def test_without_groups_every_sequence_keeps_all_of_itself() -> None:
    assert prefix.need_tokens(row(batch=3), 1000, None) == 3 * 1008


@given(
    st.integers(1, 4000), st.integers(1, 50), st.integers(0, 3000), st.sampled_from([1, 16, 64, 128]),
    st.sampled_from([1, 2, 8]), st.integers(1, 64), st.booleans(),
)  # fmt: skip
def test_sharing_never_needs_more_than_every_sequence_alone_where_each_group_has_one(
    tokens: int, groups: int, rest: int, block: int, dp: int, batch: int, routed: bool
) -> None:
    cells = row(block_size=block, dp=dp, batch=max(batch, groups))
    alone = prefix.need_tokens(cells, tokens + rest, None)
    shared = prefix.need_tokens(cells, tokens + rest, Shared(tokens, groups, routed))
    assert shared <= alone
    assert shared >= prefix.whole_blocks(tokens, block) + cells["batch"] * rest
