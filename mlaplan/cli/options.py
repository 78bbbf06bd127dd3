"""Options that `recommend` and `explain` share: name, help and metavar, written once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer


def _no_plan(model: str) -> str:
    from mlaplan.cli.saved_plans import refuse

    return refuse(model) if model and model.endswith(".json") else model


ModelName = Annotated[
    str, typer.Argument(help="a model by name, a YAML file or a config.json", metavar="MODEL", callback=_no_plan)
]
ChipName = Annotated[str, typer.Argument(help="a chip by name or a YAML file", metavar="CHIP")]


MOST = 1_000_000  # of anything countable: products of such numbers with bytes stay within 64 bits
LAYOUTS = ("replicated", "latent-sharded", "sequence-sharded")


class KvDtype(StrEnum):
    """What the cache holds."""

    bf16 = "bf16"
    fp16 = "fp16"
    fp8 = "fp8"
    fp8_ds_mla = "fp8_ds_mla"
    int8 = "int8"


class WeightDtype(StrEnum):
    """What the quantised parts of the checkpoint are kept in, or converted to."""

    bf16 = "bf16"
    fp16 = "fp16"
    fp8 = "fp8"
    int8 = "int8"
    int4 = "int4"
    fp4 = "fp4"


class Pattern(StrEnum):
    """Collectives that merge partial outputs: all-gather and reduce-scatter, or all-to-all."""

    ag_rs = "ag_rs"
    a2a = "a2a"


def _layout(text: str) -> str:
    """A KV layout by either spelling of its words: latent-sharded, latent_sharded."""
    word = text.strip().replace("_", "-")
    if word not in LAYOUTS:
        raise typer.BadParameter(f"'{text}' is not one of {', '.join(LAYOUTS)}")
    return word.replace("-", "_")


def _count(flag: str, text: str) -> Any:
    return typer.Option(flag, min=1, max=MOST, metavar="N", help=text)


# ---- parallel degrees ----

Tp = Annotated[int | None, _count("--tp", "Ranks that share the attention heads.")]
Pp = Annotated[int | None, _count("--pp", "Pipeline stages.")]
Dp = Annotated[int | None, _count("--dp", "Attention data-parallel ranks of a stage.")]
Ep = Annotated[int | None, _count("--ep", "Ranks that share the experts; 1: every expert split over TP x DP.")]
Dcp = Annotated[
    int | None, _count("--dcp", "Decode context parallelism: ranks of a TP group that share each sequence.")
]
DcpMerge = Annotated[
    Pattern | None, typer.Option("--dcp-merge", help="How DCP ranks merge outputs; the engine's default if none.")
]
DcpInterleave = Annotated[int | None, _count("--dcp-interleave", "Tokens in a row that one DCP rank holds; 1 if none.")]
Cp = Annotated[int | None, _count("--cp", "Prefill context parallelism: ranks of a TP group that share each prompt.")]
Replicas = Annotated[int | None, _count("--replicas", "Copies of the whole model.")]

# ---- precision, cache, scheduler ----

KvLayout = Annotated[
    str | None,
    typer.Option("--kv-layout", parser=_layout, metavar="|".join(LAYOUTS), help="How a TP group holds the cache."),
]
KvType = Annotated[KvDtype | None, typer.Option("--kv-dtype", help="Dtype of the KV cache.")]
WeightType = Annotated[WeightDtype | None, typer.Option("--weight-dtype", help="Dtype of the quantised weights.")]
BlockSize = Annotated[int | None, _count("--block-size", "Tokens in a block of the KV cache.")]
Mtp = Annotated[
    int | None,
    typer.Option("--mtp", min=0, max=16, metavar="K", help="Tokens drafted a step by the MTP layer."),
]
PrefillChunk = Annotated[
    str | None,
    typer.Option("--prefill-chunk", metavar="TOKENS", help="Most prompt tokens in one step of a rank."),
]
TwoBatch = Annotated[
    bool | None,
    typer.Option(
        "--two-batch-overlap/--no-two-batch-overlap",
        help="Compute on half a batch while the other communicates.",
    ),
]

# ---- workload ----

Isl = Annotated[str | None, typer.Option("--isl", metavar="TOKENS", help="Prompt tokens of a request; 4k is 4096.")]
Osl = Annotated[str | None, typer.Option("--osl", metavar="TOKENS", help="Output tokens of a request.")]
Concurrency = Annotated[int | None, _count("--concurrency", "Requests in flight in the whole deployment.")]
Rate = Annotated[str | None, typer.Option("--rate", metavar="PER_SECOND", help="Requests that arrive per second.")]
Prefix = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        metavar="TOKENS|FRACTION",
        help="Prompt tokens found in the cache, or their share: 0.5, 50%.",
    ),
]
PrefixGroups = Annotated[
    int | None,
    _count("--prefix-groups", "Different prefixes of that length, each stored once in a cache for all that share it."),
]
PrefixRouting = Annotated[
    bool | None,
    typer.Option(
        "--prefix-routing/--no-prefix-routing",
        help="Send a request to a cache that has its prefix (with --prefix-groups, if none is given).",
    ),
]
Ttft = Annotated[str | None, typer.Option("--ttft", metavar="TIME", help="Longest time to the first token: 5s.")]
Tpot = Annotated[str | None, typer.Option("--tpot", metavar="TIME", help="Longest time per output token: 60ms.")]

# ---- what the user knows better ----

Engine = Annotated[
    str | None,
    typer.Option("--engine", metavar="ENGINE[@VERSION]", help="vllm, sglang, trtllm, vllm-ascend, generic."),
]
MemoryFraction = Annotated[
    str | None,
    typer.Option("--memory-fraction", metavar="SHARE", help="Share of the memory that may be used: 0.92."),
]
Reserve = Annotated[
    str | None,
    typer.Option("--reserve", metavar="SIZE", help="Graphs, context and buffers of a chip, in place of the engine's."),
]
Price = Annotated[str | None, typer.Option("--price", metavar="USD/H", help="Price of a chip per hour.")]
Imbalance = Annotated[
    float | None,
    typer.Option("--imbalance", metavar="X", help="Tokens of the busiest expert rank over the mean."),
]
MtpAccept = Annotated[
    float | None,
    typer.Option("--mtp-accept", metavar="TOKENS", help="Tokens a step yields with MTP, 1 to 1 + K."),
]
RedundantExperts = Annotated[
    int,
    typer.Option(
        "--redundant-experts",
        min=0,
        max=MOST,
        metavar="N",
        help="Copies of hot experts, in all: a load balancer deals them out.",
    ),
]
SharedRanks = Annotated[
    int,
    typer.Option(
        "--shared-ranks",
        min=0,
        max=MOST,
        metavar="N",
        help="EP ranks that hold the shared experts and no others.",
    ),
]
GatherOnly = Annotated[
    bool,
    typer.Option("--gather-only", help="Under attention DP gather all tokens, dispatch none to their experts."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Another value for a chip's figure, such as memory.bandwidth=x0.9.",
    ),
]

# ---- prefill and decode on separate chips ----


class Disagg(StrEnum):
    """Whether prefill and decode get chips of their own."""

    off = "off"
    on = "on"
    auto = "auto"


class KvOverlap(StrEnum):
    """When a cache is sent: layer by layer while the prefill computes, or after it."""

    layer = "layer"
    none = "none"


Disaggregate = Annotated[
    Disagg, typer.Option("--disagg", help="Prefill and decode on chips of their own; auto: whichever serves more.")
]
PrefillChip = Annotated[
    str | None, typer.Option("--prefill-chip", metavar="CHIP", help="Chips that prefill, where not CHIP.")
]
DecodeChip = Annotated[
    str | None, typer.Option("--decode-chip", metavar="CHIP", help="Chips that decode, where not CHIP.")
]
KvLink = Annotated[
    str | None,
    typer.Option("--kv-link", metavar="RATE", help="Achieved rate of a chip's link between the pools: 20GB/s."),
]
KvSending = Annotated[
    KvOverlap | None, typer.Option("--kv-overlap", help="Send the cache by layer while prefill computes, or after it.")
]

KvConnector = Annotated[
    str | None,
    typer.Option("--kv-connector", metavar="NAME", help="What carries the cache, where the engine has several: nixl."),
]

# ---- output ----

Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the result there.")]
