"""The nearest miss where nothing is feasible, and what would admit it in the numbers of the question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlaplan.plan import Miss
    from mlaplan.rules.rule import Question


def smallest_change(q: Question, miss: Miss, tokens_given: float | None) -> str | None:
    """The limits that the nearest miss keeps, where it misses the service level; else what the search found."""
    from mlaplan.explain import explain

    if not miss.code.startswith("MLA3"):
        return miss.change
    served, w = explain(q, miss.strategy, tokens_given=tokens_given).served, q.workload
    if served is None:
        return miss.change
    flags = []
    if w.ttft_s is not None and served.ttft_s.value > w.ttft_s:
        flags.append(f"--ttft {_above(served.ttft_s.value)}")
    if w.tpot_s is not None and served.tpot_s is not None and served.tpot_s.value > w.tpot_s:
        flags.append(f"--tpot {_above(served.tpot_s.value)}")
    if w.rate is not None and served.requests_per_s.value < w.rate:
        flags.append(f"--rate {math.floor(served.requests_per_s.value * 100) / 100:g}")
    if not flags:
        return miss.change
    return f"{' and '.join(flags)} would admit it; or more chips, or fewer requests in flight"


def _above(seconds: float) -> str:
    """A time of two or three figures not below the given one, as an option takes it."""
    unit, factor = ("s", 1.0) if seconds >= 1 else ("ms", 1e-3)
    step = 10.0 ** (math.floor(math.log10(seconds / factor)) - 1)
    return f"{round(math.ceil(seconds / factor / step - 1e-9) * step, 6):g}{unit}"


def nearest_illegal(q: Question, devices: int, pins: Mapping[str, Any]) -> Miss | None:
    """Where no structure is legal: the one that breaks the fewest rules, and the first of them in words."""
    import numpy as np

    from mlaplan import space
    from mlaplan.costs.table import Table, size
    from mlaplan.plan import Miss
    from mlaplan.rules import of_stage
    from mlaplan.strategy import from_row

    model = q.setting.model
    heads = max(a.heads for a in model.attention.values())
    moe = any(f.kind == "moe" for f in model.ffn.values())
    latent = all(a.kind == "mla" and not a.sparse for a in model.attention.values())
    long_prompt = q.workload.new_tokens >= space.LONG_PROMPT
    table = Table(space.structures(devices, heads, model.layer_count, moe, latent, long_prompt, pins))
    rows = size(table)
    if not rows:
        return None
    columns = {name: np.full(rows, value, dtype=np.int64) for name, value in _choices(q, pins).items()}
    table = Table({**table, **columns})
    rules = (*of_stage("structure"), *of_stage("choice"))
    broken = sum(np.broadcast_to(rule.violated(q, table), rows).astype(np.int64) for rule in rules)
    row = int(np.argmin(broken))
    cells = {name: column[row] for name, column in table.items()}
    rule = next((rule for rule in rules if bool(np.any(rule.violated(q, cells)))), None)
    if rule is None:
        return None
    return Miss(from_row(table, row), rule.code, rule.slug, rule.detail(q, cells), None)


def _choices(q: Question, pins: Mapping[str, Any]) -> dict[str, int]:
    """The columns within a structure: what is pinned, else the plainest that the chip and the engine have."""
    from mlaplan.costs.precision import sixteen_bit, weight_targets
    from mlaplan.engines.profile import attention_kind
    from mlaplan.strategy import CODED

    chip, model, profile = q.setting.chip, q.setting.model, q.profile
    kind, sixteen = attention_kind(model), sixteen_bit(chip)
    read = profile.kv_dtypes(chip.efficiency_class, kind)
    cache = pins.get("kv_dtype") or (sixteen if sixteen in read or not read else read[0])
    plain = {
        "weight_dtype": weight_targets(chip, model)[0],
        "kv_dtype": cache,
        "block_size": profile.default_block(chip.efficiency_class, kind, cache) or 64,
        "prefill_chunk": 8192,
        "two_batch_overlap": 0,
        "mtp": 0,
        "batch": 1,
    }
    chosen = {name: pins.get(name, value) for name, value in plain.items()}
    return {name: CODED[name].index(v) if name in CODED else int(v) for name, v in chosen.items()}
