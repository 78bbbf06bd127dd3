"""Shared prefixes in the cache: what a group of requests stores once, and what each of them adds.

A prefix of P tokens that many requests begin with is reused in whole blocks, so P' = floor(P / (b D)) b D tokens of
it are stored once in every cache that serves those requests (b: block size, D: decode-context-parallel ranks).

A cache is one attention-DP rank of one replica: its tensor-parallel ranks each hold their part or copy of the same
tokens, as `memory.layer_kv_bytes` counts, and its context-parallel ranks a shard. G groups on H = DP x replicas caches:

    stored = P' ceil(G / H)       routed to the cache that has the prefix
    stored = P' G                 routed without regard to it: after a while every cache has every prefix
    need   = stored + B (ceil((ISL + OSL) / (b D)) b D - P')                             tokens, B sequences in flight

The prefix stays resident: what a plan counts as a hit, it has room for. Eviction is the business of a tier
(`costs.stack_distance`).
Source: block-wise reuse, vLLM, docs/design/prefix_caching.md; routing by prefix, SGLang, arXiv:2312.07104, sec. 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mlaplan.costs.roofline import Numeric, ceil_div


class Shared(NamedTuple):
    """`groups` of requests, each with its own prefix of `tokens`; routed: each goes where its prefix is cached."""

    tokens: int
    groups: int
    routed: bool = True


def whole_blocks(tokens: Numeric, block: Numeric) -> Numeric:
    """floor(tokens / block) block: what can be reused of a prefix. Tokens."""
    return tokens // block * block


def block_tokens(table: Mapping[str, Any]) -> Numeric:
    """Tokens of one block over all ranks that share a sequence: b D."""
    return np.asarray(table["block_size"]) * table["dcp"]


def stored_tokens(table: Mapping[str, Any], shared: Shared | None) -> Numeric:
    """Tokens of all prefixes that one cache holds, per row."""
    if shared is None:
        return np.zeros_like(block_tokens(table))
    holders = np.asarray(table["dp"]) * table["replicas"]
    groups = ceil_div(shared.groups, holders) if shared.routed else shared.groups
    return whole_blocks(shared.tokens, block_tokens(table)) * groups


def own_tokens(table: Mapping[str, Any], max_context: int, shared: Shared | None) -> Numeric:
    """Cache tokens that one more sequence takes at its end, in whole blocks, without the prefix it shares."""
    block = block_tokens(table)
    whole = ceil_div(max_context, block) * block
    return whole if shared is None else whole - whole_blocks(shared.tokens, block)


def need_tokens(table: Mapping[str, Any], max_context: int, shared: Shared | None) -> Numeric:
    """Tokens that the sequences in flight and all prefixes take of one cache."""
    return stored_tokens(table, shared) + own_tokens(table, max_context, shared) * table["batch"]
