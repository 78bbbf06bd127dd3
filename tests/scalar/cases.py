"""Questions and random strategies to price, for the tests that compare the two ways of pricing."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from hypothesis import strategies as st

from mlaplan import plan
from mlaplan.costs.precision import weight_targets
from mlaplan.engines.load import load_profile
from mlaplan.engines.profile import attention_kind
from mlaplan.rules.rule import Question
from mlaplan.specs.chip import Chip
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.specs.model import Model
from mlaplan.strategy import Strategy
from mlaplan.workload import Overrides, Workload

THOROUGH = int(os.environ.get("MLAPLAN_THOROUGH", "1"))  # how many times over the usual number of examples


def examples(usual: int) -> int:
    """Examples of a random test: few, so that all tests stay quick; more where they are asked for."""
    return usual * THOROUGH


@cache
def chip(name: str) -> Chip:
    """A shipped chip; `h200-sxm:trtllm` is one with the calibration of that engine."""
    name, _, engine = name.partition(":")
    return load_chip(name, engine=engine or None)


model = cache(load_model)


def question(
    model_name: str, chip_name: str, engine: str = "generic", work: Workload | None = None, **given: Any
) -> Question:
    """A question about shipped specs."""
    return plan.question(
        chip(chip_name), model(model_name), load_profile(engine), work or Workload(4096, 1024), Overrides(**given)
    )


WORKLOADS = st.builds(
    lambda isl, osl, part, concurrency, rate, groups, routed: Workload(
        isl,
        osl,
        concurrency,
        None if concurrency else rate,
        int(part * isl),
        prefix_groups=groups if int(part * isl) else None,
        prefix_routed=routed,
    ),
    st.integers(1, 40_000),
    st.integers(1, 4096),
    st.sampled_from([0.0, 0.0, 0.3, 0.99]),
    st.none() | st.integers(1, 5000),
    st.none() | st.floats(0.01, 100.0),
    st.none() | st.integers(1, 60),
    st.booleans(),
)


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def cache_dtypes(m: Model, c: Chip) -> list[str]:
    """Cache dtypes of the generic engine that the chip has, 16 bit in any case."""
    known = load_profile("generic").kv_dtypes(c.efficiency_class, attention_kind(m))
    return [d for d in known if d in ("bf16", "fp16") or d.split("_")[0] in c.peak]


@st.composite
def strategies(draw: Any, m: Model, c: Chip, chips: int = 64) -> Strategy:
    """Any strategy on up to `chips` chips whose degrees divide what they must, legal or not."""
    heads = min(a.heads for a in m.attention.values())
    tp = draw(st.sampled_from([d for d in (1, 2, 4, 8, 16) if d <= min(chips, heads)]))
    dp = draw(st.sampled_from([d for d in (1, 1, 2, 3, 8, 16, 32) if tp * d <= chips]))
    pp = draw(st.sampled_from([d for d in (1, 1, 2, 3, 4, 8, 16) if tp * dp * d <= chips and d <= m.layer_count]))
    moe = any(f.kind == "moe" for f in m.ffn.values())
    dcp = draw(st.sampled_from(divisors(tp)))
    layout = "sequence_sharded" if dcp > 1 else draw(st.sampled_from(["replicated", "latent_sharded"]))
    return Strategy(
        tp=tp,
        pp=pp,
        dp=dp,
        ep=draw(st.sampled_from(divisors(tp * dp))) if moe else 1,
        dcp=dcp,
        cp=draw(st.sampled_from([1, 1, tp])),
        replicas=draw(st.sampled_from([1, 1, 2, 5])),
        kv_layout=layout if attention_kind(m) == "mla" or dcp > 1 else "replicated",
        kv_dtype=draw(st.sampled_from(cache_dtypes(m, c))),
        weight_dtype=draw(st.sampled_from(weight_targets(c, m))),
        block_size=draw(st.sampled_from([1, 16, 64, 128])),
        prefill_chunk=draw(st.sampled_from([512, 2048, 8192, 16384])),
        two_batch_overlap=draw(st.sampled_from([0, 0, 1])),
        mtp=draw(st.integers(0, m.mtp.max_draft if m.mtp else 0)),
        batch=draw(st.integers(1, 20) | st.integers(1, 2000)),
    )
