"""What the launch commands are made from: a plan as plain values, whatever planned it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

ALL_TO_ALL = ("default", "low_latency", "high_throughput", "auto")


@dataclass(frozen=True, slots=True)
class Degrees:
    """What a server of one pool tells about another."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    pp_layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Handover:
    """A server's part where prefill and decode have chips of their own: its role, and what carries the cache.

    connector: a name of `engines.connectors`. Degrees of both pools, where the engine wants to be told them.
    """

    role: str  # prefill or decode
    connector: str
    prefill: Degrees | None = None
    decode: Degrees | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitRequest:
    """A deployment to launch. Degrees as in `Strategy`: replicas x pp x dp x tp chips, cp and dcp divide tp.

    `batch` and `prefill_chunk` count for one attention-DP rank. `memory_fraction` None leaves the engine's
    default. `weight_conversion`: the checkpoint has another dtype than `weight_dtype`. `pp_layers`: layers
    per stage, where the plan fixes them. `dcp_merge`: pattern of the merge, None leaves the engine's default;
    `dcp_interleave`: tokens in a row that one rank holds. `all_to_all`: how tokens reach experts, by role.
    `handover`: its part of a split deployment; None where it does both.
    """

    model: str
    chip_class: str
    attention: str = "mla"
    moe: bool = True
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    dcp: int = 1
    cp: int = 1
    dcp_merge: str | None = None
    dcp_interleave: int = 1
    replicas: int = 1
    kv_layout: str = "replicated"
    kv_dtype: str = "bf16"
    weight_dtype: str = "bf16"
    weight_conversion: bool = False
    block_size: int = 64
    prefill_chunk: int = 8192
    two_batch_overlap: int = 0
    mtp: int = 0
    batch: int = 256
    max_model_len: int = 8192
    memory_fraction: float | None = None
    pp_layers: tuple[int, ...] = ()
    chips_per_node: int = 8
    devices: int | None = None
    all_to_all: str = "default"
    trust_remote_code: bool = False
    handover: Handover | None = None

    @property
    def ranks(self) -> int:
        """Chips of one pipeline stage."""
        return self.tp * self.dp

    @property
    def world(self) -> int:
        """Chips of one copy of the model."""
        return self.tp * self.dp * self.pp

    @property
    def degrees(self) -> Degrees:
        """What the other pool may want to know."""
        return Degrees(self.dp, self.tp, self.pp, self.pp_layers if len(set(self.pp_layers)) > 1 else ())

    @classmethod
    def from_strategy(cls, strategy: Any, **rest: Any) -> EmitRequest:
        """The request for a `Strategy`, with what a strategy does not say given by keyword."""
        names = {f.name for f in fields(cls)}
        own = {f.name: getattr(strategy, f.name) for f in fields(strategy) if f.name in names}
        return cls(**{**own, **rest})
