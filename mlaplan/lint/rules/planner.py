"""The planner's own rules, applied to a deployment, and the limits of the engine's profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mlaplan.engines.load import load_profile
from mlaplan.lint.finding import Found
from mlaplan.lint.rule import LintRule

if TYPE_CHECKING:
    from mlaplan.engines.limits import Limit
    from mlaplan.lint.view import View

V3 = "vllm serve deepseek-ai/DeepSeek-V3"


Verdicts = dict[str, str | None]  # rule -> what it says of a deployment, None where it holds
_KNOWN: dict[tuple[Any, ...], Verdicts] = {}


def _verdicts(view: View, row: dict[str, Any]) -> Verdicts:
    """What is known of deployments with the same model, chip, engine and degrees: many files differ in none of them."""
    key = (id(view.model), id(view.chip), view.engine, view.version, redundant(view), *row.values())
    return _KNOWN.setdefault(key, {})


def _applies(name: str, part: str | tuple[str, ...], *, only: Callable[[View], bool] | None = None) -> Any:
    """A check that asks the planner's rule of this name and reports at the flag behind `part`."""
    parts = (part,) if isinstance(part, str) else part

    def check(view: View) -> Iterator[Found]:
        row = view.row
        if row is None:
            return
        known = _verdicts(view, row)
        if known.get(name, "") is None or (only is not None and not only(view)):
            return
        if name not in known:
            from mlaplan.rules import legality

            rule, question = getattr(legality, name), _question(view, with_engine=name == "BLOCK")
            known[name] = rule.detail(question, row) if rule.violated(question, row) else None
        if (said := known[name]) is None:
            return
        places = [view.part(one) for one in parts]
        word = next((place for place in places if place is not view.launch.anchor), view.launch.anchor)
        assert view.model is not None
        yield Found(word, f"{view.model.title}: {said}", advice(view, name))

    return check


def _heads(view: View) -> Iterator[Found]:
    """Heads by TP, also of a model whose config.json can be read and not priced."""
    heads, p = view.deployment.heads, view.plan
    if view.model is None and heads is not None and p is not None and heads % p["tp"]:
        fitting = ", ".join(str(n) for n in range(1, 65) if heads % n == 0)
        message = f"{heads} attention heads do not divide by TP {p['tp']}"
        yield Found(view.part("tp"), message, f"use TP {fitting}", needed=heads, available=p["tp"])
    yield from _applies("HEADS", "tp")(view)


def _node(view: View) -> Iterator[Found]:
    """Groups over nodes: a TP group that straddles them costs every step, a stage of DP ranks its all-to-all."""
    row = view.row
    if row is None or view.chip is None or not heads_divide(view):
        return
    tp, per_node = row["tp"], view.chip.scale_up.chips_per_node
    straddles = tp % per_node != 0 if tp > per_node else per_node % tp != 0
    for found in _applies("NODE", ("tp", "dp"))(view):
        yield found if straddles else found._replace(severity="info")


def advice(view: View, name: str) -> str | None:
    """Values that would be legal, where a short list of them exists."""
    if name == "HEADS" and view.model is not None:
        heads = [a.heads for a in view.model.attention.values()]
        fitting = [n for n in range(1, 65) if all(h % n == 0 for h in heads)]
        return f"use TP {', '.join(map(str, fitting[:10]))}"
    row = view.row
    if name == "BLOCK" and row is not None:
        fitting = [tp for tp in (1, 2, 4, 8, 16, 32) if tp < row["tp"] and not _breaks_block(view, {**row, "tp": tp})]
        return f"use TP {fitting[-1]} or less, with PP for the other chips" if fitting else None
    return None


def _breaks_block(view: View, row: dict[str, Any]) -> bool:
    from mlaplan.rules.legality import BLOCK

    return bool(
        BLOCK.violated(_question(view, with_engine=True), {**row, "ep": 1 if row["ep"] == 1 else row["tp"] * row["dp"]})
    )


ANY_CHIP = "h200-sxm"  # for habits of an engine that are the same on every chip


def _question(view: View, *, with_engine: bool = False) -> Any:
    """As much of the planner's question as rules of structure read."""
    engine: Any = SimpleNamespace(beside=SimpleNamespace(ranks=0))  # no deployment sets ranks apart for shared experts
    if with_engine:
        from mlaplan.costs.placement import division

        engine = division(view.profile, view.chip.name if view.chip is not None else ANY_CHIP)
    setting = SimpleNamespace(model=view.model, chip=view.chip, engine=engine, redundant_experts=redundant(view))
    return SimpleNamespace(setting=setting)


def redundant(view: View) -> int:
    """Redundant experts that the flags ask for."""
    config = view.get("--eplb-config") or {}
    count = view.get("--num-redundant-experts") or view.get("--ep-num-redundant-experts")
    count = count if count is not None else config.get("num_redundant_experts", 0)
    return count if isinstance(count, int) and 0 <= count <= 10**6 else 0


def _as_published(view: View) -> bool:
    """Whether the weights are the model's own: a path that is not known may lead to converted ones."""
    word = view.deployment.model_word
    return word is not None and word.unknown is None and view.get("--quantization") is None


def heads_divide(view: View) -> bool:
    """Whether heads divide by TP: where they do not, that is what is wrong."""
    assert view.model is not None
    assert view.plan is not None
    return _as_published(view) and all(a.heads % view.plan["tp"] == 0 for a in view.model.attention.values())


def ranks_divide(view: View) -> bool:
    """Whether heads and experts divide over the ranks at all."""
    assert view.plan is not None
    return heads_divide(view) and view.plan["tp"] * view.plan["dp"] % view.plan["ep"] == 0


def has_experts(view: View) -> bool:
    """Whether experts are what is divided, by ranks that also divide the heads."""
    assert view.model is not None
    return heads_divide(view) and any(f.kind == "moe" for f in view.model.ffn.values())


def balances(view: View) -> bool:
    """Whether experts are placed by the load balancer, which wants equal shares."""
    return bool(view.get("--enable-eplb", False)) and view.plan is not None and view.plan["ep"] > 1


# parts of a limit, and how sure its source is for a deployment
LIMITED = {"ep": "error", "dp": "error", "dcp": "warning", "cp": "warning", "tp": "warning", "mtp": "info",
           "two_batch_overlap": "warning"}  # fmt: skip


def _limits(view: View) -> Iterator[Found]:
    if view.row is None or view.chip is None or view.model is None or view.plan is None:
        return
    chip_class = view.chip.efficiency_class
    if chip_class not in view.profile.runs_on or view.chip.name in view.profile.not_on:
        other = view.profile.elsewhere.get(chip_class)
        hint = f"; {other} does" if other else ""
        yield Found(view.launch.anchor, f"{view.label} does not run on {view.chip.title}{hint}")
        return
    from mlaplan.lint.rules.kernels import backend

    heads = max(a.heads for a in view.model.attention.values())
    moe = any(f.kind == "moe" for f in view.model.ffn.values())
    kind = view.attention or "mla"
    block = view.plan["block_size"] or view.profile.default_block(chip_class, kind, view.row["kv_dtype"])
    strategy = SimpleNamespace(**view.row, block_size=block or 64, two_batch_overlap=view.plan["two_batch_overlap"])
    named = backend(view) is not None
    told = set()
    for limit in _limits_of(view.engine, view.version, kind, chip_class, heads, moe):
        if limit.part == "dcp" and named:
            continue  # what the named backend can do is what counts
        if limit.breaks(strategy) and (text := limit.text(strategy)) not in told:
            told.add(text)
            yield Found(view.part(limit.part), text, severity=LIMITED[limit.part])


@lru_cache(maxsize=256)
def _limits_of(engine: str, version: str, kind: str, chip_class: str, heads: int, moe: bool) -> tuple[Limit, ...]:
    """The limits of an engine that a deployment can break."""
    from mlaplan.engines.limits import limits

    profile = load_profile(f"{engine}@{version}")
    return tuple(one for one in limits(profile, kind, chip_class, heads=heads, moe=moe) if one.part in LIMITED)


HEADS = LintRule(
    "MLA101", "heads-per-rank", "error", "attention heads do not divide by TP",
    "Every tensor-parallel rank computes the same number of whole heads; the engine refuses to start otherwise.",
    "Choose a TP that divides the heads.",
    f"{V3} --tensor-parallel-size 6\n", f"{V3} --tensor-parallel-size 8\n",
    "vllm/config/model.py, verify_with_parallel_config", _heads,
)  # fmt: skip
DCP = LintRule(
    "MLA102", "dcp-divides-tp", "error", "decode context parallelism does not divide TP",
    "It shares the sequence among TP ranks that would hold the same cache, and adds no chips.",
    "Choose a divisor of TP.",
    f"# vLLM 0.33.0\n{V3} -tp 8 -dcp 3\n", f"# vLLM 0.33.0\n{V3} -tp 8 -dcp 4\n",
    "vllm/config/parallel.py", _applies("DCP", "dcp"), needs=("model",),
)  # fmt: skip
BLOCK = LintRule(
    "MLA103", "fp8-block-per-shard", "error", "a shard is no multiple of the fp8 scale block",
    "Block-quantised weights can only be cut at block borders: `Weight input_size_per_partition = 576 is not divisible "
    "by weight quantization block_k = 128`.",
    "Use a smaller TP with PP, or expert parallelism where only experts are cut.",
    "vllm serve deepseek-ai/DeepSeek-R1 --tensor-parallel-size 32\n",
    "vllm serve deepseek-ai/DeepSeek-R1 --tensor-parallel-size 16 --pipeline-parallel-size 2\n",
    "vllm/model_executor/layers/quantization/utils/fp8_utils.py; vllm-project/vllm issue 12256; "
    "sgl-project/sglang issue 3345",
    _applies("BLOCK", "tp", only=ranks_divide), needs=("model",),
)  # fmt: skip
EXPERTS = LintRule(
    "MLA104", "experts-per-rank", "error", "experts do not divide by EP under the expert load balancer",
    "EPLB supports an even distribution only; redundant experts can fill up the count. Without EPLB uneven experts are "
    "allowed, and nothing is said.",
    "Choose redundant experts so that the sum divides.",
    f"# vLLM 0.33.0\n{V3} -tp 6 --enable-expert-parallel --enable-eplb\n",
    f"# vLLM 0.33.0\n{V3} -tp 8 --enable-expert-parallel --enable-eplb\n",
    "vllm/config/parallel.py; vllm/model_executor/layers/fused_moe/layer.py",
    _applies("EXPERTS", "ep", only=balances), needs=("model",),
)  # fmt: skip
WEIGHTS = LintRule(
    "MLA109", "weight-dtype-absent", "warning", "the chip does not multiply the weights' dtype",
    "fp8 weights on a chip without fp8 run through weight-only kernels where the engine has them, or not at all: "
    "`fp8e4nv not supported`.",
    "Take a bf16 or int8 checkpoint, or a chip that has the dtype.",
    "# mlaplan: chip=a100-sxm-80g\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8 -pp 2\n",
    "# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8\n",
    "deepseek-ai/DeepSeek-R1 issue 588", _applies("WEIGHTS", "tp", only=_as_published),
    needs=("model", "chip"),
)  # fmt: skip
ENGINE = LintRule(
    "MLA120", "engine-limit", "error", "the engine cannot express the combination",
    "Each engine version combines only some parallel degrees, KV layouts and dtypes. How sure a limit is decides its "
    "severity: what was read in the source as refused is an error, what was not read is info.",
    "Use a combination that the version has.",
    "# vLLM 0.33.0\n# mlaplan: chip=ascend-910c-die\nvllm serve deepseek-ai/DeepSeek-V3 -tp 16\n",
    "# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-V3 -tp 8\n",
    "the engine profiles, from each version's source", _limits, needs=("model", "chip"),
)  # fmt: skip

EP_WIDTH = LintRule(
    "MLA105", "expert-width", "error", "EP x MoE-TP does not cut the experts evenly over TP x DP",
    "The chips of a pipeline stage hold the experts as EP x MoE-TP, and MoE-TP divides their width.",
    "Choose an EP that divides the ranks.",
    "# SGLang 0.5.23\npython -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --ep-size 3\n",
    "# SGLang 0.5.23\npython -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --ep-size 4\n",
    "sglang/srt/server_args.py", _applies("EP_WIDTH", ("ep", "tp"), only=has_experts), needs=("model",),
)  # fmt: skip
STAGES = LintRule(
    "MLA108", "layers-per-stage", "error", "more pipeline stages than layers",
    "Every stage holds at least one layer.", "Use fewer stages.",
    "vllm serve deepseek-ai/DeepSeek-V2-Lite -pp 32\n", "vllm serve deepseek-ai/DeepSeek-V2-Lite -pp 2\n",
    "vllm/distributed/utils.py, get_pp_indices", _applies("STAGES", "pp"), needs=("model",),
)  # fmt: skip

NODE = LintRule(
    "MLA106", "node-boundary", "warning", "a TP group straddles nodes unevenly",
    "Groups that start in one node and end in another put part of every collective on the slow link. Where only the "
    "attention-DP ranks of a stage do, it is info. Nodes are as large as the chip's file says, or as the pods, "
    "--nnodes or a comment `# mlaplan: node=4` say.",
    "Choose a TP that divides a node, or is whole nodes.",
    "# vLLM 0.33.0\n# mlaplan: chip=h100-sxm\nvllm serve zai-org/GLM-4.7-Flash -tp 5 -pp 2\n",
    "# vLLM 0.33.0\n# mlaplan: chip=h100-sxm\nvllm serve zai-org/GLM-4.7-Flash -tp 4 -pp 4\n",
    "rules/legality.py", _node, needs=("model", "chip"),
)  # fmt: skip
NETWORK = LintRule(
    "MLA107", "no-scale-out", "info", "a replica spans nodes, and nothing is known of the network between them",
    "The chip's file has no scale_out figure: what communication costs is not priced, so no rule can warn of it.",
    "Add scale_out to a copy of the chip's file.",
    "# vLLM 0.33.0\n# mlaplan: chip=sc11\nvllm serve deepseek-ai/DeepSeek-V3 -tp 8 -pp 4\n",
    "# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-V3 -tp 8 -pp 4\n",
    "rules/legality.py", _applies("NETWORK", ("pp", "tp")), needs=("model", "chip"),
)  # fmt: skip

PLANNER = (HEADS, DCP, BLOCK, EXPERTS, EP_WIDTH, NODE, NETWORK, STAGES, WEIGHTS, ENGINE)
