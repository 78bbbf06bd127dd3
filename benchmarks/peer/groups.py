"""The groups of rows, and what every tool says of them. Each row is one that mlaplan was not fitted on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from mlaplan.calibration import links, run, score, tables
from mlaplan.calibration.rows import Rows
from mlaplan.specs.lookup import load_chip
from mlaplan.validation import silicon
from mlaplan.validation.kernel_bars import cache_modes
from mlaplan.validation.points import Point, published
from mlaplan.validation.predict import predict
from peer import aic
from peer.figures import DEFAULT, INFERSIM, MLAPLAN, SOL, Array, Group
from peer.infersim import InferSim, point

CHIPS = ("h100-sxm", "h200-sxm")
ENGINES = ("sglang", "trtllm")
TABLES, OTHERS, RUNS = "tables", "h800", "served"
NOT_RUN = "not run"
NO_CHIP = "no such chip"
TITLES = {
    "mla_decode": "decode MLA kernel, {engine}, {dtype} cache",
    "mla_prefill": "context MLA kernel, {engine}, {dtype} cache",
    "mla_module": "MLA decode module, {engine}, {dtype}",
    "gemm": "GEMM {dtype}, {engine}",
    "bmm": "absorbed up-projections {dtype}, {engine}",
    "grouped_gemm": "routed experts {dtype}, {engine}",
    "all_reduce_custom": "all-reduce of {engine}, 2 to 8 ranks",
    "all_reduce": "NCCL all-reduce, 2 to 8 ranks",
    "all_gather": "NCCL all-gather, 2 to 8 ranks",
    "reduce_scatter": "NCCL reduce-scatter, 2 to 8 ranks",
    "all_to_all": "NCCL all-to-all, 2 to 8 ranks",
}
ORDER = ("mla_decode", "mla_module", "mla_prefill", "gemm", "bmm", "grouped_gemm", "all_reduce_custom",
         *tables.COLLECTIVES.values())  # fmt: skip
# rows of InferSim's own tables
POINTS = {
    "h800-mla-decode": ("infersim-h800-mla-dec", "decode MLA kernel, H800"),
    "h20-mla-decode": ("infersim-h20-mla-dec", "decode MLA kernel, H20"),
    "h800-experts": ("infersim-h800-moe-dec", "routed experts, decode, H800"),
    "h800-experts-prefill": ("infersim-h800-moe-pre", "routed experts, prefill, H800"),
}
PROFILES = "h800-profile"
PROFILE = {
    "ds-profile-prefill": {"phase": "prefill", "options": {"world_size": 32, "num_nodes": 4, "target_osl": 1786,
                           "max_prefill_tokens": 8192, "enable_deepep": True, "enable_tbo": True}},
    "ds-profile-decode": {"phase": "decode", "options": {"world_size": 128, "num_nodes": 16, "target_osl": 1786,
                          "decode_bs": 64, "enable_deepep": True, "enable_tbo": True}},
}  # fmt: skip


def groups(sim: InferSim | None, only: str | None = None) -> list[Group]:
    """Every group, or those whose id starts with `only`."""
    return [*of_tables(sim, only), *of_points(sim, only), *of_runs(sim, only)]


def _wanted(name: str, only: str | None) -> bool:
    return only is None or name.startswith(only)


def of_tables(sim: InferSim | None, only: str | None = None) -> list[Group]:
    """The kernel and collective tables of aiconfigurator, H100 and H200 pooled."""
    found: dict[str, Group] = {}
    for engine in ENGINES:
        for chip in CHIPS:
            held = _held_out(chip, engine, only)
            if not held:
                continue
            with tempfile.TemporaryDirectory() as folder:
                root, asked = Path(folder), {table for _, table, _ in held}
                aic.half_of(chip, [(t, r) for t, r in seen(chip, engine) if t in asked], root)
                sol, default = (aic.Peer(chip, engine, mode, root) for mode in (aic.SOL, aic.SILICON))
                for name, table, (kind, dtype, rows, own) in held:
                    title = TITLES[kind].format(engine=tables.TITLES[engine], dtype=dtype.replace("_", " "))
                    predicted = {
                        MLAPLAN: own,
                        SOL: sol.seconds(table, rows),
                        DEFAULT: default.seconds(table, rows),
                        INFERSIM: NOT_RUN if sim is None else sim.rows(kind, chip, rows),
                    }
                    found.setdefault(name, Group(name, TABLES, title)).add(rows.seconds, **predicted)
    return sorted(found.values(), key=lambda g: ORDER.index(g.id.split(":")[0]))


def _held_out(chip: str, engine: str, only: str | None) -> list[tuple[str, aic.Table, score.Predicted]]:
    """(group, table, rows beside mlaplan's times) of the rows that are compared."""
    out = []
    for p in score.predictions(load_chip(chip, engine=engine), engine, cache_modes(chip, engine)):
        table, name = aic.table_of(p.kind, engine), _id(p.kind, p.dtype, engine)
        once = engine == ENGINES[0] or p.kind not in tables.COLLECTIVES.values()  # NCCL is no engine's own
        if table is None or not once or not _wanted(name, only):
            continue
        if p.kind == "mla_module":  # mlaplan saw none of it, the other tool is given half
            half = ~p.rows.for_fit
            p = p._replace(rows=p.rows.take(half), seconds=p.seconds[half])
        out.append((name, table, p))
    return out


def _id(kind: str, dtype: str, engine: str) -> str:
    if kind in tables.COLLECTIVES.values():
        return kind
    return ":".join([kind, engine, dtype.replace(", ", "-").replace(" ", "-")])


def seen(chip: str, engine: str) -> Iterable[tuple[aic.Table, Rows]]:
    """The rows that fits may use, of each table that is compared."""
    spec = load_chip(chip, engine=engine)
    for op, _, rows, _ in run.kernel_rows(spec, engine, cache_modes(chip, engine)):
        table = aic.table_of("mla_decode" if op == "kv_cast" else op, engine)
        if rows is not None and table is not None:
            yield table, rows.take(rows.for_fit)
    for kv in ("bf16", "fp8"):
        for weights in ("bf16", "fp8_block"):
            rows, table = tables.mla_module(chip, engine, kv, weights), aic.table_of("mla_module", engine)
            if rows is not None and table is not None:
                yield table, rows.take(rows.for_fit)
    for rows, wide in run.collective_rows(chip, engine):
        table = aic.table_of(rows.op, engine)
        if table is not None and not wide:
            yield table, rows.take(links.for_fit(rows))


def of_points(sim: InferSim | None, only: str | None = None) -> list[Group]:
    """Rows of InferSim's tables on which no constant was fitted; InferSim with the row left out of its table."""
    out = []
    for name, (prefix, title) in POINTS.items():
        if not _wanted(name, only):
            continue
        rows = [p for p in published() if p.id.startswith(prefix) and not p.fitted and p.operator is not None]
        theirs: Array | str = NOT_RUN
        if sim is not None:
            theirs = sim.ask([point(str(p.chip), str(p.operator), p.workload) for p in rows])
        group = Group(name, OTHERS, title)
        group.add(_measured(rows), **{MLAPLAN: _own(rows), SOL: NO_CHIP, DEFAULT: NO_CHIP, INFERSIM: theirs})
        out.append(group)
    if not _wanted(PROFILES, only):
        return out
    rows = [p for p in published() if p.id in PROFILE]
    theirs = NOT_RUN
    if sim is not None:
        theirs = sim.ask([{"kind": "run", "device": "H800", "metric": p.metric, **PROFILE[p.id]} for p in rows])
    group = Group(PROFILES, OTHERS, "DeepSeek-V3 on H800, prefill EP32 and decode EP128, tok/s/GPU")
    group.add(_measured(rows), **{MLAPLAN: _own(rows), SOL: NO_CHIP, DEFAULT: NO_CHIP, INFERSIM: theirs})
    return [*out, group]


def of_runs(sim: InferSim | None, only: str | None = None) -> list[Group]:
    """Served DeepSeek-R1 on 8 H200: the metrics of each row, by engine; TTFT without rows at the edge of the cache."""
    out = []
    for engine in ENGINES:
        rows = [p for p in silicon.points() if p.engine == engine]
        launched = str(rows[0].strategy["kv_dtype"])
        title = f"R1 on 8 H200, {tables.TITLES[engine]} rows"
        for metric, column in (("tpot", 0), ("ttft", 1)):
            mine = [p for p in rows if p.metric == metric and (metric != "ttft" or not at_the_edge(p))]
            loads = [run_of(p) for p in mine]
            theirs = NOT_RUN if sim is None else sim.ask([_served(p, launched) for p in mine])
            if not _wanted(f"served:{engine}:{metric}", only):
                continue
            plain: Array | None = None
            for kv in (None, tables.THEIRS[launched]):
                sol, default = (aic.served("h200-sxm", engine, m, kv, loads)[:, column] for m in (aic.SOL, aic.SILICON))
                if plain is not None and np.array_equal(plain, default):
                    continue  # it inferred the dtype that was launched
                plain = default
                name = f"served:{engine}:{metric}" + (f":{launched}" if kv else "")
                also = f", aiconfigurator told of the {launched} cache" if kv else ""
                group = Group(name, RUNS, f"{title}, {metric.upper()}{also}")
                group.add(_measured(mine), **{MLAPLAN: _own(mine), SOL: sol, DEFAULT: default, INFERSIM: theirs})
                out.append(group)
    return out


def at_the_edge(p: Point) -> bool:
    found = predict(p)
    return found is not None and "kv_edge" in found.flags


def run_of(p: Point) -> aic.Run:
    w, s = p.workload, p.strategy
    return aic.Run(w["isl"], w["osl"], w["concurrency"], s["tp"], s.get("dp", 1), s["ep"])


def _served(p: Point, kv_dtype: str) -> dict[str, object]:
    """A served row as the options of InferSim's program: a prefill is one prompt, it has no queue."""
    w = p.workload
    options = {
        "world_size": 8,
        "tp_size": 8,
        "target_isl": w["isl"],
        "target_osl": w["osl"],
        "max_prefill_tokens": w["isl"],
        "decode_bs": w["concurrency"],
        "use_fp8_kv": kv_dtype == "fp8",
    }
    phase = "prefill" if p.metric == "ttft" else "decode"
    return {"kind": "run", "device": "H200", "metric": p.metric, "phase": phase, "options": options}


def _measured(rows: Sequence[Point]) -> Array:
    return np.array([p.value for p in rows], dtype=float)


def _own(rows: Sequence[Point]) -> Array:
    """mlaplan's predictions."""
    found = [predict(p) for p in rows]
    return np.array([np.nan if f is None else f.value.value for f in found], dtype=float)
