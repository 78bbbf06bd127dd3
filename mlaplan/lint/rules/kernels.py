"""Attention backends: does the chip run it, does it read this cache, in these blocks, under context parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlaplan.lint.finding import Found
from mlaplan.lint.rule import LintRule
from mlaplan.lint.text import Word
from mlaplan.lint.versions import at_least

if TYPE_CHECKING:
    from mlaplan.engines.profile import Kernel
    from mlaplan.lint.view import View

V3 = "vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8"
# other names of the same backend
ALSO = {
    "nsa": "dsa",
    "tokenspeed_mla": "cutedsl_mla",
    "FLASHMLA_VLLM_V1": "FLASHMLA",
    "TRITON_MLA_VLLM_V1": "TRITON_MLA",
}


# backend -> first known version without it
REMOVED_BACKENDS = {"sglang": {"cutlass_mla": "0.5.23"}}
DTYPE_FLAGS = ("kv_cache_config.dtype", "--kv-cache-dtype", "--dtype", "--attention-backend")


def backend(view: View) -> tuple[str, Word] | None:
    """The backend that is asked for by flag or, where it is read, by environment, and where."""
    for flag in ("--attention-backend", "--decode-attention-backend"):
        if isinstance(name := view.get(flag), str):
            return name, view.place(flag)
    config = view.get("--attention-config")
    if isinstance(config, dict) and isinstance(config.get("backend"), str):
        return config["backend"], view.place("--attention-config")
    name_ = view.env("VLLM_ATTENTION_BACKEND")
    if view.base == "vllm" and name_ and not at_least(view.version, "0.26.0"):
        return name_, view.launch.env["VLLM_ATTENTION_BACKEND"]
    return None


def asked(view: View) -> list[Kernel]:
    """Rows of the profile for the backend that is asked for, on any chip, for this kind of attention."""
    found = backend(view)
    if found is None:
        return []
    name = ALSO.get(found[0], found[0]).lower()
    return [k for k in view.profile.kernels if k.name.lower() == name and view.attention in k.attention]


def usable(view: View) -> list[Kernel]:
    """Backends that may serve: the one asked for, or those that the engine would take by itself."""
    assert view.chip is not None
    assert view.attention is not None
    chip_class = view.chip.efficiency_class
    if backend(view) is not None:
        return [k for k in asked(view) if chip_class in k.chips]
    return [k for k in view.profile.kernels_for(chip_class, view.attention) if _turned_on(view, k)]


def _turned_on(view: View, kernel: Kernel) -> bool:
    return all(view.env(name) == value for name, value in kernel.env.items())


def _ready(view: View) -> bool:
    return (
        view.chip is not None and view.attention is not None and view.plan is not None
        and not view.hides("backend", "block_size")
        and view.engine != "vllm_ascend" and view.chip.efficiency_class in view.profile.runs_on
    )  # fmt: skip


def _backend_chip(view: View) -> Iterator[Found]:
    found = backend(view)
    gone = REMOVED_BACKENDS.get(view.base, {}).get(found[0]) if found else None
    if found is not None and gone is not None and at_least(view.version, gone):
        yield Found(found[1], f"{view.label} has no backend {found[0]} any more", "leave the choice to the engine")
        return
    if found is None or not _ready(view) or not asked(view):
        return
    assert view.chip is not None
    if any(view.chip.efficiency_class in k.chips for k in asked(view)):
        return
    name, word = found
    classes = sorted({chip.removeprefix("nvidia-").removeprefix("amd-") for k in asked(view) for chip in k.chips})
    mine = view.profile.kernels_for(view.chip.efficiency_class, view.attention or "mla")
    names = list(dict.fromkeys(k.name for k in mine))
    where = f"{view.chip.title} has {', '.join(names)}" if names else f"{view.chip.title} has none"
    message = f"{name} runs on {' and '.join(classes)} in {view.label}, not on {view.chip.title}"
    yield Found(word, message, f"leave the choice to the engine; {where}")


def _no_backend(view: View) -> Iterator[Found]:
    if not _ready(view) or backend(view) is not None:
        return
    assert view.chip is not None
    if not view.profile.kernels_for(view.chip.efficiency_class, view.attention or "mla"):
        yield Found(view.launch.anchor, f"{view.label} has no backend for {_kind(view)} on {view.chip.title}",
                    "take a chip that has one")  # fmt: skip


def _kv_dtype(view: View) -> Iterator[Found]:
    if not _ready(view):
        return
    assert view.chip is not None
    assert view.plan is not None
    dtype, kernels = view.plan["kv_dtype"], usable(view)
    if not kernels or any(dtype in k.kv_dtypes for k in kernels):
        return
    if dtype == "fp8_e5m2" or dtype.startswith(
        ("turboquant", "octave", "ultraquant", "int4_per", "int8_per", "fp8_per")
    ):
        return  # not in the profiles
    read = list(dict.fromkeys(d for k in kernels for d in k.kv_dtypes))
    who = kernels[0].name if backend(view) else "a backend"
    words = f"{who} of {view.label}" if backend(view) else f"{view.label}"
    message = f"{words} reads no {dtype} cache for {_kind(view)} on {view.chip.title}; it reads {', '.join(read)}"
    yield Found(view.place(*DTYPE_FLAGS), message, _dtype_help(view, dtype))


def _dtype_help(view: View, dtype: str) -> str | None:
    from mlaplan.engines.load import engine_versions, load_profile

    assert view.chip is not None
    name = "kv_cache_config.dtype" if view.engine == "trtllm" else "--kv-cache-dtype"
    later = [v for v in engine_versions(view.engine) if at_least(v, view.version) and v != view.version]
    for version in later:
        profile = load_profile(f"{view.engine}@{version}")
        if dtype in profile.kv_dtypes(view.chip.efficiency_class, view.attention or "mla"):
            return f"leave {name} at auto, or use {profile.label}"
    return f"leave {name} at auto"


def _kind(view: View) -> str:
    return {"mla": "MLA", "mla_sparse": "sparse MLA", "gqa": "grouped-query attention"}[view.attention or "mla"]


def _block(view: View) -> Iterator[Found]:
    if not _ready(view):
        return
    assert view.plan is not None
    assert view.chip is not None
    block, dtype = view.plan["block_size"], view.plan["kv_dtype"]
    if block is None:
        return  # the engine chooses
    kernels = [k for k in usable(view) if dtype in k.kv_dtypes]
    if not kernels:
        return
    word, explicit = view.part("block_size"), backend(view)
    silent = view.profile.kernel_choice == "chip" or (view.base == "vllm" and not at_least(view.version, "0.15.1"))
    automatic = view.profile.automatic(view.chip.efficiency_class, view.attention or "mla", dtype)
    chosen = kernels[0] if explicit or automatic is None or automatic not in kernels else automatic
    if explicit is None and not silent and any(_takes(k, block) for k in kernels):
        return
    if _takes(chosen, block):
        return
    sizes = ", ".join(map(str, chosen.blocks))
    if explicit is None and not silent:
        told = sorted({b for k in kernels for b in k.blocks})
        yield Found(word, f"no backend of {view.label} takes blocks of {block} for a {dtype} cache of {_kind(view)} on "
                    f"{view.chip.title}; blocks are {', '.join(map(str, told))}",
                    "leave out the block size")  # fmt: skip
        return
    if silent and explicit is None:
        message = (f"{view.label} takes {chosen.name} on {view.chip.title} and sets its blocks to "
                   f"{chosen.default_block} whatever is asked for; {block} has no effect")  # fmt: skip
        yield Found(word, message, f"use {sizes}", "warning")
        return
    yield Found(word, f"{chosen.name} of {view.label} takes blocks of {sizes}, not {block}",
                f"use {chosen.default_block}, or leave out the block size", edit=None)  # fmt: skip


def _takes(kernel: Kernel, block: int) -> bool:
    """Whether a block size is one of the kernel's, or a multiple of its largest that the engine would cut."""
    return block in kernel.blocks or (len(kernel.blocks) > 1 and block % max(kernel.blocks) == 0)


def _dcp(view: View) -> Iterator[Found]:
    if not _ready(view):
        return
    assert view.plan is not None
    assert view.chip is not None
    if view.plan["dcp"] == 1 or view.profile.parallel.dcp is None or backend(view) is None:
        return
    dtype, kernels = view.plan["kv_dtype"], usable(view)
    if kernels and not any(dtype in k.dcp for k in kernels):
        name = kernels[0].name
        able = [k.name for k in view.profile.kernels_for(view.chip.efficiency_class, view.attention or "mla")
                if dtype in k.dcp]  # fmt: skip
        hint = f"use {', '.join(dict.fromkeys(able))}, or no DCP" if able else "use no DCP"
        message = (f"{name} of {view.label} returns no log-sum-exp for a {dtype} cache, which decode context "
                   "parallelism merges its parts with")  # fmt: skip
        yield Found(view.part("backend") if view.has("--attention-backend") else view.part("dcp"), message, hint)


def _nvfp4(view: View) -> Iterator[Found]:
    dtype = view.get("--kv-cache-dtype")
    if view.base == "vllm" and dtype == "nvfp4" and view.attention in ("mla", "mla_sparse"):
        yield Found(view.place("--kv-cache-dtype"), f"{view.label} has no nvfp4 KV cache with MLA", "use fp8 or auto")


def _aiter_heads(view: View) -> Iterator[Found]:
    p, model = view.plan, view.model
    if p is None or model is None or view.attention != "mla" or view.base != "vllm":
        return
    if at_least(view.version, "0.26.0") or view.env("VLLM_ROCM_USE_AITER") != "1":
        return
    if view.env("VLLM_ROCM_USE_AITER_MLA") in ("0", "false", "False"):
        return
    heads = max(a.heads for a in model.attention.values())
    local = heads // p["tp"]
    if local not in (16, 128) and heads % p["tp"] == 0:
        good = [str(heads // n) for n in (16, 128) if heads % n == 0]
        yield Found(view.part("tp"), f"{heads} heads over TP {p['tp']} leave {local} on a rank; AITER's MLA kernels of "
                    f"{view.label} take 16 or 128", f"use TP {' or '.join(good)}")  # fmt: skip


def _mla_off(view: View) -> Iterator[Found]:
    if view.attention not in ("mla", "mla_sparse") or view.base != "vllm" or view.model is None:
        return
    a = next(a for a in view.model.attention.values() if a.kind == "mla")
    width = a.qk_nope_head_dim + a.qk_rope_head_dim
    latent = a.kv_lora_rank + a.qk_rope_head_dim
    tp = view.plan["tp"] if view.plan else 1
    if view.env("VLLM_MLA_DISABLE") in ("1", "true", "True"):
        expanded = a.heads // tp * 2 * width
        times = expanded / latent
        yield Found(view.launch.env["VLLM_MLA_DISABLE"], f"without MLA the cache holds full keys and values: "
                    f"{2 * expanded:,} instead of {2 * latent:,} bytes per token, layer and GPU, {times:.1f} times as "
                    "much", "remove VLLM_MLA_DISABLE", needed=2 * expanded, available=2 * latent, unit="B")  # fmt: skip
    elif view.model.name.startswith(view.profile.expands_mla):
        expanded = a.heads // tp * 2 * width
        yield Found(view.launch.anchor, f"{view.label} does not treat {view.model.title} as MLA: its cache holds full "
                    f"keys and values, {2 * expanded:,} instead of {2 * latent:,} bytes per token and layer",
                    "count on the larger cache, or serve it with an engine that keeps latents", "info")  # fmt: skip


BACKEND = LintRule(
    "MLA501", "backend-chip", "error", "the attention backend does not run on the chip",
    "`Selected backend X is not valid for this configuration`: kernels are written for one or two GPU generations.",
    "Leave the choice to the engine, or name a backend of the chip.",
    f"# vLLM 0.33.0\n# mlaplan: chip=b200-sxm\n{V3} --attention-backend FLASHMLA\n",
    f"# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\n{V3} --attention-backend FLASHMLA\n",
    "vllm/v1/attention/backends/mla/*.py; vllm-project/vllm issues 24513 and 15590", _backend_chip,
    needs=("model", "chip"),
)  # fmt: skip
KV_DTYPE = LintRule(
    "MLA502", "kv-dtype-kernel", "error", "no backend reads such a KV cache on the chip",
    "Each backend reads some dtypes only, and what a version's backends read grows from version to version.",
    "Leave --kv-cache-dtype at auto, or take a version whose backends read it.",
    f"# vLLM 0.15.1\n# mlaplan: chip=mi300x\n{V3} --kv-cache-dtype fp8\n",
    f"# vLLM 0.33.0\n# mlaplan: chip=mi300x\n{V3} --kv-cache-dtype fp8\n",
    "vllm/v1/attention/backends/mla/*.py; sglang/srt/layers/attention/*.py; ROCm/vllm pull 509", _kv_dtype,
    needs=("model", "chip"),
)  # fmt: skip
BLOCK = LintRule(
    "MLA503", "block-size-kernel", "error", "the attention kernel does not take the block size",
    "A backend that is asked for by name refuses other block sizes (error). Where an older version sets its own size "
    "without a word, the flag has no effect (warning). Where the version is open, it is info.",
    "Leave out the block size: the engine takes the kernel's own.",
    f"# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\n{V3} --attention-backend FLASHMLA --block-size 32\n",
    f"# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\n{V3} --attention-backend FLASHMLA --block-size 64\n",
    "vllm/v1/attention/backends/mla/*.py, get_supported_kernel_block_sizes; vllm/platforms/cuda.py up to 0.11.0; "
    "sglang/srt/server_args.py",
    _block, needs=("model", "chip"),
)  # fmt: skip
DCP = LintRule(
    "MLA504", "dcp-backend", "error", "the backend cannot merge the parts of decode context parallelism",
    "Ranks hold parts of a sequence; their outputs are merged by log-sum-exp, which the kernel must return.",
    "Use another backend, or no decode context parallelism.",
    "# vLLM 0.26.0\n# mlaplan: chip=h200-sxm\n"
    "vllm serve deepseek-ai/DeepSeek-V3.2 -tp 8 -dcp 8 --attention-backend FLASHMLA_SPARSE\n",
    f"# vLLM 0.26.0\n# mlaplan: chip=h200-sxm\n{V3} -dcp 8 --attention-backend FLASHMLA\n",
    "vllm/v1/worker/cp_utils.py; vllm-project/vllm issues 28407 and 57228", _dcp, needs=("model", "chip"),
)  # fmt: skip
NVFP4 = LintRule(
    "MLA505", "nvfp4-with-mla", "error", "vLLM has no nvfp4 KV cache with MLA",
    "`nvfp4 KV cache is not supported with MLA`.", "Use fp8 or auto; nvfp4_ds_mla exists for sparse MLA on Blackwell.",
    f"# vLLM 0.33.0\n{V3} --kv-cache-dtype nvfp4\n", f"# vLLM 0.33.0\n{V3} --kv-cache-dtype fp8\n",
    "vllm/config/vllm.py at v0.33.0", _nvfp4, "vLLM from 0.26.0 on", ("vllm",), ("model",),
)  # fmt: skip
AITER = LintRule(
    "MLA506", "aiter-heads", "error", "AITER's MLA kernels do not take this many heads on a rank",
    "They were compiled for 16 and 128 local heads.", "Choose TP so that 16 or 128 heads stay on a rank.",
    "# vLLM 0.15.1\nVLLM_ROCM_USE_AITER=1 vllm serve deepseek-ai/DeepSeek-R1 -tp 4\n",
    "# vLLM 0.15.1\nVLLM_ROCM_USE_AITER=1 vllm serve deepseek-ai/DeepSeek-R1 -tp 8\n",
    "vllm/v1/attention/backends/mla/rocm_aiter_mla.py at v0.15.1; ROCm/aiter issue 1468", _aiter_heads,
    "vLLM up to 0.15.1", ("vllm",), ("model",),
)  # fmt: skip
MLA_OFF = LintRule(
    "MLA507", "mla-off", "warning", "the cache holds full keys and values instead of latents",
    "With MLA turned off, or for a model that the engine does not know as MLA, the cache is many times as large.",
    "Remove VLLM_MLA_DISABLE.",
    f"VLLM_MLA_DISABLE=1 {V3}\n", f"{V3}\n",
    "vllm/config/model.py, is_deepseek_mla; vllm-project/vllm pull 4650", _mla_off, engines=("vllm",), needs=("model",),
)  # fmt: skip

NO_BACKEND = LintRule(
    "MLA508", "no-backend", "error", "the engine has no attention backend for the model on the chip",
    "Kernels of sparse MLA exist for Hopper and later only.", "Take a chip that has one.",
    "# vLLM 0.33.0\n# mlaplan: chip=a100-sxm-80g\nvllm serve deepseek-ai/DeepSeek-V3.2 -tp 8 -pp 4\n",
    "# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-V3.2 -tp 8\n",
    "vllm/platforms/cuda.py, No valid attention backend found; kvcache-ai/ktransformers issues 1661 and 1692",
    _no_backend, needs=("model", "chip"),
)  # fmt: skip

KERNELS = (NO_BACKEND, BACKEND, KV_DTYPE, BLOCK, DCP, NVFP4, AITER, MLA_OFF)
