"""Devices: the degrees of the plan against those that are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlaplan.lint.finding import Found
from mlaplan.lint.rule import LintRule

if TYPE_CHECKING:
    from mlaplan.lint.view import View

V3 = "vllm serve deepseek-ai/DeepSeek-V3"


def _count(view: View) -> Iterator[Found]:
    have, p = view.deployment.devices, view.plan
    if have is None or p is None:
        return
    need = view.world or 1
    if need == have or not view.complete or _elsewhere(view):
        return
    parts = [f"{name} {p[key]}" for name, key in (("TP", "tp"), ("PP", "pp"), ("DP", "dp"), ("replicas", "replicas"))
             if p.get(key, 1) > 1]  # fmt: skip
    shown = " x ".join(parts) or "one GPU"
    total = f"{shown} = {need}" if len(parts) > 1 else shown
    word = view.part("tp")
    if need > have:
        yield Found(word, f"{total} devices are asked for, and there are {have}", "lower the degrees, or add devices",
                    needed=need, available=have, unit="devices")  # fmt: skip
    elif need < have and view.launch.gpus is not None and view.launch.nodes is None:
        yield Found(word, f"{total} of {have} devices are used; {have - need} stay idle",
                    "ask for fewer devices, or raise the degrees", "warning",
                    needed=need, available=have, unit="devices")  # fmt: skip


def _elsewhere(view: View) -> bool:
    """Whether ranks of this launch run in other processes or on other nodes that are not seen here."""
    flags = ("--data-parallel-size-local", "--headless", "--data-parallel-address", "--data-parallel-rank",
             "--data-parallel-start-rank", "--distributed-executor-backend", "--data-parallel-external-lb",
             "--data-parallel-hybrid-lb", "--data-parallel-backend")  # fmt: skip
    spread = any(view.get(flag) not in (None, False, "mp") for flag in flags)
    nodes = view.get("--nnodes")
    several = (isinstance(nodes, int) and nodes > 1) or "--nnodes" in view.unknown
    return spread or view.launch.spread or (several and view.launch.nodes is None)


def _attention_dp(view: View) -> Iterator[Found]:
    if view.base != "sglang":
        return
    ranks, groups = view.get("--tp-size", 1), view.get("--dp-size", 1)
    width = view.get("--attn-dp-size", 1)
    if width == 1 and view.get("--enable-dp-attention", False):
        width, groups = groups, 1
    if not all(isinstance(n, int) and n > 0 for n in (ranks, groups, width)):
        return
    word = view.place("--attn-dp-size", "--dp-size", "--tp-size")
    if ranks % width:
        yield Found(word, f"attention DP {width} does not divide the {ranks} ranks of --tp-size",
                    "in SGLang attention DP lies inside --tp-size, which counts all GPUs of the engine")  # fmt: skip
    elif groups > 1 and width > 1:
        yield Found(word, f"{groups} replicas with attention DP {width} are not supported together",
                    "use a router over several engines")  # fmt: skip
    nodes = view.get("--nnodes", 1)
    if isinstance(nodes, int) and nodes > 1 and ranks * view.get("--pp-size", 1) % nodes:
        yield Found(view.place("--nnodes"), f"{ranks} ranks do not spread evenly over {nodes} nodes",
                    "use a TP that the nodes divide")  # fmt: skip


COUNT = LintRule(
    "MLA531", "device-count", "error", "more devices are asked for than there are",
    "GPUs of a server are TP x PP x DP (decode context parallelism and expert parallelism add none). Devices that stay "
    "idle are a warning.",
    "Match the degrees and the devices.",
    f"# mlaplan: devices=8\n{V3} -tp 8 -pp 2\n", f"# mlaplan: devices=16\n{V3} -tp 8 -pp 2\n",
    "vllm/config/parallel.py, world_size; sglang/srt/server_args.py", _count,
)  # fmt: skip
ATTENTION_DP = LintRule(
    "MLA532", "attention-dp", "error", "attention DP does not fit the ranks",
    "In SGLang --tp-size counts all GPUs of the engine and attention DP divides them: --tp 8 with attention DP 8 is 8 "
    "GPUs, not 64.",
    "Choose an attention DP that divides --tp-size.",
    "# SGLang 0.5.23\npython -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --attn-dp-size 3\n",
    "# SGLang 0.5.23\npython -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --attn-dp-size 8\n",
    "sglang/srt/arg_groups/parallel_hook.py; sgl-project/sglang issues 3359 and 4765", _attention_dp,
    engines=("sglang",),
)  # fmt: skip

DEVICES = (COUNT, ATTENTION_DP)
