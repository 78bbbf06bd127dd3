"""Numbers beside the claims of the article on Kthena and Mooncake."""

from __future__ import annotations

from collections.abc import Callable

from mlaplan.costs import kv, params
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.validation.articles import figures

ASCEND = figures("ascend")
GB, KIB, MIB = 1e9, 2.0**10, 2.0**20
INT8_GROUP, SCALE_BYTES = 128, 2


def token_bytes() -> float:
    """Cache of one token of Llama-3-70B in 16 bit, all layers."""
    return kv.kv_bytes_per_token(load_model("llama-3-70b"))["bf16"]


def card_weights() -> float:
    return ASCEND["params"] * 2 / ASCEND["cards"] / GB


COMPUTED: dict[str, Callable[[], float]] = {
    "weights": lambda: params.params_total(load_model("llama-3-70b")) * 2 / GB,
    "kv-formula": lambda: ASCEND["heads"] / ASCEND["kv_heads"],
    "kv-token": lambda: token_bytes() / KIB,
    "tokens": lambda: 22 * GB / (2 * ASCEND["layers"] * ASCEND["heads"] * ASCEND["head_dim"] * 2),
    "per-card-weights": card_weights,
    "pool": lambda: card_weights() + 20,
    "cards": lambda: 4.0 * 2,
    "int8-kv": lambda: 1 - (1 + SCALE_BYTES / INT8_GROUP) / 2,
    "on-chip-kv": lambda: 32 * MIB / token_bytes(),
    "bf16": lambda: float(sum(d in load_chip("ascend-910a").peak for d in ("bf16", "fp16"))),
}
