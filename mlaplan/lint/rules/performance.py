"""What costs time, priced with the cost model: eager decode, TP across nodes, replicated caches, experts not spread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mlaplan.lint.finding import Found
from mlaplan.lint.rule import LintRule

if TYPE_CHECKING:
    from mlaplan.lint.view import View

CONTEXT = 4096  # cached tokens of a priced decode step
SEQUENCES = 32  # in flight over all attention-DP ranks
MANY = 64  # in flight on a rank, where it serves for throughput
WORTH = 1.25  # a gain below this is within what the model does not know
WORTH_SAME = 1.1  # the same work on the same chips, divided otherwise: the difference is known better
SMALL_CHUNK = 2048
FEW = 2  # requests on a rank
V3 = "vllm serve deepseek-ai/DeepSeek-V3"


def _priceable(view: View) -> bool:
    """Whether a step of this deployment has a price: a model and a chip, and a network if it spans nodes."""
    p = view.priced
    if p is None:
        return False
    heads = [a.heads for a in p.question.setting.model.attention.values()]
    if any(h % p.strategy.tp for h in heads):
        return False
    chip = p.question.setting.chip
    return chip.scale_out is not None or p.strategy.chips_per_replica <= chip.scale_up.chips_per_node


def _context(view: View) -> int:
    return min(CONTEXT, view.priced.max_len)


def _decodes(view: View) -> bool:
    """Whether this server decodes, as far as is known: the prefill side of a split deployment does not."""
    transfer = view.get("--kv-transfer-config")
    if isinstance(transfer, dict) and transfer.get("kv_role") == "kv_producer":
        return False
    return "--kv-transfer-config" not in view.unknown and view.get("--disaggregation-mode") != "prefill"


def _eager(view: View) -> Iterator[Found]:
    flag = "--enforce-eager" if view.base == "vllm" else "--disable-cuda-graph"
    if not view.get(flag, False) or not _decodes(view):
        return
    word = view.place(flag)
    if not _priceable(view):
        yield Found(word, f"{flag} launches every kernel of a decode step from the host", f"remove {flag}")
        return
    s, host = view.priced.strategy, view.profile.host
    batch = max(SEQUENCES // s.dp, 1)
    step = view.priced.decode_s(batch, _context(view))[0]
    layers = view.priced.question.setting.model.layer_count
    low, value, high = (layers * bound for bound in host.eager_prefill_per_layer.bounds)
    eager = max(step, value)
    if low <= step:
        message = f"{flag} costs decode up to {1e3 * max(high - step, 0):.0f} ms a step"
    else:
        message = (f"{flag} makes a decode step of {batch} sequences a rank about {1e3 * eager:.0f} ms "
                   f"({1e3 * max(low, step):.0f} to {1e3 * max(high, step):.0f}) instead of {1e3 * step:.0f} ms: "
                   f"{1e3 * (eager - step):.0f} ms a token")  # fmt: skip
    yield Found(word, message, f"remove {flag}", needed=eager, available=step, unit="s")


def _across_nodes(view: View) -> Iterator[Found]:
    p = view.priced
    if p is None or not _priceable(view):
        return
    chip, s = p.question.setting.chip, p.strategy
    inside = chip.scale_up.chips_per_node
    if s.tp <= inside or s.tp % inside or chip.scale_out is None:
        return
    batch = max(SEQUENCES // s.dp, 1)
    step, share = p.decode_s(batch, _context(view))
    others: list[tuple[float, float, str]] = []
    for label, batch_, changes in _alternatives(p, inside, batch):
        time, part = p.decode_s(batch_, _context(view), **changes)
        if time > 0:
            others.append((time, part, label))
    word = view.part("tp")
    head = (f"TP {s.tp} spans {s.tp // inside} nodes of {inside}: about {100 * share:.0f} % of a decode step of "
            f"{1e3 * step:.0f} ms is communication")  # fmt: skip
    best = min(others, default=None)
    if best is None:
        yield Found(word, head, None, "info")
        return
    if step * WORTH_SAME < best[0]:  # the fastest of all, network and all
        return
    yield Found(word, f"{head}; with {best[2]} it is {100 * best[1]:.0f} % of {1e3 * best[0]:.0f} ms",
                f"use {best[2]}", None if best[0] * WORTH_SAME < step else "info", step, best[0], "s")  # fmt: skip


def _alternatives(p: Any, inside: int, batch: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
    s, model = p.strategy, p.question.setting.model
    wide = s.tp // inside
    if s.pp * wide <= model.layer_count:
        yield (
            f"TP {inside} x PP {s.pp * wide}",
            batch,
            {"tp": inside, "pp": s.pp * wide, "ep": min(s.ep, inside * s.dp), "cp": 1 if inside % s.cp else s.cp},
        )
    if any(f.kind == "moe" for f in model.ffn.values()):
        dp = s.tp * s.dp
        changes = {"tp": 1, "dp": dp, "ep": dp, "dcp": 1, "cp": 1, "kv_layout": "replicated"}
        yield f"attention DP {dp} with EP", max(batch * s.dp // dp, 1), changes


def _replicated(view: View) -> Iterator[Found]:
    p = view.priced
    if p is None or view.attention not in ("mla", "mla_sparse"):
        return
    s, m = p.strategy, p.memory()
    if s.tp == 1 or s.dcp > 1 or m.kv_tokens <= 0 or p.holds_all():
        return
    gains = []
    chip_class = p.question.setting.chip.efficiency_class
    dcp = view.profile.parallel.dcp is not None and view.profile.kernel(
        chip_class, view.attention, s.kv_dtype, dcp=True
    )
    if dcp:
        gains.append((f"DCP {s.tp}", p.memory(dcp=s.tp, kv_layout="sequence_sharded").kv_tokens))
    if any(f.kind == "moe" for f in p.question.setting.model.ffn.values()):
        ranks = s.tp * s.dp
        with_dp = p.memory(tp=1, dp=ranks, ep=ranks, cp=1, batch=max(s.batch // s.tp, 1)).kv_tokens
        gains.append((f"attention DP {ranks} with EP", with_dp * s.tp))
    gains = [(label, tokens) for label, tokens in gains if tokens > m.kv_tokens * WORTH]
    if not gains:
        return
    told = " and ".join(f"{tokens:,} with {label}" for label, tokens in gains)
    message = (f"all {s.tp} TP ranks hold the same latent cache: about {m.kv_tokens:,} tokens fit, as many as on one; "
               f"it would be {told}")  # fmt: skip
    yield Found(view.part("tp"), message, "divide the cache where context or concurrency is what limits",
                needed=gains[0][1], available=m.kv_tokens, unit="tokens")  # fmt: skip


def _experts_whole(view: View) -> Iterator[Found]:
    p = view.priced
    if p is None or not _priceable(view) or not view.complete:
        return
    s = p.strategy
    moe = [f for f in p.question.setting.model.ffn.values() if f.kind == "moe"]
    ranks = s.tp * s.dp
    if not moe or s.ep > 1 or s.dp == 1 or moe[0].experts % ranks:
        return
    batch = min(s.batch, MANY)
    now, then = p.decode_s(batch, _context(view))[0], p.decode_s(batch, _context(view), ep=ranks)[0]
    if then * WORTH > now:
        return
    flag = "--enable-expert-parallel" if view.base == "vllm" else f"--ep-size {ranks}"
    yield Found(view.part("dp"), f"every expert is cut over {ranks} ranks: a decode step of {batch} sequences a "
                f"rank takes about {1e3 * now:.0f} ms, with whole experts on each rank {1e3 * then:.0f} ms",
                f"add {flag}",
                needed=now, available=then, unit="s")  # fmt: skip


def _few_for_dp(view: View) -> Iterator[Found]:
    """Attention DP although no more requests are admitted than TP attention would serve faster."""
    p = view.priced
    if p is None or not _priceable(view) or view.plan is None or view.plan["batch"] is None or not _decodes(view):
        return
    s = p.strategy
    ranks, in_flight = s.tp * s.dp, s.batch * s.dp
    inside = p.question.setting.chip.scale_up.chips_per_node
    heads = [a.heads for a in p.question.setting.model.attention.values()]
    if s.dp == 1 or s.batch > FEW or ranks > inside or any(h % ranks for h in heads) or not p.fits(tp=ranks, dp=1):
        return
    now = p.decode_s(s.batch, _context(view))[0]
    then = p.decode_s(in_flight, _context(view), tp=ranks, dp=1, ep=s.ep)[0]
    if then * WORTH_SAME > now:
        return
    forced = view.attention == "mla_sparse" and not view.profile.parallel.sparse_tp
    help_ = "use a version with TP attention for sparse models" if forced else "use TP attention for so few requests"
    yield Found(view.part("dp"), f"at most {in_flight} requests are admitted: a decode step takes about "
                f"{1e3 * now:.0f} ms, with TP {ranks} attention {1e3 * then:.0f} ms", help_,
                needed=now, available=then, unit="s")  # fmt: skip


def _small_budget(view: View) -> Iterator[Found]:
    p = view.priced
    if p is None or not _priceable(view) or view.plan is None or view.plan["prefill_chunk"] is None:
        return
    chunk = p.strategy.prefill_chunk
    if chunk >= SMALL_CHUNK or view.get("--disaggregation-mode") == "decode":
        return
    usual = view.profile.budget(float(p.question.setting.chip.memory.capacity), p.question.setting.chip.name).tokens
    now, then = p.prefill_s(chunk) / chunk, p.prefill_s(usual) / usual
    if now < then * WORTH:
        return
    yield Found(view.part("prefill_chunk"), f"prefill steps of {chunk:,} tokens run at about {1 / now:,.0f} tokens/s, "
                f"steps of {usual:,} at {1 / then:,.0f}", f"use {usual}, unless short gaps between tokens matter more",
                needed=1 / then, available=1 / now, unit="tokens/s")  # fmt: skip


EAGER = LintRule(
    "MLA701", "eager-decode", "warning", "decode runs without CUDA graphs",
    "--enforce-eager turns off compilation and CUDA graphs: the host launches every kernel of every decode step. "
    "Prefill servers of a split deployment are not flagged.",
    "Remove it.",
    f"# mlaplan: chip=h200-sxm\n{V3} -tp 8 --enforce-eager\n", f"# mlaplan: chip=h200-sxm\n{V3} -tp 8\n",
    "the engine profile's host.eager_prefill_per_layer, and the decode step of the cost model", _eager,
)  # fmt: skip
ACROSS = LintRule(
    "MLA702", "tp-across-nodes", "warning", "tensor parallelism spans nodes",
    "Two all-reduces a layer cross the slow network in every decode step.",
    "Keep TP inside a node: PP between nodes, or attention DP with EP.",
    "# mlaplan: chip=h100-sxm\nvllm serve deepseek-ai/DeepSeek-R1 -tp 16\n",
    "# mlaplan: chip=h100-sxm\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8 -pp 2\n",
    "the decode step of the cost model; sgl-project/sglang issue 3656; vllm-project/vllm issues 16692 and 17035",
    _across_nodes, needs=("model", "chip"),
)  # fmt: skip
REPLICATED = LintRule(
    "MLA703", "kv-replicated", "info", "every TP rank holds the whole latent cache",
    "TP adds no KV capacity for MLA: the latent has no heads to divide. Decode context parallelism and attention DP "
    "do.",
    "Divide the cache where context or concurrency is what limits; keep TP alone where latency is.",
    f"# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\n{V3} -tp 8 --max-model-len 32768\n",
    f"# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\n{V3} -tp 8 -dcp 8 --max-model-len 32768\n",
    "costs/capacity.py; vllm-project/vllm issue 47929; deepseek-ai/DeepSeek-V3 issue 283", _replicated,
    needs=("model", "chip"),
)  # fmt: skip
EXPERTS_WHOLE = LintRule(
    "MLA704", "experts-cut", "warning", "attention DP without expert parallelism",
    "Each expert is then cut over all ranks into thin products, and all tokens are gathered on all ranks.",
    "Add expert parallelism.",
    f"# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\n{V3} -dp 16\n",
    f"# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\n{V3} -dp 16 --enable-expert-parallel\n",
    "the decode step of the cost model", _experts_whole, needs=("model", "chip"),
)  # fmt: skip
SMALL_BUDGET = LintRule(
    "MLA705", "small-token-budget", "info", "prefill steps are too short to use the chip",
    "Weights are streamed once a step: a step of few prompt tokens takes almost as long as one of many.",
    "Raise the token budget, unless short gaps between tokens matter more.",
    f"# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\n{V3} -tp 8 --max-num-batched-tokens 512 --max-num-seqs 64\n",
    f"# vLLM 0.33.0\n# mlaplan: chip=h200-sxm\n{V3} -tp 8 --max-num-batched-tokens 8192 --max-num-seqs 64\n",
    "the prefill step of the cost model", _small_budget, needs=("model", "chip"),
)  # fmt: skip

FEW_FOR_DP = LintRule(
    "MLA706", "few-for-attention-dp", "info", "attention DP at a concurrency where TP attention is faster",
    "With a request or two on a rank each rank streams all attention weights for them, and ranks without any wait.",
    "Use TP attention where few requests are served at a time.",
    "# SGLang 0.5.23\n# mlaplan: chip=h200-sxm\npython -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3.2 "
    "--tp 8 --attn-dp-size 8 --max-running-requests 8\n",
    "# SGLang 0.5.23\n# mlaplan: chip=h200-sxm\npython -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3.2 "
    "--tp 8 --max-running-requests 8\n",
    "the decode step of the cost model; sgl-project/sglang issue 11358", _few_for_dp, needs=("model", "chip"),
)  # fmt: skip

PERFORMANCE = (FEW_FOR_DP, EAGER, ACROSS, REPLICATED, EXPERTS_WHOLE, SMALL_BUDGET)
