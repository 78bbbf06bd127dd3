"""Runs inside a process of its own: asks a checkout of InferSim, the first argument, for what comes on stdin.

InferSim reads its tables from the current folder, so it runs in a copy of them from which single rows can be left
out. Nothing of it is repeated here: its own functions are called, and what its program prints is read.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

CONFIG = "hf_configs/deepseek_v3_config.json"
PRINTED = {"ttft": "TTFT (ms):", "tpot": "TPOT (ms):", "tok_s_chip": "Throughput (TGS:tok/GPU/s):"}


def config(checkout: str, heads: int = 128) -> Any:
    from config.model_config import ModelConfig  # type: ignore[import-not-found]

    found = ModelConfig(f"{checkout}/{CONFIG}")
    found.num_attention_heads = heads
    return found


@contextmanager
def without(row: dict[str, Any] | None) -> Iterator[None]:
    """The tables without one row: a file, and what the row has in its columns."""
    if row is None:
        yield
        return
    file = Path(row["file"])
    text = file.read_text("utf-8")
    lines = text.splitlines()
    names = next(csv.reader([lines[0]]))
    kept = [
        line for line in lines[1:]
        if any(float(dict(zip(names, next(csv.reader([line])), strict=False))[k]) != v for k, v in row["cells"].items())
    ]  # fmt: skip
    if len(kept) != len(lines) - 2:
        raise LookupError(f"{file}: {len(lines) - 1 - len(kept)} rows with {row['cells']}, not one")
    file.write_text("\n".join([lines[0], *kept]) + "\n", "utf-8")
    try:
        yield
    finally:
        file.write_text(text, "utf-8")


def answer(checkout: str, ask: dict[str, Any]) -> float:
    """Seconds, or what the metric of a whole run is in."""
    from comm.comm import Comm  # type: ignore[import-not-found]
    from hardware.gpu import gpu_map  # type: ignore[import-not-found]
    from kvcache.kvcache import get_kvcache_size  # type: ignore[import-not-found]
    from layers.attn import create_attention, get_gemm_mfu_and_latency  # type: ignore[import-not-found]
    from layers.moe import MoE  # type: ignore[import-not-found]

    kind, device = ask["kind"], ask["device"]
    if kind == "run":
        return whole_run(checkout, ask)
    if kind == "gemm":
        return get_gemm_mfu_and_latency(ask["m"], ask["k"], ask["n"], device, ask["fp8"])
    model = config(checkout, ask.get("heads", 128))
    if kind == "all_reduce":
        model.hidden_size = 1
        return Comm(model, gpu_map[device], ask["ranks"]).tp_all_reduce(ask["bytes"] / 2, ask["ranks"])
    if kind in ("experts", "experts_prefill"):
        model.num_shared_experts = 0
        moe = MoE(model, True, 1)
        return (moe.decode_moe if kind == "experts" else moe.prefill_moe)(ask["tokens"], device, ask["ranks"])
    attention = create_attention(model, ask.get("fp8", False), ask.get("fp8_kv", False), 1)
    cache = get_kvcache_size(model, ask.get("fp8_kv", False), 1)
    if kind == "mla_prefill":
        return ask["batch"] * attention.prefill_attn_core(ask["tokens"], cache, device)
    core = attention.decode_attn_core(ask["batch"], ask["context"], cache, device)
    return core + attention.decode_attn_others(ask["batch"], device) if kind == "mla_module" else core


def whole_run(checkout: str, ask: dict[str, Any]) -> float:
    """What its program prints for these options."""
    from models.model import Model  # type: ignore[import-not-found]

    options = {"num_nodes": 1, "max_prefill_tokens": 4096, "decode_bs": None, "target_tgs": 2560, "target_tpot": 50,
               "target_isl": 4096, "target_osl": 2048, "use_fp8_gemm": True, "use_fp8_kv": False, "tp_size": 1,
               "enable_deepep": False, "enable_tbo": False, "sm_ratio": 108 / 132, **ask["options"]}  # fmt: skip
    run = Model(Namespace(device_type=ask["device"], **options), config(checkout))
    told = io.StringIO()
    with redirect_stdout(told):
        run.print_weights_info()
        run.print_kvcache_info()
        run.print_flops_info()
        run.prefill() if ask["phase"] == "prefill" else run.decoding()
    label = PRINTED[ask["metric"]]
    line = next(line for line in told.getvalue().splitlines() if line.startswith(label))
    value = float(line[len(label) :])
    return value if ask["metric"] == "tok_s_chip" else value * 1e-3


def main() -> None:
    checkout = sys.argv[1]
    sys.path.insert(0, checkout)
    out = []
    for ask in json.load(sys.stdin):
        with without(ask.get("without")), redirect_stdout(io.StringIO()):
            out.append(answer(checkout, ask))
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
