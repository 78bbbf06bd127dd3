"""aiconfigurator-core on rows of its own tables and on served rows, through the operators of its SDK.

SOL mode needs no tables. Its default mode looks a call up in its measured tables, so on their own rows it can only
be judged with rows left out: `half_of` writes its tables anew with exactly the rows that mlaplan's fits may see, and
both are then scored on the other half.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlaplan.calibration import tables
from mlaplan.calibration.rows import Array, Rows

DISTRIBUTION, PACKAGE, VERSION = "aiconfigurator-core", "aiconfigurator_core", "0.12.0"
SOL, SILICON = "SOL", "SILICON"
SERVED_MODEL = "deepseek-ai/DeepSeek-R1"


def installed() -> str | None:
    """The installed version, None without the package."""
    try:
        return version(DISTRIBUTION) if find_spec(PACKAGE) else None
    except PackageNotFoundError:
        return None


class Table(NamedTuple):
    """Where the calls of an operator are kept: family of tables, the folder in it, the table, its version."""

    family: str
    folder: str
    name: str
    version: str


class Ask(NamedTuple):
    """How the SDK is asked for one call: its operator, and the shape that it is evaluated at."""

    op: Any
    context: bool
    batch: int
    s: int
    x: int | None


def table_of(op: str, engine: str) -> Table | None:
    """The table that a row of an operator comes from; None of those that are not compared."""
    version_ = tables.VERSIONS[engine]
    named = {"mla_decode": ("mla", "generation_mla_perf"), "mla_prefill": ("mla", "context_mla_perf"),
             "mla_module": ("mla", "mla_generation_module_perf"), "gemm": ("gemm", "gemm_perf"),
             "bmm": ("mla_bmm", "mla_bmm_perf"), "grouped_gemm": ("moe", "moe_perf"),
             "all_reduce_custom": ("comm", "custom_allreduce_perf")}  # fmt: skip
    if op in named:
        family, name = named[op]
        return Table(family, engine, name, version_)
    return Table("comm", "nccl", "nccl_perf", tables.NCCL) if op in tables.COLLECTIVES.values() else None


@cache
def calls_of(chip: str, table: Table) -> pd.DataFrame:
    """The table as shipped, by the labels that cleaned rows know their calls by."""
    path = tables.file_of(chip, table.family, table.folder, table.name, table.version)
    return pd.read_parquet(path)


def half_of(chip: str, kept: Sequence[tuple[Table, Rows]], root: Path) -> None:
    """A folder of systems that holds, of each table, the calls behind these rows and no others.

    The older versions that the tool would fill gaps from are left out too: they hold the rows that are asked for.
    """
    shipped = Path(find_spec(PACKAGE).origin).parent / "systems"  # type: ignore[union-attr,arg-type]
    system = chip.replace("-", "_")
    root.mkdir(parents=True, exist_ok=True)
    shutil.copy(shipped / "query_versions.yaml", root)
    text = (shipped / f"{system}.yaml").read_text("utf-8")
    own = next(line for line in text.splitlines() if line.strip().startswith("nccl_version:"))
    text = text.replace(own, f"  nccl_version: '{tables.NCCL}'")  # the table that the rows are from
    (root / f"{system}.yaml").write_text(text, "utf-8")
    labels: dict[Table, list[pd.Index]] = {}
    for table, rows in kept:
        assert rows.calls is not None and rows.ids is not None
        labels.setdefault(table, []).append(rows.calls.index[rows.calls.isin(rows.ids)])
    for table, found in labels.items():
        source = tables.file_of(chip, table.family, table.folder, table.name, table.version)
        path = root / source.relative_to(shipped)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            shutil.copy(source.parent / "collection_meta.yaml", path.parent)
        wanted = found[0]
        for more in found[1:]:
            wanted = wanted.union(more)
        calls_of(chip, table).loc[wanted].to_parquet(path)


class Peer:
    """The tool for one chip and engine in one mode, with its own tables or with those below `root`."""

    def __init__(self, chip: str, engine: str, mode: str, root: Path | None = None) -> None:
        from aiconfigurator_core.sdk.engine import EngineHandle

        self.chip, self.engine = chip, engine
        paths = None if root is None else str(root)
        self.database = database(chip, engine, mode, paths)
        self.handle = EngineHandle.for_database(self.database, systems_path=paths)

    def seconds(self, table: Table, rows: Rows) -> Array:
        """Seconds of every row, NaN where the tool has no answer; a row of several calls is their median."""
        assert rows.calls is not None and rows.ids is not None
        wanted = rows.calls[rows.calls.isin(rows.ids)]
        calls = calls_of(self.chip, table).loc[wanted.index]
        found = pd.Series(np.nan, index=wanted.index)
        asks: dict[tuple[bool, int, int, int | None], dict[str, Any]] = {}
        for label, ask in _asks(table, calls):
            asks.setdefault(ask[1:], {})[str(label)] = ask.op
        for shape, named in asks.items():
            for name, value in self._evaluated(list(named.values()), shape):
                found[int(name)] = value
        return found.groupby(wanted).median().reindex(rows.ids).to_numpy(float)

    def _evaluated(self, ops: list[Any], shape: tuple[bool, int, int, int | None]) -> Iterator[tuple[str, float]]:
        from aiconfigurator_core.sdk.engine import build_ops_json
        from aiconfigurator_core.sdk.errors import EmpiricalNotImplementedError, PerfDataNotAvailableError

        context, batch, s, x = shape
        try:
            for name, ms, *_ in self.handle.evaluate_ops_json(
                build_ops_json(ops), is_context=context, batch_size=batch, s=s, x=x
            ):
                yield name, ms * 1e-3
        except (PerfDataNotAvailableError, EmpiricalNotImplementedError):
            if len(ops) > 1:  # which of them it has no answer for
                for op in ops:
                    yield from self._evaluated([op], shape)


def database(chip: str, engine: str, mode: str, paths: str | None = None) -> Any:
    """The tool's view of a chip and an engine, its newest tables."""
    from aiconfigurator_core.sdk.perf_database import get_database_view

    logging.getLogger(PACKAGE).setLevel(logging.ERROR)  # it warns of every table that a folder does not hold
    found = get_database_view(
        chip.replace("-", "_"), engine, tables.VERSIONS[engine], systems_paths=paths, database_mode=mode,
        allow_missing_data=mode == SOL,
    )  # fmt: skip
    if found is None:
        raise LookupError(f"{DISTRIBUTION} has no tables of {chip} for {engine} {tables.VERSIONS[engine]}")
    return found


def _asks(table: Table, calls: pd.DataFrame) -> Iterator[tuple[Any, Ask]]:
    """(label, how to ask for it) of every call of a table."""
    from aiconfigurator_core.sdk import common
    from aiconfigurator_core.sdk import operations as ops

    kv, fmha, gemm, moe = common.KVCacheQuantMode, common.FMHAQuantMode, common.GEMMQuantMode, common.MoEQuantMode
    for c in calls.itertuples():
        i = str(c.Index)
        if table.name == "generation_mla_perf":
            op = ops.GenerationMLA(i, 1.0, c.num_heads, kv[c.kv_cache_dtype])
            yield i, Ask(op, False, c.batch_size, c.step + 1, None)
        elif table.name == "context_mla_perf":
            op = ops.ContextMLA(i, 1.0, c.num_heads, kv[c.kv_cache_dtype], fmha[c.mla_dtype])
            yield i, Ask(op, True, c.batch_size, c.isl, None)
        elif table.name == "mla_generation_module_perf":
            op = ops.MLAModule(i, 1.0, False, c.num_heads, kv[c.kv_cache_dtype], fmha[c.mla_dtype], gemm[c.gemm_type])
            yield i, Ask(op, False, c.batch_size, c.step + 1, None)
        elif table.name == "gemm_perf":
            yield i, Ask(ops.GEMM(i, 1.0, c.n, c.k, gemm[c.gemm_dtype]), True, 1, 1, c.m)
        elif table.name == "mla_bmm_perf":
            op = ops.MLABmm(i, 1.0, c.num_heads, gemm[c.bmm_dtype], if_pre=c.op_name == "mla_gen_pre")
            yield i, Ask(op, False, c.num_tokens, 1, None)
        elif table.name == "moe_perf":
            op = ops.MoE(
                i, 1.0, c.hidden_size, c.inter_size, c.topk, c.num_experts, c.moe_tp_size, c.moe_ep_size,
                moe[c.moe_dtype], c.distribution, 1,
            )  # fmt: skip
            yield i, Ask(op, True, 1, 1, c.num_tokens)
        elif table.name == "nccl_perf":
            op = ops.NCCL(i, 1.0, c.op_name, 1.0, c.num_gpus, common.CommQuantMode[c.nccl_dtype])
            yield i, Ask(op, True, 1, 1, c.message_size)
        elif table.name == "custom_allreduce_perf":
            yield i, Ask(ops.CustomAllReduce(i, 1.0, 1, c.num_gpus), True, 1, 1, c.message_size)
        else:
            raise LookupError(table.name)


class Run(NamedTuple):
    """A served row on 8 chips: lengths, requests in flight, and the ranks that it is divided over."""

    isl: int
    osl: int
    concurrency: int
    tp: int = 8
    dp: int = 1
    ep: int = 1


def served(system: str, engine: str, mode: str, kv_dtype: str | None, runs: Sequence[Run]) -> Array:
    """(TPOT, TTFT) in seconds of DeepSeek-R1 for each run, as `estimate` gives them.

    As the command does: steps of one prompt's tokens, and without a cache dtype the one inferred of the checkpoint.
    """
    from aiconfigurator_core.sdk.backends.factory import get_backend
    from aiconfigurator_core.sdk.config import RuntimeConfig
    from aiconfigurator_core.sdk.config_builders import build_model_config
    from aiconfigurator_core.sdk.models import get_model
    from aiconfigurator_core.sdk.models.helpers import resolve_context_fmha_by_data

    data, backend = database(system, engine, mode), get_backend(engine)
    models = {}
    for ranks in {(r.tp, r.dp, r.ep) for r in runs}:
        tp, dp, ep = ranks
        config = build_model_config(tp, 1, dp, tp * dp // ep, ep, kvcache_quant_mode=kv_dtype)
        resolve_context_fmha_by_data(config, SERVED_MODEL, data, engine, is_context_role=True)
        models[ranks] = get_model(SERVED_MODEL, config, engine)
    out = []
    for r in runs:
        load = RuntimeConfig(isl=r.isl, osl=r.osl, batch_size=max(r.concurrency // r.dp, 1))
        found = backend.run_agg(models[r.tp, r.dp, r.ep], data, load, ctx_tokens=r.isl).get_result_dict()
        out.append((found["tpot"] * 1e-3, found["ttft"] * 1e-3))
    return np.array(out, dtype=float)
