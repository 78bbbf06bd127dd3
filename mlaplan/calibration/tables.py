"""The measured tables of the aiconfigurator-core package, as clean rows.

Only read from the installed package (extra `silicon`), never copied. What a row measures, from the collectors of
ai-dynamo/aiconfigurator: latencies in ms, of a CUDA graph replayed on the same buffers. An engine's own tables may
come from elsewhere (`older.py`).
"""

from __future__ import annotations

import dataclasses
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from mlaplan.calibration.experts import active_experts
from mlaplan.calibration.rows import SPIKE_OF_LIBRARIES, Rows, gathered, without_spikes
from mlaplan.errors import MlaplanError

PACKAGE = "aiconfigurator_core"
VERSIONS = {"sglang": "0.5.14", "trtllm": "1.3.0rc20", "vllm": "0.24.0"}
NCCL = "2.29.2"
DEEPEP = {1: "0.5.12", 2: "0.5.6.post2", 4: "0.5.6.post2", 8: "0.5.6.post2"}  # nodes -> version under sglang
TITLES = {"sglang": "SGLang", "trtllm": "TensorRT-LLM", "vllm": "vLLM"}
# fp4 is NVFP4: the MXFP4 rows are those of other models' experts
THEIRS = {"bf16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8_block", "int4": "int4_wo", "int8": "sq", "fp4": "nvfp4"}
# folders by another name than the chip's, and those that hold older versions
FOLDERS = {"a100-sxm-80g": "a100_sxm"}
OLDER = {"a100_sxm": {"sglang": "0.5.10", "trtllm": "1.0.0", "vllm": "0.14.0", "nccl": "2.27.3"}}

# SGLang's prefill table holds an absorbed kernel that its server does not use for a plain prefill
PREFILL_ENGINES = ("trtllm",)
# one-hot gates with a stride of a whole group let group-limited routing inside a kernel drop half of the experts
HONEST_BALANCED = ("trtllm",)
# Two kernels of one engine: NVFP4 experts of TensorRT-LLM run in `moe_config.backend: TRTLLM` (trtllm-gen, whose rows
# are named for its low latency) or in the default CUTLASS, two to three times slower under TP. Its deployment guide
# for DeepSeek-R1 has both for up to 8 EP ranks of Blackwell; the faster is taken, which SGLang and vLLM run too.
TRTLLM_GEN = "moe_torch_flow_min_latency"
CHOSEN = {("trtllm", "fp4"): TRTLLM_GEN}
HOPPER = 90  # its compute capability
COLLECTIVES = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
               "alltoall": "all_to_all"}  # fmt: skip


def root() -> Path | None:
    """The folder of the tables, or None where the package is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "systems" / "data"


def needed_root() -> Path:
    found = root()
    if found is None:
        raise MlaplanError("the measured tables are not installed; expected: pip install 'mlaplan[silicon]'")
    return found


@cache
def chips() -> tuple[str, ...]:
    """Chips that have tables, by our names. Some folders hold no table."""
    ours = {theirs: chip for chip, theirs in FOLDERS.items()}
    known = [path.name for path in needed_root().iterdir() if next(path.rglob("*.parquet"), None)]
    return tuple(sorted(ours.get(name, name.replace("_", "-")) for name in known))


def folder(chip: str) -> Path:
    """The tables of a chip by our name of it."""
    known = chips()
    if chip not in known:
        raise MlaplanError(f"no measured tables of {chip}; expected one of {', '.join(known)}")
    return needed_root() / _folder_name(chip)


def _folder_name(chip: str) -> str:
    return FOLDERS.get(chip, chip.replace("-", "_"))


def version(chip: str, library: str) -> str:
    """The version of an engine, or of `nccl`, whose tables of the chip are read."""
    return OLDER.get(_folder_name(chip), {**VERSIONS, "nccl": NCCL})[library]


@cache
def _system(chip: str) -> Any:
    """What the package says of the chip."""
    import yaml

    return yaml.safe_load((needed_root().parent / f"{_folder_name(chip)}.yaml").read_text("utf-8"))


def per_node(chip: str) -> int:
    """Ranks of one node where the tables were taken."""
    return int(_system(chip)["node"]["num_gpus_per_node"])


@cache
def _table(path: Path) -> pd.DataFrame | None:
    return pd.read_parquet(path) if path.is_file() else None


def file_of(chip: str, family: str, engine: str, table: str, of: str | None = None) -> Path:
    """Where a table is kept below the folder of its chip; `of` is its version."""
    return folder(chip) / family / engine / (of or version(chip, engine)) / f"{table}.parquet"


class Source(ABC):
    """Where the tables of an engine come from. `told` says what was left out of them, by table."""

    told: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def version(self, chip: str, engine: str) -> str:
        """The release that was measured."""

    @abstractmethod
    def read(self, chip: str, family: str, engine: str, table: str) -> pd.DataFrame | None:
        """A table under the names of today, None where there is none."""


class Installed(Source):
    """The package that is installed, in which the newest releases are."""

    def version(self, chip: str, engine: str) -> str:
        return version(chip, engine)

    def read(self, chip: str, family: str, engine: str, table: str) -> pd.DataFrame | None:
        return _table(file_of(chip, family, engine, table))


INSTALLED = Installed()


def _source(by: Source, chip: str, engine: str, table: str) -> str:
    return f"ai-dynamo/aiconfigurator {table}, {TITLES[engine]} {by.version(chip, engine)}"


def mla_decode(chip: str, engine: str, dtype: str, by: Source = INSTALLED) -> Rows | None:
    """The absorbed decode core: heads of a rank, batch, context (tokens in the cache, the new one included)."""
    t = by.read(chip, "mla", engine, "generation_mla_perf")
    if t is None:
        return None
    t = t[t.kv_cache_dtype == THEIRS[dtype]]
    shape = pd.DataFrame({"heads": t.num_heads, "batch": t.batch_size, "context": t.step + 1})
    rows = gathered("mla_decode", dtype, shape, t.latency * 1e-3, _source(by, chip, engine, "generation_mla_perf"))
    return without_spikes(rows, ("context", "batch")) if len(rows) else None


def mla_prefill(chip: str, engine: str, dtype: str, by: Source = INSTALLED) -> Rows | None:
    """The naive causal core of whole prompts: heads of a rank, batch, tokens a prompt."""
    t = by.read(chip, "mla", engine, "context_mla_perf")
    if t is None or engine not in PREFILL_ENGINES:
        return None
    t = t[t.kv_cache_dtype == THEIRS[dtype]]
    shape = pd.DataFrame({"heads": t.num_heads, "batch": t.batch_size, "tokens": t.isl})
    rows = gathered("mla_prefill", dtype, shape, t.latency * 1e-3, _source(by, chip, engine, "context_mla_perf"))
    return without_spikes(rows, ("tokens", "batch")) if len(rows) else None


def mla_module(chip: str, engine: str, kv_dtype: str, gemm_dtype: str, by: Source = INSTALLED) -> Rows | None:
    """The whole decode attention of one DeepSeek-V3 layer: projections, core, output; no all-reduce."""
    t = by.read(chip, "mla", engine, "mla_generation_module_perf")
    if t is None:
        return None
    t = t[(t.kv_cache_dtype == THEIRS[kv_dtype]) & (t.gemm_type == THEIRS[gemm_dtype])]
    shape = pd.DataFrame({"heads": t.num_heads, "batch": t.batch_size, "context": t.step})
    name = f"{kv_dtype} KV, {gemm_dtype} weights"
    rows = gathered(
        "mla_module", name, shape, t.latency * 1e-3, _source(by, chip, engine, "mla_generation_module_perf")
    )
    return without_spikes(rows, ("context", "batch")) if len(rows) else None


def gemm(chip: str, engine: str, dtype: str, least: int = 512, by: Source = INSTALLED) -> Rows | None:
    """[m, k] x [k, n] with n and k of at least `least`; fp8_block quantises its input in the call."""
    t = by.read(chip, "gemm", engine, "gemm_perf")
    if t is None:
        return None
    t = t[(t.gemm_dtype == THEIRS[dtype]) & (t.n >= least) & (t.k >= least)]
    rows = gathered("gemm", dtype, t[["m", "n", "k"]], t.latency * 1e-3, _source(by, chip, engine, "gemm_perf"))
    return without_spikes(rows, ("m",), SPIKE_OF_LIBRARIES) if len(rows) else None


def bmm(chip: str, engine: str, dtype: str, by: Source = INSTALLED) -> Rows | None:
    """The absorbed up-projections as one batched product: heads, tokens, and the inner and outer width."""
    t = by.read(chip, "mla_bmm", engine, "mla_bmm_perf")
    if t is None:
        return None
    t = t[t.bmm_dtype == THEIRS[dtype]]
    before = (t.op_name == "mla_gen_pre").to_numpy()
    shape = pd.DataFrame(
        {"heads": t.num_heads, "m": t.num_tokens, "k": np.where(before, 128, 512), "n": np.where(before, 512, 128)}
    )
    rows = gathered("bmm", dtype, shape, t.latency * 1e-3, _source(by, chip, engine, "mla_bmm_perf"))
    return without_spikes(rows, ("m",), SPIKE_OF_LIBRARIES) if len(rows) else None


def grouped_gemm(chip: str, engine: str, dtype: str, by: Source = INSTALLED) -> Rows | None:
    """The routed experts of one block of DeepSeek-V3 or Kimi-K2 on one rank, its EP part, by expected load."""
    t = by.read(chip, "moe", engine, "moe_perf")
    if t is None:
        return None
    t = t[(t.moe_dtype == THEIRS[dtype]) & (t.hidden_size == 7168) & (t.inter_size == 2048)]
    kernel = CHOSEN.get((engine, dtype))
    t = t if kernel is None else t[t.kernel_source == kernel]
    balanced = t.distribution == "balanced"
    # the busiest rank of a skewed draw is not in the table: only the whole draw is known
    honest = engine in HONEST_BALANCED and kernel != TRTLLM_GEN
    t = t[(balanced & honest) | (~balanced & (t.moe_ep_size == 1))]
    if t.empty:
        return None
    experts, topk, tokens = (t[c].to_numpy(float) for c in ("num_experts", "topk", "num_tokens"))
    ep, skew = t.moe_ep_size.to_numpy(float), t.distribution.map(_skew).to_numpy(float)
    shape = pd.DataFrame(
        {
            "rows": tokens * topk / ep,
            "active": active_experts(tokens, topk, experts, skew) / ep,
            "stored": experts / ep,
            "inner": t.inter_size.to_numpy(float) / t.moe_tp_size.to_numpy(float),
            "hidden": t.hidden_size.to_numpy(float),
        },
        index=t.index,
    )
    of = " (moe_config.backend TRTLLM)" if kernel == TRTLLM_GEN else ""
    rows = gathered("grouped_gemm", dtype, shape, t.latency * 1e-3, _source(by, chip, engine, "moe_perf") + of)
    return without_spikes(rows, ("rows",)) if len(rows) else None


def _skew(distribution: str) -> float:
    """The exponent of a power law, 0 for balanced."""
    return 0.0 if distribution == "balanced" else float(distribution.rsplit("_", 1)[1])


def collective(chip: str, op: str) -> Rows | None:
    """One NCCL operation inside a node: ranks, bytes of the whole buffer."""
    nccl = version(chip, "nccl")
    t = _table(file_of(chip, "comm", "nccl", "nccl_perf", nccl))
    if t is None:
        return None
    t = t[(t.op_name.map(COLLECTIVES) == op) & (t.nccl_dtype == "half")]
    shape = pd.DataFrame({"ranks": t.num_gpus, "bytes": 2.0 * t.message_size})
    rows = gathered(op, "bf16", shape, t.latency * 1e-3, f"ai-dynamo/aiconfigurator nccl_perf, NCCL {nccl}, half")
    return without_spikes(rows, ("bytes",), SPIKE_OF_LIBRARIES) if len(rows) else None


def fused_all_reduce(chip: str, engine: str) -> Rows | None:
    """The kernel that takes residual and norm with the sum: TensorRT-LLM's, which FlashInfer brought to SGLang.

    FlashInfer has it from Hopper on, with versions of its own: the tables are those of the installed package.
    """
    used = engine == "sglang" and int(_system(chip)["gpu"]["sm_version"]) >= HOPPER
    rows = custom_all_reduce(chip, "trtllm") if used else None
    return None if rows is None else dataclasses.replace(rows, op="all_reduce_fused")


def custom_all_reduce(chip: str, engine: str, eager: bool = False, by: Source = INSTALLED) -> Rows | None:
    """The engine's own all-reduce kernel: ranks, bytes."""
    t = by.read(chip, "comm", engine, "custom_allreduce_perf")
    if t is None:
        return None
    wanted = "eager" if eager else "graph"
    if t.kernel_source.str.contains("eager|graph").any():
        t = t[t.kernel_source.str.endswith(wanted)]
    elif eager:
        return None
    shape = pd.DataFrame({"ranks": t.num_gpus, "bytes": 2.0 * t.message_size})
    op = "all_reduce_custom_eager" if eager else "all_reduce_custom"
    rows = gathered(
        op, "bf16", shape, t.latency * 1e-3, f"{_source(by, chip, engine, 'custom_allreduce_perf')}, {wanted}"
    )
    return without_spikes(rows, ("bytes",), SPIKE_OF_LIBRARIES) if len(rows) else None


def deepep_low_latency(chip: str, op: str, nodes: int) -> Rows | None:
    """DeepEP's low-latency `dispatch` or `combine`: ranks, and V = tokens x 8 copies x bytes of one (fp8 and scales
    out, 16 bit back)."""
    t = _table(file_of(chip, "comm", "sglang", "wideep_deepep_ll_perf", DEEPEP[nodes]))
    if t is None:
        return None
    t = t[(t.node_num == nodes) & (t.hidden_size == 7168) & (t.num_topk == 8) & (t.num_experts == 256)]
    each = 7168 + 7168 / 128 * 4 if op == "dispatch" else 2 * 7168
    shape = pd.DataFrame(
        {"ranks": float(per_node(chip) * nodes) + 0.0 * t.num_token, "bytes": t.num_token * 8.0 * each}
    )
    source = f"ai-dynamo/aiconfigurator wideep_deepep_ll_perf, SGLang {DEEPEP[nodes]}"
    rows = gathered(op, "fp8" if op == "dispatch" else "bf16", shape, t[f"{op}_avg_t_us"] * 1e-6, source)
    return without_spikes(rows, ("bytes",), SPIKE_OF_LIBRARIES) if len(rows) else None
