"""Writes the sample reports anew: `python -m reports`, from the root of the repository.

One page for each question of `SAMPLES`, and README.md with what they answer. `python -m reports k3` writes those whose
name holds `k3` alone. The pages of a run are made side by side, one process each.
"""

from __future__ import annotations

import os
import shlex
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent

# eight cards of 64 GB, on which two pools of such a model fit
ON_910B3 = "ascend-910b3 --devices 8 --isl 4096 --osl 512 --ttft 3s --tpot 60ms --engine vllm-ascend"
SAMPLES = {
    "deepseek-v2-k3": "deepseek-v2 k3 --devices 8 --isl 32k --osl 1k --concurrency 8 --set memory.capacity=80GB",
    "deepseek-v3-k3": "deepseek-v3 k3 --devices 8 --isl 32k --osl 1k --concurrency 8",
    "deepseek-v3-sc11": "deepseek-v3 sc11 --devices 8 --isl 128 --osl 1024 --concurrency 128 --mtp 0",
    "deepseek-v3-h100": "deepseek-v3 h100-sxm --devices 16 --isl 4096 --osl 1024 --concurrency 512 --engine vllm",
    "deepseek-v3-h200": "deepseek-v3 h200-sxm --devices 16 --isl 4096 --osl 1024 --concurrency 512 --engine vllm",
    "llama-3-70b-910b4": "llama-3-70b ascend-910b4 --devices 8 --isl 4096 --osl 1024 --concurrency 32",
    "qwen2.5-72b-910b4": "qwen2.5-72b ascend-910b4 --devices 8 --isl 4096 --osl 1024 --concurrency 32",
    "llama-3-70b-910b3": f"llama-3-70b {ON_910B3}",
    "llama-3-70b-910b3-apart": f"llama-3-70b {ON_910B3} --disagg on",
    "qwen2.5-72b-910b3": f"qwen2.5-72b {ON_910B3}",
    "qwen2.5-72b-910b3-apart": f"qwen2.5-72b {ON_910B3} --disagg on",
}
ARTICLES = {
    "MLA with query chunking on eight K3 cards (RTP-LLM)": (
        ("deepseek-v2-k3", "deepseek-v3-k3"),
        "Eight cards, sequences of 32k tokens. Neither model fits the 64 GB that the chip file assumes: DeepSeek-V2 is "
        "planned for cards of 80 GB instead, and the page of DeepSeek-V3 says what would hold it.",
    ),
    "MLA decode on SC11": (
        ("deepseek-v3-sc11",),
        "Four cards of two chips, 128 sequences of 128 tokens in and 1,024 out, no drafts. The article reports 532 "
        "tok/s in all.",
    ),
    "Tensor parallelism for MLA on H100": (
        ("deepseek-v3-h100", "deepseek-v3-h200"),
        "Two nodes of eight, with vLLM; the same question for H200.",
    ),
    "Kthena and Mooncake on Ascend": (
        (
            "llama-3-70b-910b4",
            "qwen2.5-72b-910b4",
            "llama-3-70b-910b3",
            "llama-3-70b-910b3-apart",
            "qwen2.5-72b-910b3",
            "qwen2.5-72b-910b3-apart",
        ),
        "Eight cards of 32 GB hold either model once. On eight of 64 GB the same question is answered with prefill and "
        "decode together and on cards of their own. Both models have grouped-query attention.",
    ),
}


def command(name: str) -> list[str]:
    """The words of the sample's question."""
    return ["report", *shlex.split(SAMPLES[name])]


def write(name: str) -> str:
    """Writes one page and returns its path as seen from the repository."""
    from mlaplan.__main__ import main

    os.chdir(HERE.parent)  # files are named as seen from here
    path = f"{HERE.name}/{name}.html"
    code = main([*command(name), "-o", path])
    if code not in (0, 1):  # 1: nothing is feasible, which is an answer
        raise SystemExit(f"{name}: {shlex.join(command(name))} ended with {code}")
    return path


def numbers(name: str) -> dict[str, object]:
    """The data in a sample's page."""
    from mlaplan.report.page.html import numbers as of

    return of((HERE / f"{name}.html").read_text("utf-8"))


def index() -> str:
    """README.md, from the numbers in the pages."""
    lines = [
        "# Sample reports",
        "",
        "Questions for each of the articles whose claims `mlaplan validate --set articles` goes through.",
        "Written by `python -m reports`, which takes less than a minute; do not edit by hand. The tests compare the",
        "numbers in the pages with fresh ones. Each page is one file: download it and open it in a browser.",
    ]
    for title, (names, told) in ARTICLES.items():
        lines += ["", f"## {title}", "", told, "", "| page | question | answer |", "| --- | --- | --- |"]
        lines += [f"| [{name}.html]({name}.html) | `{SAMPLES[name]}` | {answer(numbers(name))} |" for name in names]
    return "\n".join(lines) + "\n"


def answer(data: dict[str, object]) -> str:
    """The best plan in a few words, or what stands in the way."""
    from mlaplan.report import words

    plans, miss, apart = data["plans"], data["nearest_miss"], data.get("disagg")
    if isinstance(apart, dict) and apart["wins"] == "apart":
        pools, rate = apart["split"]["pools"], apart["split"]["tok_s_chip"]
        shown = " and ".join(f"{pool['strategy']['label']} {role}s" for role, pool in pools.items())
        return f"{shown}: {words.plain(rate['value'])} ({_band(rate)}) tok/s/chip"
    assert isinstance(plans, list)
    if not plans:
        nearest = f"; nearest {miss['label']}, {miss['rule']}" if isinstance(miss, dict) else ""
        return f"nothing feasible{nearest}"
    best = plans[0]
    rate = best["served"]["tok_s_chip"]
    return f"{best['strategy']['label']}: {words.plain(rate['value'])} ({_band(rate)}) tok/s/chip"


def _band(rate: dict[str, float]) -> str:
    from mlaplan.report import words

    return f"{words.plain(rate['low'])} to {words.plain(rate['high'])}"


def run(wanted: list[str]) -> None:
    names = [name for name in SAMPLES if not wanted or any(word in name for word in wanted)]
    if not names:
        raise SystemExit(f"no sample is called like {' or '.join(wanted)}; known are {', '.join(SAMPLES)}")
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(names))) as pool:
        list(pool.map(write, names))
    (HERE / "README.md").write_text(index(), "utf-8")


if __name__ == "__main__":
    run(sys.argv[1:])
