"""`check` over many manifests on one core, and its start-up. Run by hand: pytest benchmarks/test_check_bench.py -s"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
CACHE = Path(tempfile.gettempdir()) / "mlaplan-bench"  # byte code
MANIFEST = """apiVersion: apps/v1
kind: Deployment
metadata: {{name: server-{i}, labels: {{app: server-{i}}}}}
spec:
  replicas: 2
  template:
    spec:
      nodeSelector: {{nvidia.com/gpu.product: {chip}}}
      containers:
        - name: server
          image: {image}
          env:
            - {{name: HF_HOME, value: /models}}
            - {{name: PORT, value: "{port}"}}
          command: [sh, -c]
          args:
            - >-
              vllm serve {model} --port $PORT --tensor-parallel-size {tp}
              --max-model-len {length} --max-num-seqs {batch} --gpu-memory-utilization 0.9
              --trust-remote-code --served-model-name server-{i}
          resources:
            limits: {{nvidia.com/gpu: {tp}, cpu: "32", memory: 512Gi}}
          readinessProbe: {{httpGet: {{path: /health, port: {port}}}, periodSeconds: 10}}
---
apiVersion: v1
kind: Service
metadata: {{name: server-{i}}}
spec: {{selector: {{app: server-{i}}}, ports: [{{port: {port}}}]}}
"""
CHIPS = ("NVIDIA-H200", "NVIDIA-H100-80GB-HBM3", "NVIDIA-B200")
IMAGES = ("vllm/vllm-openai:v0.11.0", "vllm/vllm-openai:v0.33.0", "vllm/vllm-openai:latest")
MODELS = ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2", "moonshotai/Kimi-K2-Instruct", "unknown/model")


def cpu_s(folder: Path, *arguments: str) -> tuple[float, str]:
    """Seconds of CPU of one `check`, and its summary."""
    env = {**os.environ, "PYTHONPATH": str(REPO), "PYTHONPYCACHEPREFIX": str(CACHE)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled once
    before = os.times()
    done = subprocess.run([sys.executable, "-m", "mlaplan", "check", *arguments], cwd=folder, env=env, check=False,
                          capture_output=True, text=True)  # fmt: skip
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, done.stderr.strip().splitlines()[-1]


def test_a_thousand_manifests(tmp_path: Path) -> None:
    for i in range(1000):
        values = {"chip": CHIPS[i % 3], "image": IMAGES[i // 3 % 3], "model": MODELS[i % 4], "tp": (4, 8)[i % 2],
                  "length": 4096 * (1 + i % 16), "batch": 16 * (1 + i % 32), "port": 8000 + i}  # fmt: skip
        (tmp_path / f"m{i:04}.yaml").write_text(MANIFEST.format(i=i, **values))
    cpu_s(tmp_path, "m0000.yaml")
    used, said = cpu_s(tmp_path, ".")
    print(f"\n1,000 manifests: {used:.2f} s of CPU, {said}")
    assert used < 5


def test_start_up(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("# vLLM 0.33.0\nvllm serve some/model -tp 8\n")
    cpu_s(tmp_path, "a.sh")
    times = sorted(cpu_s(tmp_path, "a.sh")[0] for _ in range(7))
    print(f"\nstart-up: {times[3]:.2f} s of CPU, {times[0]:.2f} s at best")
    assert times[3] < 0.3


MIB = 1 << 20
POD = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n"
LARGE = {
    "launches.sh": "vllm serve deepseek-ai/DeepSeek-V3 -tp 8\n" * 25_000,
    "flags.sh": "vllm serve deepseek-ai/DeepSeek-V3 " + "--max-num-seqs 8 " * 61_000,
    "values.yaml": POD + "  - {image: 'vllm/vllm-openai:v0.33.0', args: [--model, deepseek-ai/DeepSeek-V3]}\n" * 12_000,
    "script.yaml": POD
    + "  - command: [sh, -c]\n    args:\n    - |\n"
    + "      vllm serve deepseek-ai/DeepSeek-V3\n" * 25_000,
}
PEAK = """
import resource, sys
from mlaplan.__main__ import main

main(["check", sys.argv[1]])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


@pytest.mark.parametrize("name", LARGE)
def test_a_mebibyte(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(LARGE[name][: MIB - 1])
    (tmp_path / "a.sh").write_text("vllm serve deepseek-ai/DeepSeek-V3 -tp 8\n")
    start, used = min(cpu_s(tmp_path, "a.sh")[0] for _ in range(3)), min(cpu_s(tmp_path, name)[0] for _ in range(3))
    done = subprocess.run([sys.executable, "-c", PEAK, name], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPO)},
                          capture_output=True, text=True, check=True)  # fmt: skip
    peak = int(done.stdout.split()[-1])
    print(f"\n{name}: {used - start:.2f} s of CPU above a small file, {peak} MiB at the most")
    assert used - start < 1
    assert peak < 200
