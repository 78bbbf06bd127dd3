"""One problem that every variant solves: a block, mixed caches, new tokens, and the naive fp64 answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mlaplan.kernel import block
from mlaplan.kernel.arithmetic import Arithmetic, Ledger
from mlaplan.kernel.block import Setting
from mlaplan.kernel.norm import rms_norm
from mlaplan.kernel.rope import Yarn, logit_scale, rope_tables
from mlaplan.kernel.shapes import Shapes
from mlaplan.kernel.tolerance import FP32, FP64, fp32_core_tolerance
from mlaplan.kernel.weights import Weights, random_weights

DTYPES = {"fp64": np.float64, "fp32": np.float32}


@dataclass(frozen=True, slots=True)
class Case:
    shapes: Shapes
    x: np.ndarray  # [B, q_len, d]
    caches: list[np.ndarray]  # B x [T_b, d_c + d_h^R], already rounded if the case has a cache format
    weights: Weights
    setting: Setting
    reference: np.ndarray  # naive, fp64: [B, q_len, d]
    tolerance: float

    @property
    def lengths(self) -> list[int]:
        return [len(rows) for rows in self.caches]

    def counted(self) -> tuple[Setting, Ledger]:
        """The setting with a ledger of its own."""
        ledger = Ledger()
        return replace(self.setting, how=Arithmetic(self.setting.how.inputs, ledger)), ledger


def random_case(
    shapes: Shapes,
    context: int,
    batch: int = 2,
    q_len: int = 2,
    dtype: str = "fp64",
    store: Callable[[np.ndarray], np.ndarray] | None = None,
    logit_std: float = 4.0,
    theta: float = 10000.0,
    yarn: Yarn | None = None,
    seed: int = 0,
) -> Case:
    """Caches of context, context/2, context/3... tokens, written by the block itself.

    fp32 inputs are drawn in fp32 and widened for the reference, so that both solve the same problem.
    logit_std is that of the logits without YaRN's factor. `store` rounds the cached context; rows of the step
    itself stay exact, for values that differ in their last bit may round apart.
    """
    if context < 1 or batch < 1 or q_len < 1:
        raise ValueError(f"context, batch and q_len are at least 1; got {context}, {batch}, {q_len}")
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    weights = random_weights(shapes, rng, kind, logit_std)
    tables = rope_tables(context + q_len, shapes.qk_rope_head_dim, theta, yarn)
    setting = Setting(logit_scale(shapes.qk_head_dim, yarn), tables)
    caches = []
    for b in range(batch):
        length = max(context // (b + 1), 1)
        hidden = rng.standard_normal((1, length, shapes.hidden_size)).astype(kind)
        rows = block.cache_rows(hidden, [np.arange(length)], weights, setting)[0]
        caches.append(rows if store is None else store(rows))
    x = rng.standard_normal((batch, q_len, shapes.hidden_size)).astype(kind)

    wide = widened(weights)
    wide_caches = [rows.astype(np.float64) for rows in caches]
    reference, _ = block.step(x.astype(np.float64), wide_caches, wide, setting, expand=True)
    tolerance = FP64
    if kind is np.float32:
        tolerance = max(FP32, fp32_core_tolerance(largest_logit(x, wide_caches, wide, setting)))
    return Case(shapes, x, caches, weights, setting, reference, tolerance)


def layers_reference(case: Case, layers: int) -> np.ndarray:
    """What `layers` copies of the case's block add to x, h <- h + attention(norm(h)); naive, fp64."""
    weights = widened(case.weights)
    caches = [rows.astype(np.float64) for rows in case.caches]
    x = case.x.astype(np.float64)
    h = x
    for _ in range(layers):
        normed = rms_norm(h, np.ones(h.shape[-1]), weights.norm_eps)
        h = h + block.step(normed, caches, weights, case.setting, expand=True)[0]
    return h - x


def widened(weights: Weights) -> Weights:
    """The same numbers in fp64."""
    held = {f.name: getattr(weights, f.name) for f in fields(weights)}
    wide: dict[str, Any] = {k: a.astype(np.float64) for k, a in held.items() if isinstance(a, np.ndarray)}
    return replace(weights, **wide)


def largest_logit(x: np.ndarray, caches: list[np.ndarray], weights: Weights, setting: Setting) -> float:
    """max|scaled logit| of the new tokens against the cached ones."""
    at = [np.arange(len(rows), len(rows) + x.shape[1]) for rows in caches]
    c_q = block.query_latents(x.astype(np.float64), weights, setting)
    q = block.absorb(block.queries(c_q, at, weights, setting), weights, setting)
    products = (q[b].reshape(-1, q.shape[-1]) @ rows.T for b, rows in enumerate(caches))
    return setting.scale * max(float(np.abs(p).max()) for p in products)
