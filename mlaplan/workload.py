"""What is asked: the traffic, the service level, and what the user knows better than the specs."""

from __future__ import annotations

from dataclasses import dataclass

from mlaplan.errors import MlaplanError

OBJECTIVES = ("throughput", "latency", "cost", "pareto")


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of `isl` prompt and `osl` output tokens; lengths are means, bursts belong to a simulation.

    concurrency: requests in flight in the whole deployment (closed loop). rate: requests per second (open loop).
    With neither, the batch is free and the plan says which concurrency it wants.
    prefix_tokens: prompt tokens found in the cache. ttft_s, tpot_s: service level, None where not asked for.
    prefix_groups: different prefixes of that length, each stored once in a cache and shared; None: every sequence
    stores its own. prefix_routed: a request goes to a cache that has its prefix.
    """

    isl: int
    osl: int
    concurrency: int | None = None
    rate: float | None = None
    prefix_tokens: int = 0
    ttft_s: float | None = None
    tpot_s: float | None = None
    prefix_groups: int | None = None
    prefix_routed: bool = True

    def __post_init__(self) -> None:
        problems = [
            (self.isl < 1, f"--isl {self.isl}: a prompt has at least 1 token"),
            (self.osl < 1, f"--osl {self.osl}: a request produces at least 1 token"),
            (self.concurrency is not None and self.concurrency < 1, "--concurrency: at least 1 request"),
            (self.rate is not None and not self.rate > 0, "--rate: above 0 requests per second"),
            (
                self.concurrency is not None and self.rate is not None,
                "--concurrency and --rate both fix the load: give one of them",
            ),
            (
                not 0 <= self.prefix_tokens < self.isl,
                f"--prefix {self.prefix_tokens}: from 0 to {self.isl - 1} tokens, below --isl {self.isl}",
            ),
            (self.prefix_groups is not None and self.prefix_groups < 1, "--prefix-groups: at least 1"),
            (
                self.prefix_groups is not None and not self.prefix_tokens,
                "--prefix-groups goes with --prefix: the tokens that the requests of a group share",
            ),
            (self.ttft_s is not None and not self.ttft_s > 0, "--ttft: a time above 0"),
            (self.tpot_s is not None and not self.tpot_s > 0, "--tpot: a time above 0"),
        ]
        for wrong, message in problems:
            if wrong:
                raise MlaplanError(message)

    @property
    def new_tokens(self) -> int:
        """Prompt tokens that must be computed."""
        return self.isl - self.prefix_tokens

    @property
    def mean_context(self) -> int:
        """Cached tokens of a running sequence half way through its output."""
        return self.isl + self.osl // 2

    @property
    def max_context(self) -> int:
        """Cached tokens of a sequence at its end: what capacity must hold."""
        return self.isl + self.osl


@dataclass(frozen=True, slots=True)
class Overrides:
    """Values of the user in place of the specs' and the engine's; None keeps those."""

    memory_fraction: float | None = None
    reserve_bytes: float | None = None
    price_usd_per_hour: float | None = None
    imbalance: float | None = None
    tokens_per_step: float | None = None
    redundant_experts: int = 0
    dcp_merge: str | None = None
    dcp_interleave: int | None = None
    shared_ranks: int = 0
    gather_only: bool = False

    def __post_init__(self) -> None:
        problems = [
            (
                self.memory_fraction is not None and not 0 < self.memory_fraction <= 1,
                "--memory-fraction: above 0 and at most 1",
            ),
            (self.reserve_bytes is not None and self.reserve_bytes < 0, "--reserve: at least 0 bytes"),
            (
                self.price_usd_per_hour is not None and not self.price_usd_per_hour > 0,
                "--price: above 0 dollars per chip and hour",
            ),
            (
                self.imbalance is not None and not self.imbalance >= 1,
                "--imbalance: at least 1, the busiest expert rank's tokens over the mean",
            ),
            (
                self.tokens_per_step is not None and not self.tokens_per_step >= 1,
                "--mtp-accept: at least 1 token per step",
            ),
            (self.redundant_experts < 0, "--redundant-experts: at least 0"),
            (self.shared_ranks < 0, "--shared-ranks: at least 0"),
        ]
        for wrong, message in problems:
            if wrong:
                raise MlaplanError(message)
