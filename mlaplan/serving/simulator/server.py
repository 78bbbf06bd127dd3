"""Who serves: one replica's habits and memory, pools of equal replicas, and the fleet they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

Routing = Literal["round_robin", "least_loaded", "cache_aware"]
ROUTINGS: tuple[Routing, ...] = ("round_robin", "least_loaded", "cache_aware")


class Steps(Protocol):
    """Step times of one replica; `tables.StepGrid` is one made by pricing beforehand.

    host_s: that the host takes to launch a step with prompts; `prefill` does not wait for it. [s]
    """

    host_s: float

    def decode(self, batch: int, context: float) -> tuple[float, float, float]:
        """(time of a round of `batch` sequences a rank at this mean context, its slope, the context up to which the
        slope holds). [s, s/token, tokens]"""
        ...

    def prefill(self, tokens: int, pairs: float, keys: float) -> tuple[float, float]:
        """(time for which a step holds the replica, time after which its tokens are out).

        tokens: computed by the step on one rank; pairs: query-key pairs; keys: cached and new tokens attended to. [s]
        """
        ...

    def spared(self, decode: bool, fullest: float, mean: float) -> float:
        """Time that a step is shorter where ranks have `mean` sequences or tokens and one has `fullest`. [s]"""
        ...


@dataclass(frozen=True, slots=True)
class Server:
    """One replica: attention-DP ranks that step together, each with its own cache and queue.

    mixed: decode and prompts share steps (vLLM, TensorRT-LLM), else waiting prompts go before decode (SGLang): on their
        rank, while other ranks go on decoding, unless they draft.
    chunk: new tokens of a step and rank; with `mixed`, decoding tokens come out of it.
    slots, kv_tokens: most sequences in flight and cache tokens of one rank. block_tokens: cache tokens taken at once.
    set_aside: share of the output still to come for which admission keeps room: 0 admits a request as soon as its
        prompt fits and preempts later, 1 never has to preempt. watermark: share of the cache that admission leaves
        free. Both as the engine has them.
    drafts, acceptance: tokens drafted a round, and the chance that one is accepted if those before it were.
    lag_steps: steps that a scheduling decision is ahead of its results; with one, launches are ahead too.
    prefix_cache: keeps the blocks of finished prompts, least recently used ones leave first.
    whole_prompts: a prompt that a step has no room for waits for the next one, unless no step has room for it.
    hold_rounds: prompts wait for so many decisions at most until all ranks have one, see `holding`; 0 does not hold.
    cold_s: before the first step, for kernels that are compiled at their first shapes.
    """

    steps: Steps
    mixed: bool
    chunk: int
    slots: int
    kv_tokens: int
    block_tokens: int = 64
    ranks: int = 1
    set_aside: float = 0.0
    watermark: float = 0.0
    drafts: int = 0
    acceptance: float = 0.0
    lag_steps: int = 0
    front_end_s: float = 0.0
    front_end_per_token_s: float = 0.0
    prefix_cache: bool = True
    whole_prompts: bool = False
    hold_rounds: int = 0
    cold_s: float = 0.0

    @property
    def others_wait(self) -> bool:
        """Whether prompts on one rank keep all others from decoding."""
        return not self.mixed and self.drafts > 0


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal replicas and how requests are spread over their ranks."""

    server: Server
    replicas: int = 1
    routing: Routing = "least_loaded"


@dataclass(frozen=True, slots=True)
class Fleet:
    """One pool that does everything, or one for prompts and one for outputs.

    prefill: computes prompts only; `serve` then decodes. transfer_s: exposed time to hand over the cache of so many
    tokens, after the prompt is computed and the receiving rank has room; the first token is out when it has arrived.
    """

    serve: Pool
    prefill: Pool | None = None
    transfer_s: Callable[[int], float] | None = None
