"""Weight formats of a config.json: which part of the model is stored in which dtype, with which scales.

Reads `quantization_config` (of the file or nested in its text part) and the `hf_quant_config.json` that
NVIDIA's releases keep beside it. Embedding and router stay as they are: no supported format converts them.
Source: quantization_config classes of transformers, the compressed-tensors format, ModelOpt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mlaplan.errors import SpecError
from mlaplan.specs import source
from mlaplan.specs.hf_keys import Keys
from mlaplan.specs.hf_modules import Modules, matcher, part_modules

PLAIN = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4}
MIXED_FROM = 0.05  # share of a part in a wider dtype from which the whole part is counted in it


@dataclass(frozen=True, slots=True)
class Format:
    """How a quantised matrix is stored: a scale of `scale_bytes` per block, group along K, or row."""

    dtype: str
    block: tuple[int, int] | None = None
    group: int | None = None
    scale_bytes: int = 4


NVFP4 = Format("fp4", group=16, scale_bytes=1)
MXFP4 = Format("fp4", group=32, scale_bytes=1)
# quant_algo of ModelOpt
ALGORITHMS = {
    "NVFP4": NVFP4,
    "W4A16_NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4,
    "MXFP4": MXFP4,
    "W4A8_MXFP4_FP8": MXFP4,
    "FP8": Format("fp8"),
    "FP8_PER_CHANNEL_PER_TOKEN": Format("fp8"),
    "FP8_PB_WO": Format("fp8", block=(128, 128)),
    "FP8_PB_REAL": Format("fp8", block=(128, 128)),
    "W4A16_AWQ": Format("int4", group=128, scale_bytes=2),
    "W4A8_AWQ": Format("int4", group=128, scale_bytes=2),
    "W8A8_SQ_PER_CHANNEL": Format("int8"),
    "INT8_SQ": Format("int8"),
}
METHODS = ("fp8", "fbgemm_fp8", "compressed-tensors", "modelopt", "awq", "gptq", "mxfp4")


@dataclass(frozen=True, slots=True)
class Shape:
    """What the names of the modules depend on."""

    layers: list[dict[str, Any]]
    attention: dict[str, dict[str, Any]]
    ffn: dict[str, dict[str, Any]]
    mtp: dict[str, Any] | None
    hidden_size: int


@dataclass(slots=True)
class Scheme:
    """A checkpoint's quantisation: the format of a module, None where it stays unquantised."""

    default: Format | None
    of: Callable[[str], Format | None]
    lm_head: bool = False
    kv_cache: bool = False


def read(keys: Keys, outer: Keys, shape: Shape, notes: list[str]) -> dict[str, Any]:
    """The `weights` of a model spec."""
    plain = _plain_dtype(keys, outer, notes)
    scheme = _scheme(keys, outer, notes)
    weights: dict[str, Any] = {"embedding": plain, "lm_head": plain, "router": plain}
    if scheme is None:
        return {"default": plain} | weights
    if scheme.kv_cache:
        notes.append("the checkpoint carries scales for an fp8 KV cache")
    parts = part_modules(shape).items()
    found = {part: _part(part, modules, scheme, plain, notes) for part, modules in parts}
    main = next((found[part] for part in ("routed", "dense", "attention") if part in found), None)
    form = main if isinstance(main, Format) else scheme.default or Format(plain)
    weights |= {"default": form.dtype, "block": form.block, "group": form.group}
    weights["scale_bytes"] = form.scale_bytes
    for part, stored in found.items():
        dtype = stored.dtype if stored else plain
        weights[part] = None if dtype == form.dtype else dtype
    if scheme.lm_head and scheme.default:
        weights["lm_head"] = scheme.default.dtype
    return weights


def _plain_dtype(keys: Keys, outer: Keys, notes: list[str]) -> str:
    """Dtype of what is not quantised."""
    for where in (keys, outer):
        if (name := where.given("dtype", "torch_dtype")) is None:
            continue
        value = where.data[name]
        if value == "auto":
            break
        dtype = PLAIN.get(str(value).removeprefix("torch."))
        if dtype is None:
            expected = f"one of {', '.join(PLAIN)}"
            where.complain(name, f"{name}: '{value}' is no dtype of unquantised weights", expected=expected)
            return "bf16"
        if dtype == "fp32":
            notes.append("the checkpoint is float32; engines serve it in bf16, which is what is counted")
            return "bf16"
        return dtype
    notes.append("config.json does not give the dtype; bf16 is taken")
    return "bf16"


def _part(part: str, modules: Modules, scheme: Scheme, plain: str, notes: list[str]) -> Format | None:
    """The format of one part: the one of its modules, or the widest that a real share of its weights has."""
    sizes: dict[Format | None, float] = {}
    for name, params in modules:
        stored = scheme.of(name)
        sizes[stored] = sizes.get(stored, 0.0) + params
    total = sum(sizes.values())
    if len(sizes) == 1:
        return next(iter(sizes))
    dtypes = {stored: stored.dtype if stored else plain for stored in sizes}
    counted = [stored for stored, size in sizes.items() if size >= MIXED_FROM * total]
    widest = max(counted, key=lambda stored: BITS[dtypes[stored]])
    shares = ", ".join(f"{size / total:.0%} {dtypes[stored]}" for stored, size in sizes.items())
    notes.append(f"{part} weights are mixed ({shares}) and all counted as {dtypes[widest]}")
    return widest


def _scheme(keys: Keys, outer: Keys, notes: list[str]) -> Scheme | None:
    for where in (outer, keys):
        if isinstance(where.data.get("quantization_config"), dict) and where.data["quantization_config"]:
            return _method(_below(where, "quantization_config"))
        if (name := where.given("quantization_config", "quantization")) is not None:
            method = where.data[name]
            _unknown(where, name, "mlx" if isinstance(method, dict) else str(method))
            return None
    beside = _beside(keys)
    if beside is None:
        return None
    notes.append(f"weight format from {Path(beside.file).name} beside it")
    quant = Keys(beside, (), keys.problems)
    if not isinstance(beside.data.get("quantization"), dict):
        quant.missing("quantization")
        return None
    return _modelopt(Keys(beside, ("quantization",), keys.problems))


def _beside(keys: Keys) -> source.Document | None:
    """ModelOpt's own file next to config.json."""
    path = Path(keys.document.file)
    if not path.name.endswith("config.json"):
        return None
    path = path.with_name(path.name.removesuffix("config.json") + "hf_quant_config.json")
    if not path.is_file():
        return None
    try:
        return source.read(path)
    except SpecError as error:
        keys.problems.extend(error.problems)
        return None


def _unknown(keys: Keys, name: str, method: str) -> None:
    """Notes a quantisation that cannot be read."""
    message = f"unknown quantisation '{method}'"
    keys.complain(name, message, expected=f"one of {', '.join(METHODS)}")


def _method(quant: Keys) -> Scheme | None:
    name = "quant_method" if quant.given("quant_method") else "quant_algo"
    method = str(quant.data.get(name, "")).lower().replace("_", "-")
    if method in ("fp8", "fbgemm-fp8"):
        return _fp8(quant)
    if method == "compressed-tensors":
        return _compressed(quant)
    if method.startswith("modelopt") or (name == "quant_algo" and method):
        nested = isinstance(quant.data.get("quantization"), dict)
        return _modelopt(_below(quant, "quantization") if nested else quant)
    if method in ("awq", "awq-marlin", "gptq", "gptq-marlin"):
        return _weight_only(quant)
    if method == "mxfp4":
        return _uniform(quant, MXFP4)
    _unknown(quant, name, str(quant.data.get(name)))
    return None


def _fp8(quant: Keys) -> Scheme:
    block = quant.data.get("weight_block_size")
    if block is not None and not (
        isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and n > 0 for n in block)
    ):
        message = f"weight_block_size: {block} does not belong here"
        quant.complain("weight_block_size", message, expected="a list of two whole numbers")
        block = None
    return _uniform(quant, Format("fp8", block=(block[0], block[1]) if block else None))


def _weight_only(quant: Keys) -> Scheme:
    bits = quant.count("bits", "w_bit")
    if bits not in (4, 8):
        name = quant.given("bits", "w_bit") or "bits"
        quant.complain(name, f"{bits}-bit weights are not supported", expected="4 or 8")
    group = quant.data.get(quant.given("group_size", "q_group_size") or "group_size")
    group = group if isinstance(group, int) and group > 0 else None
    scheme = _uniform(quant, Format("int8" if bits == 8 else "int4", group=group, scale_bytes=2))
    scheme.lm_head = quant.data.get("lm_head") is True
    return scheme


def _uniform(quant: Keys, stored: Format) -> Scheme:
    """One format for all linear layers but those listed."""
    skipped = _skipped(quant)
    return Scheme(stored, lambda name: None if skipped(name) else stored)


def _skipped(quant: Keys) -> Callable[[str], bool]:
    listed = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
    key = quant.given(*listed)
    dynamic = quant.data.get("dynamic")  # GPTQModel: {"-:regex": {}} leaves modules out
    extra = [f"re:.*{k[2:]}" for k in dynamic if k.startswith("-:")] if isinstance(dynamic, dict) else []
    names = quant.data[key] if key else []
    if not isinstance(names, list):
        quant.complain(str(key), f"{key} is not a list", expected="a list of module names or patterns")
        names = []
    return matcher([*names, *extra], lambda i, message: quant.complain((str(key), i), message))


def _modelopt(quant: Keys) -> Scheme | None:
    skipped = _skipped(quant)
    kv_cache = bool(quant.given("kv_cache_scheme", "kv_cache_quant_algo"))
    layers = quant.data.get("quantized_layers")
    name = str(quant.data.get("quant_algo"))
    if name == "MIXED_PRECISION" and isinstance(layers, dict):
        formats: dict[str, Format] = {}
        for module, entry in layers.items():
            algorithm = str(entry.get("quant_algo")) if isinstance(entry, dict) else "None"
            if algorithm not in ALGORITHMS:
                message = f"unknown quant_algo '{algorithm}'"
                expected = f"one of {', '.join(ALGORITHMS)}"
                quant.complain(("quantized_layers", module), message, expected=expected)
                return None
            formats[module] = ALGORITHMS[algorithm]
        return Scheme(None, lambda name: None if skipped(name) else _longest(formats, name), False, kv_cache)
    if name not in ALGORITHMS:
        message = f"unknown quant_algo '{name}'"
        quant.complain("quant_algo", message, expected=f"one of {', '.join(ALGORITHMS)}")
        return None
    stored = ALGORITHMS[name]
    if stored.group and quant.given("group_size"):
        stored = Format(stored.dtype, None, quant.count("group_size"), stored.scale_bytes)
    return Scheme(stored, lambda module: None if skipped(module) else stored, kv_cache=kv_cache)


def _longest(formats: dict[str, Format], module: str) -> Format | None:
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        if (found := formats.get(".".join(parts[:end]))) is not None:
            return found
    return None


def _compressed(quant: Keys) -> Scheme | None:
    groups = quant.data.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        quant.missing("config_groups")
        return None
    skipped = _skipped(quant)
    rules: list[tuple[Callable[[str], bool], Format]] = []
    for name in groups:
        group = _below(quant, "config_groups", name)
        stored = _compressed_format(group)
        if stored is None:
            return None
        targets = group.data.get("targets") or ["Linear"]
        if not isinstance(targets, list):
            group.complain("targets", "targets is not a list", expected="a list of module names or patterns")
            return None
        patterns = ["*"] if "Linear" in targets else targets
        rules.append((matcher(patterns, partial(_complain_target, group)), stored))

    def of(module: str) -> Format | None:
        return None if skipped(module) else next((f for applies, f in rules if applies(module)), None)

    return Scheme(rules[0][1], of, kv_cache=bool(quant.given("kv_cache_scheme")))


def _complain_target(group: Keys, index: int, message: str) -> None:
    group.complain(("targets", index), message)


def _compressed_format(group: Keys) -> Format | None:
    weights = group.data.get("weights") if isinstance(group.data, dict) else None
    if not isinstance(weights, dict):
        name = ".".join(map(str, group.path))
        message, expected = f"missing key 'weights' in {name}", "the format of the weights"
        group.problems.append(group.document.problem(group.path, message, expected=expected))
        return None
    bits, kind, size = weights.get("num_bits"), weights.get("type", "int"), weights.get("group_size")
    size = size if isinstance(size, int) and size > 0 else None
    block = weights.get("block_structure")
    if (bits, kind) == (4, "float"):
        return Format("fp4", group=size or 16, scale_bytes=1)
    if (bits, kind) == (8, "float"):
        pair = (block[0], block[1]) if isinstance(block, list) and len(block) == 2 else None
        return Format("fp8", block=pair, group=size)
    if kind == "int" and bits in (4, 8):
        return Format(f"int{bits}", group=size, scale_bytes=2)
    message = f"{bits}-bit {kind} weights are not supported"
    group.complain("weights", message, expected="4 or 8 bits, int or float")
    return None


def _below(keys: Keys, *steps: str) -> Keys:
    return Keys(keys.document, (*keys.path, *steps), keys.problems)
