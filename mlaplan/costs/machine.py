"""One chip under one choice of precision: turns the FLOP and bytes of an operator into its time.

An `Op` is one operator of one layer (or of the step) with its time, work and the parts the time is made of, so
that a breakdown can name what binds it. Numbers are per chip; all fields but `name`, `group` and `residual` are
scalars or arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlaplan.costs import collectives as net
from mlaplan.costs import kernels
from mlaplan.costs import roofline as roof
from mlaplan.costs.collectives import Group
from mlaplan.costs.kernels import Work
from mlaplan.costs.kv import GROUPED
from mlaplan.costs.precision import Matmul, attention_peak, matmul
from mlaplan.costs.roofline import Numeric

if TYPE_CHECKING:
    from mlaplan.costs.engine import EngineCosts
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.model import Model

ACTIVATION_BYTES = 2.0
ROUTER_EXPERTS = 256  # of the shape that fits of routers of few tokens count their rows in
CAST_RESIDUAL = 0.1  # spread of the measured share of bandwidth over heads and batches


class Op(NamedTuple):
    """One operator: time and work per chip. `group` names the fit whose error it shares with others."""

    name: str
    group: str
    time_s: Numeric
    flops: Numeric = 0.0
    bytes: Numeric = 0.0
    link_bytes: Numeric = 0.0
    compute_s: Numeric = 0.0
    memory_s: Numeric = 0.0
    floor_s: Numeric = 0.0
    residual: Numeric = 0.0

    @property
    def is_link(self) -> bool:
        return self.group.startswith("link")

    def scaled(self, factor: Numeric) -> Op:
        """The operator `factor` times over."""
        return Op(
            self.name, self.group, self.time_s * factor, self.flops * factor, self.bytes * factor,
            self.link_bytes * factor, self.compute_s * factor, self.memory_s * factor, self.floor_s * factor,
            self.residual,
        )  # fmt: skip

    def where(self, here: Numeric, other: Op) -> Op:
        """Row by row the other operator `here`, else this one."""
        pairs = zip(self[2:], other[2:], strict=True)
        return Op(self.name, self.group, *(np.where(here, b, a) for a, b in pairs))


class Machine:
    """A chip, the model in the dtypes that the plan stores, and the engine's kernels."""

    def __init__(self, chip: Chip, model: Model, engine: EngineCosts, weight_dtype: str, kv_dtype: str) -> None:
        self.chip, self.model, self.engine = chip, model, engine
        self.weight_dtype, self.kv_dtype = weight_dtype, kv_dtype
        self.bandwidth, self.cores = float(chip.memory.bandwidth), float(chip.cores)
        self.tile = chip.padding
        self._products: dict[str, Matmul] = {}

    def products(self, part: str) -> Matmul:
        """How products with a part's stored weights run."""
        known = self._products.get(part)
        if known is None:
            known = self._products[part] = matmul(self.chip, self.model, part, self.weight_dtype)
        return known

    def _kernel(self, name: str, op: str, key: str, peak: float, work: Work) -> Op:
        fit = self.chip.kernel(op, key)
        t = kernels.timing(fit, work, peak, self.bandwidth, self.cores)
        return Op(
            name, f"{op}.{key}", t.time_s, work.flops, work.nbytes, 0.0, t.compute_s, t.memory_s, t.floor_s,
            fit.residual,
        )  # fmt: skip

    def gemm(self, name: str, part: str, m: Numeric, k: Numeric, n: Numeric) -> Op:
        """[m, k] x [k, n] with the part's stored weights; rows padded to the chip's GEMM tile."""
        mm = self.products(part)
        fit, nbytes = self.chip.kernel("gemm", mm.key), roof.gemm_bytes(m, k, n, mm.weight_bytes)
        t = kernels.product_timing(
            fit, m, k, n, nbytes, mm.peak_flops, self.bandwidth, self.cores, mm.weight_bytes, self.tile.gemm_rows
        )
        flops = roof.gemm_flops(m, k, n)
        return Op(
            name, f"gemm.{mm.key}", t.time_s, flops, nbytes, 0.0, t.compute_s, t.memory_s, t.floor_s, fit.residual
        )

    def router(self, name: str, tokens: Numeric, choices: int) -> Op:
        """Scores [T, E] of all experts; of few tokens by a kernel of its own, where the engine has one.

        A row of that kernel's fit is a token at 256 experts: T (1 + E / 256) / 2 rows, as half of its time per token
        goes with the experts (class_fits, `router`).
        """
        d, of = self.model.hidden_size, self.engine.small_router
        op = self.gemm(name, "router", tokens, d, choices)
        if d != of.hidden or choices not in of.experts or np.min(tokens) > of.tokens:
            return op
        mm = self.products("router")
        flops, nbytes = roof.gemm_flops(tokens, d, choices), roof.gemm_bytes(tokens, d, choices, mm.weight_bytes)
        work = Work(flops, flops, nbytes, rows=tokens * (1.0 + choices / ROUTER_EXPERTS) / 2.0)
        small = self._kernel(name, "router", "bf16", mm.peak_flops, work)
        few = np.asarray(tokens) <= of.tokens
        return small if np.all(few) else op.where(few, small)

    def per_head(self, name: str, m: Numeric, heads: Numeric, k: int, n: int) -> Op:
        """`heads` products [m, k] x [k, n] in 16 bit: the absorbed up-projections, held dequantised."""
        mm = self.products("norm")  # held in 16 bit whatever the checkpoint has
        flops = roof.gemm_flops(m, k, n) * heads
        padded = roof.gemm_flops(roof.pad_to(m, self.tile.gemm_rows), k, n) * heads
        nbytes = roof.gemm_bytes(m, k, n, ACTIVATION_BYTES) * heads
        return self._kernel(name, "bmm", mm.key, mm.peak_flops, Work(flops, padded, nbytes))

    def core(self, name: str, op: str, work: Work, key: str | None = None) -> Op:
        """An attention core.

        key: the dtype of the products; by default the cache's, or 16 bit where the engine widens the cache. A kernel
        for scales per group has a fit of its own, of what it does besides widening.
        """
        if key is None:
            native = self.engine.core_mode(self.kv_dtype).compute == "native"
            key = self.kv_dtype if native or self.kv_dtype in GROUPED else "bf16"
        return self._kernel(name, op, key, attention_peak(self.chip, key), work)

    def cache_cast(self, elements: Numeric) -> list[Op]:
        """Widening of the whole cache before the core, where the engine's backend does that."""
        mode = self.engine.core_mode(self.kv_dtype)
        if mode.compute != "cast_pool":
            return []
        nbytes = elements * mode.cast_bytes
        fit = self.chip.efficiency.get("kv_cast", {}).get(self.kv_dtype)
        if fit is not None:
            return [self._kernel("kv_cache_cast", "kv_cast", self.kv_dtype, 1.0, Work(0.0, 0.0, nbytes))]
        memory_s = nbytes / (mode.cast_share * self.bandwidth)
        return [Op("kv_cache_cast", "kv_cast", memory_s, 0.0, nbytes, memory_s=memory_s, residual=CAST_RESIDUAL)]

    def experts(
        self, name: str, rows: Numeric, padded_rows: Numeric, active: Numeric, stored: Numeric, inner: Numeric,
        dispatched: bool,
    ) -> Op:  # fmt: skip
        """The routed experts of one layer: gate and up [d, 2 inner], activation, down [inner, d], grouped.

        `rows` token copies over `active` of `stored` experts, as tiles `padded_rows`; one fit covers the whole block.
        Behind a dispatch engines run another kernel, whose fit is used where the chip has one.
        """
        d = self.model.hidden_size
        mm = self.products("routed")
        own = dispatched and mm.key in self.chip.efficiency.get("grouped_gemm_ep", {})
        op = "grouped_gemm_ep" if own else "grouped_gemm"
        work = expert_work(d, inner, rows, padded_rows, active, stored, mm.weight_bytes)
        return self._kernel(name, op, mm.key, mm.peak_flops, work)

    def elementwise(self, name: str, nbytes: Numeric, flops: Numeric = 0.0) -> Op:
        """A kernel that only moves memory: norms, rotary embedding, cache write, sampling."""
        fit = self.chip.kernel("elementwise", "bf16")
        memory_s = nbytes / (fit.memory * self.bandwidth)
        return Op(name, "elementwise", fit.floor + memory_s, flops, nbytes, 0.0, 0.0, memory_s, fit.floor, fit.residual)

    def norm(self, name: str, tokens: Numeric, tp: Numeric, dp: Numeric = 1) -> Op:
        """Residual and norm before a block, 8 T d bytes; none where they are part of the sum over TP before it."""
        op = self.elementwise(name, 4 * tokens * self.model.hidden_size * ACTIVATION_BYTES)
        return op.scaled(1.0 - self._fused(tokens, tp, dp)) if self.engine.fused_sum.tokens else op

    def sum_over_tp(self, name: str, tokens: Numeric, tp: Numeric, dp: Numeric = 1) -> Op:
        """Sum of the TP ranks' partial outputs [T, d], by the kernel that takes the norm with it where that is used."""
        size = tokens * self.model.hidden_size * ACTIVATION_BYTES
        op = self.collective(name, "all_reduce", size, Group(tp))
        fit = self.chip.scale_up.collectives.get("all_reduce_fused")
        if fit is None or not self.engine.fused_sum.tokens or np.max(tp) == 1:
            return op
        fused = self._fused(tokens, tp, dp)
        time_s = fused * net.fitted_s(fit, "all_reduce", size, tp) + (1.0 - fused) * op.time_s
        return op._replace(time_s=time_s, residual=fit.residual if np.any(fused) else op.residual)

    def _fused(self, tokens: Numeric, tp: Numeric, dp: Numeric) -> Numeric:
        """1 where a sum over TP takes the norm after it with it, else 0."""
        of = self.engine.fused_sum
        yes = (np.asarray(tp) > 1) & (np.asarray(tokens) <= of.tokens)
        if of.alone:
            yes = yes & (np.asarray(dp) == 1) & (np.asarray(tp) <= self.chip.scale_up.chips_per_node)
        return 1.0 * yes

    def collective(self, name: str, op: str, size: Numeric, group: Group) -> Op:
        """A collective of `size` bytes over the group."""
        if np.max(group.ranks) == 1:
            return link_op(name, 0.0 * size, 0.0 * size, 0.0)
        custom = self.engine.custom_all_reduce_bytes(group.ranks) if op == "all_reduce" else 0.0
        time_s = net.collective_s(self.chip, op, size, group, custom)
        wide = bool(np.max(np.asarray(group.ranks) * np.asarray(group.stride)) > self.chip.scale_up.chips_per_node)
        residual = net.collective_residual(self.chip, op, wide, int(np.max(group.ranks)))
        return link_op(name, time_s, net.volume_bytes(op, size, group.ranks), residual)


def expert_work(
    hidden: Numeric, inner: Numeric, rows: Numeric, padded_rows: Numeric, active: Numeric, stored: Numeric,
    weight_bytes: float,
) -> Work:  # fmt: skip
    """Gate, up and down of `active` experts: 6 d I FLOP a row; weights once, rows in, between and out in 16 bit."""
    flops, padded = (roof.gemm_flops(r, hidden, 3.0 * inner) for r in (rows, padded_rows))
    moved = rows * (2.0 * hidden + 4.0 * inner) * ACTIVATION_BYTES
    nbytes = active * 3.0 * hidden * inner * weight_bytes + moved
    return Work(flops, padded, nbytes, rows=rows, active=active, stored=stored)


def link_op(name: str, time_s: Numeric, link_bytes: Numeric, residual: Numeric) -> Op:
    """An operator that is all communication."""
    return Op(name, "link", time_s, link_bytes=link_bytes, residual=residual)


def bound_of(op: Op) -> str:
    """What binds one operator (scalars): link, latency (the floor is over half of it), memory, compute or vector."""
    if op.is_link:
        return "link"
    if op.group in ("host", "bubble", "overlap"):
        return op.group
    if op.floor_s > 0.5 * op.time_s:
        return "latency"
    if op.memory_s >= op.compute_s:
        return "memory"
    return "vector" if op.group.startswith("kv_dequantise") else "compute"
