"""The constants of the shipped chips give the times they were published with, and every operator has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlaplan.specs.chip import EFFICIENCY_CLASSES, Chip, CollectiveFit, KernelFit
from mlaplan.specs.defaults import class_fits, default_kernel
from mlaplan.specs.lookup import load_chip

HARDWARE = Path(__file__).resolve().parents[2] / "hardware"
NAMES = sorted(p.stem for p in HARDWARE.glob("*.yaml") if not p.stem.endswith(".cal"))


def chip(name: str) -> Chip:
    return load_chip(str(HARDWARE / f"{name}.yaml"))


def kernel_s(fit: KernelFit, flops: float, peak: float, nbytes: float, bandwidth: float) -> float:
    compute, memory = flops / (fit.compute * peak), nbytes / (fit.memory * bandwidth)
    larger, smaller = max(compute, memory), min(compute, memory)
    return fit.floor + larger * (1 + (smaller / larger) ** fit.norm) ** (1 / fit.norm)


def mla_decode_s(c: Chip, kv: str, heads: int, batch: int, context: int) -> float:
    """One absorbed decode core, rows and tokens padded to 64 as Hopper kernels do."""
    rows, tokens = -(-heads // 64) * 64, -(-context // 64) * 64
    flops = 2.0 * batch * rows * tokens * 1088
    nbytes = batch * context * 576 * (1 if kv == "fp8" else 2) + batch * heads * 1088 * 2.0
    return kernel_s(c.kernel("mla_decode", kv), flops, float(c.peak[kv]), nbytes, float(c.memory.bandwidth))


def collective_s(fit: CollectiveFit, ranks: int, volume: float) -> float:
    i = fit.ranks.index(ranks)
    return fit.alpha[i] + volume / fit.bandwidth[i]


# ---- published times that the constants must give ----


@pytest.mark.parametrize(
    ("name", "heads", "context", "published_us"),
    [("h100-sxm", 16, 4096, 216.5), ("h100-sxm", 128, 4096, 272.3), ("h100-sxm", 64, 4096, 223),
     ("h100-sxm", 128, 32768, 1961.2),
     ("h200-sxm", 16, 4096, 155.8), ("h200-sxm", 128, 4096, 261.5), ("h20", 128, 4096, 1369.6),
     ("h800-sxm", 128, 4096, 292)],
)  # fmt: skip
def test_mla_decode_of_128_sequences(name: str, heads: int, context: int, published_us: float) -> None:
    assert mla_decode_s(chip(name), "bf16", heads, 128, context) * 1e6 == pytest.approx(published_us, rel=0.10)


def test_fp8_kv_helps_few_heads_more_than_many() -> None:
    """TensorRT-LLM on H100: 409 to 226 us with 16 heads and 8192 tokens, 266 to 236 us with 128 and 4096."""
    h100 = chip("h100-sxm")
    assert mla_decode_s(h100, "fp8", 16, 128, 8192) * 1e6 == pytest.approx(226, rel=0.15)
    assert mla_decode_s(h100, "fp8", 128, 128, 4096) * 1e6 == pytest.approx(236, rel=0.15)


@pytest.mark.parametrize(("size", "published_us"), [(64 * 1024, 18.7), (2**20, 25.4), (16 * 2**20, 122.3)])
def test_h100_all_reduce_of_eight(size: int, published_us: float) -> None:
    fit = chip("h100-sxm").scale_up.collectives["all_reduce"]
    assert collective_s(fit, 8, 2 * 7 / 8 * size) * 1e6 == pytest.approx(published_us, rel=0.35)


@pytest.mark.parametrize(
    ("name", "ranks", "dispatch_us", "combine_us", "rel"),
    [("h800-sxm", 8, 77, 114, 0.01), ("h800-sxm", 16, 118, 195, 0.01), ("h800-sxm", 32, 155, 273, 0.01),
     ("h800-sxm", 64, 173, 314, 0.01), ("h800-sxm", 128, 192, 369, 0.01), ("h800-sxm", 256, 194, 360, 0.01),
     ("h100-sxm", 8, 36.7, 67.0, 0.06), ("h200-sxm", 8, 35.1, 67.7, 0.06),
     ("ascend-910c-die", 8, 116, 118, 0.01), ("ascend-910c-die", 256, 152, 149, 0.01)],
)  # fmt: skip
def test_dispatch_and_combine_of_128_tokens(
    name: str, ranks: int, dispatch_us: float, combine_us: float, rel: float
) -> None:
    c = chip(name)
    for op, copy, published_us in (("dispatch", 7392, dispatch_us), ("combine", 14336, combine_us)):
        links = [link.collectives[op] for link in (c.scale_up, c.scale_out) if link and op in link.collectives]
        fit = next(f for f in links if ranks in f.ranks)
        assert collective_s(fit, ranks, 128 * 8 * copy) * 1e6 == pytest.approx(published_us, rel=rel)


def test_sc11_all_reduce_by_the_vendors_formula() -> None:
    fit = chip("sc11").scale_up.collectives["all_reduce"]
    size = 128 * 7168 * 2
    assert collective_s(fit, 8, 2 * 7 / 8 * size) * 1e6 == pytest.approx(68.6, rel=5e-3)


# ---- efficiencies ----


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_has_an_efficiency_for_every_dtype_of_the_chip(name: str) -> None:
    c = chip(name)
    sixteen = "bf16" if "bf16" in c.peak else "fp16"
    narrow = [d for d in ("fp8", "int8") if d in c.peak]
    weights = [sixteen, "int4", "fp4", *narrow, *(["fp8_block"] if "fp8" in narrow else [])]
    caches = [sixteen, *narrow]
    wanted = [("gemm", d) for d in weights] + [("grouped_gemm", d) for d in weights] + [("bmm", sixteen)]
    wanted += [(op, d) for op in ("mla_decode", "gqa_decode") for d in caches]
    wanted += [(op, sixteen) for op in ("mla_prefill", "gqa_prefill", "sparse_mla_decode")]
    wanted += [("elementwise", "bf16")]
    for op, dtype in wanted:
        fit = c.kernel(op, dtype)
        assert 0 < fit.compute <= 1, (op, dtype)
        assert 0 < fit.memory <= 0.95, (op, dtype)


def test_class_defaults_are_assumed_and_wide() -> None:
    for owner in EFFICIENCY_CLASSES:
        for op, by_dtype in class_fits(owner).items():
            for dtype, fit in by_dtype.items():
                assert 0.25 <= fit.residual <= 0.4, (owner, op, dtype)
                told = default_kernel(owner, op, dtype)
                assert told.confidence == "assumed"
                assert told.source.startswith(f"class default: {owner} {op} {dtype}; ")


def test_measured_fits_state_a_plausible_error() -> None:
    for name in NAMES:
        for op, by_dtype in chip(name).efficiency.items():
            for dtype, fit in by_dtype.items():
                assert 0.03 <= fit.residual <= 0.5, (name, op, dtype)
                if fit.confidence == "measured":
                    assert "fit of" in fit.source, (name, op, dtype)
