"""alibaba/InferSim on the same rows, from a checkout that the user names."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlaplan.calibration.rows import Rows
from peer.figures import Array

WORKER = Path(__file__).with_name("infersim_worker.py")
DEVICES = {"h800-sxm": "H800", "h200-sxm": "H200", "h20": "H20"}
NEEDED = ("main.py", "layers/attn.py", "bench_data", "hf_configs/deepseek_v3_config.json")
MLA_DECODE = "bench_data/mla/decode/{}/128-512-64.csv"
EXPERTS = {"experts": ("bench_data/grouped_gemm/decode/{}/data.csv", "batch_size_per_gpu"),
           "experts_prefill": ("bench_data/grouped_gemm/prefill/{}/data.csv", "seq_len_per_gpu")}  # fmt: skip


class InferSim:
    """A checkout; `problem` says in one line what it lacks."""

    def __init__(self, path: str) -> None:
        self.root = Path(path).resolve()

    def problem(self) -> str | None:
        missing = [name for name in NEEDED if not (self.root / name).exists()]
        if not missing:
            return None
        return f"--infersim {self.root}: has no {missing[0]}; expected a checkout of alibaba/InferSim"

    def version(self) -> str:
        """The commit, where the checkout knows it."""
        found = subprocess.run(
            ["git", "-C", str(self.root), "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, check=False
        )
        return found.stdout.strip() or "commit not known"

    def ask(self, asks: Sequence[dict[str, Any]]) -> Array:
        """Its answer to each."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(self.root / "bench_data", Path(folder) / "bench_data")
            done = subprocess.run(
                [sys.executable, str(WORKER), str(self.root)], input=json.dumps(list(asks)), cwd=folder,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"InferSim failed: {done.stderr.strip().splitlines()[-1]}")
        return np.array(json.loads(done.stdout), dtype=float)

    def rows(self, op: str, chip: str, rows: Rows) -> Array | str:
        """Seconds of rows of measured tables, or why there are none; it has no table of its own for these chips."""
        make = ASKS.get("all_reduce" if op.startswith("all_reduce") else op)
        if make is None:
            return "not asked" if op == "grouped_gemm" else "no such operator"
        if chip not in DEVICES:
            return "no such chip"
        names = list(rows.columns)
        calls = (dict(zip(names, map(int, cells), strict=True)) for cells in zip(*rows.columns.values(), strict=True))
        return self.ask([{"device": DEVICES[chip], **make(call, rows.dtype)} for call in calls])


def _module(call: dict[str, int], dtype: str) -> dict[str, Any]:
    kv, weights = dtype.split(", ")
    return {"kind": "mla_module", **call, "fp8_kv": kv.startswith("fp8"), "fp8": weights.startswith("fp8")}


ASKS = {
    "mla_decode": lambda c, d: {"kind": "mla_decode", **_of(c, "heads", "batch", "context"), "fp8_kv": d == "fp8"},
    "mla_prefill": lambda c, d: {"kind": "mla_prefill", **c, "fp8_kv": d == "fp8"},
    "mla_module": _module,
    "gemm": lambda c, d: {"kind": "gemm", **c, "fp8": d.startswith("fp8")},
    "all_reduce": lambda c, _: {"kind": "all_reduce", **c},
}


def _of(call: dict[str, int], *names: str) -> dict[str, int]:
    return {name: call[name] for name in names}


def point(chip: str, operator: str, load: dict[str, Any]) -> dict[str, Any]:
    """How to ask for a row of its own tables, with that row left out of them."""
    device = DEVICES[chip].lower()
    if operator == "mla_decode":
        cells = {"batch_size": load["batch"], "kv_len": load["context"]}
        left_out = {"file": MLA_DECODE.format(device), "cells": cells}
    else:
        file, size = EXPERTS[operator]
        shape = {"num_experts": 256, "topk": 8, "hidden_size": 7168, "intermediate_size": 2048}
        left_out = {"file": file.format(device), "cells": {**shape, "num_gpus": load["ranks"], size: load["tokens"]}}
    return {"kind": operator, "device": DEVICES[chip], **load, "without": left_out}
