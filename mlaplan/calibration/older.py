"""Measured tables of older releases of an engine: CSV files in older releases of the package aiconfigurator.

A wheel, read as it is, or a folder that one was unpacked to: `aiconfigurator/systems/data/CHIP/ENGINE/RELEASE/*.txt`.
They have the columns of the tables of today, with some differences that are undone here. Tables of NCCL and DeepEP
are no part of an engine's release: those of the installed package stand.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pandas as pd

from mlaplan.calibration import tables
from mlaplan.errors import MlaplanError, did_you_mean

DATA = PurePosixPath("aiconfigurator/systems/data")
SUFFIX = ".txt"
HEADS = 128  # DeepSeek-V3, whose attention the tables without a column of heads hold
ENDED = ("gb200", "gb300")  # chips whose folders had an ending, _sxm, that they lost since
STAMPS = ("framework", "version", "device")
TIME = "latency"
ATTENTION = ("kv_cache_dtype", "batch_size", "isl", "tp_size", "step")
# what is read of each table, and must be in it
NEEDED = {
    "gemm_perf": ("gemm_dtype", "m", "n", "k"),
    "mla_bmm_perf": ("bmm_dtype", "op_name", "num_tokens", "num_heads"),
    "moe_perf": ("moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
                 "moe_ep_size", "distribution", "kernel_source"),
    "context_mla_perf": ATTENTION,
    "generation_mla_perf": ATTENTION,
    "custom_allreduce_perf": ("num_gpus", "message_size", "kernel_source"),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Older(tables.Source):
    """The tables of one chip, engine and release."""

    folder: Path | zipfile.Path
    engine: str
    release: str
    devices: tuple[str, ...]  # how measurements name the chip; none: as the folder does
    told: dict[str, str] = field(default_factory=dict)
    known: dict[str, pd.DataFrame | None] = field(default_factory=dict)

    def version(self, chip: str, engine: str) -> str:  # noqa: ARG002
        return self.release

    def read(self, chip: str, family: str, engine: str, table: str) -> pd.DataFrame | None:  # noqa: ARG002
        if table not in self.known:
            self.known[table] = self._clean(table)
        return self.known[table]

    def _clean(self, table: str) -> pd.DataFrame | None:
        """A table with the names of today; None where there is none, or no row of this chip and release in it."""
        file = self.folder / f"{table}{SUFFIX}"
        if table not in NEEDED or not file.is_file():
            return None
        t = _csv(file)
        if missing := [name for name in (*NEEDED[table], TIME) if name not in t]:
            raise MlaplanError(f"{file}: no column '{missing[0]}'; expected a table of measured times in CSV")
        own = self._own(t)
        if not own.all():
            others = ", ".join(sorted({" ".join(map(str, row)) for row in t.loc[~own, _stamps(t)].to_numpy()}))
            self.told[table] = f"{table}: {int((~own).sum())} of its rows, which say {others}"
        t = t[own & (t[TIME] > 0)].drop_duplicates()
        return None if t.empty else _of_today(t)

    def _own(self, t: pd.DataFrame) -> pd.Series:
        """Rows that do not say another engine, release or chip than their folder: some were filed where they do
        not belong."""
        own = pd.Series(True, index=t.index)
        for name, is_ours in (
            ("framework", lambda said: said.lower() == self.engine),
            ("version", lambda said: said == self.release),
            ("device", lambda said: not self.devices or said in self.devices),
        ):
            if name in t:
                own &= t[name].map(lambda said, is_ours=is_ours: pd.isna(said) or is_ours(said.strip()))
        return own


def _of_today(t: pd.DataFrame) -> pd.DataFrame:
    """Old names replaced: 16 bit was float16, whatever it was, and balanced experts uniform."""
    t = t.copy()
    for name in t.columns:
        if name.endswith("dtype") or name == "gemm_type":
            t[name] = t[name].replace({"float16": "bfloat16"})
    if "distribution" in t:
        t["distribution"] = t.distribution.replace({"uniform": "balanced"})
    if "num_heads" not in t and "tp_size" in t:
        t["num_heads"] = HEADS // t.tp_size
    return t


def _stamps(t: pd.DataFrame) -> list[str]:
    return [name for name in STAMPS if name in t]


def _csv(file: Path | zipfile.Path) -> pd.DataFrame:
    try:
        with file.open("rb") as stream:
            return pd.read_csv(stream, dtype=dict.fromkeys(STAMPS, "str"))
    except (ValueError, OSError, zipfile.BadZipFile, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise MlaplanError(f"{file}: cannot be read as CSV: {reason}") from None


def opened(path: str, chip: str, engine: str, release: str, devices: tuple[str, ...] = ()) -> Older:
    """The tables of a chip, an engine and a release in a wheel or folder; an error that says what is in it if not."""
    data = _data(path)
    found = {name: folder for folder in data.iterdir() if (name := _ours(folder.name)) and folder.is_dir()}
    folder = _one_of(f"{path}: no measured tables of {chip}", chip, found)
    of_engine = {child.name: child for child in folder.iterdir() if child.is_dir() and _releases(child)}
    folder = _one_of(f"{path}: no measured tables of {engine} on {chip}", engine, of_engine)
    folder = _one_of(f"{path}: no measured tables of {engine} {release} on {chip}", release, _releases(folder))
    return Older(folder, engine, release, devices)


def _data(path: str) -> Path | zipfile.Path:
    """The folder of all tables."""
    file = Path(path).expanduser()
    root: Path | zipfile.Path
    if file.is_dir():
        root = file
    else:
        if not file.exists():
            raise MlaplanError(f"--tables {path}: no such file or folder")
        try:
            root = zipfile.Path(zipfile.ZipFile(file))
        except (zipfile.BadZipFile, OSError, ValueError):
            told = "not a wheel; expected a file such as aiconfigurator-0.4.0-py3-none-any.whl, or a folder of one"
            raise MlaplanError(f"--tables {path}: {told}") from None
    for part in DATA.parts:
        root = root / part
    if not root.is_dir():
        raise MlaplanError(f"--tables {path}: there are no tables in it; expected {DATA}")
    return root


def _ours(folder: str) -> str:
    """Our name of the chip of a folder."""
    by_theirs = {theirs: chip for chip, theirs in tables.FOLDERS.items()}
    without = folder.removesuffix("_sxm")
    return by_theirs.get(folder, without if without in ENDED else folder.replace("_", "-"))


def _releases(folder: Path | zipfile.Path) -> dict[str, Path | zipfile.Path]:
    """The releases of an engine that have a table that is read."""
    return {
        child.name: child
        for child in folder.iterdir()
        if child.is_dir() and any((child / f"{table}{SUFFIX}").is_file() for table in NEEDED)
    }


def _one_of(told: str, wanted: str, known: dict[str, Path | zipfile.Path]) -> Path | zipfile.Path:
    if wanted in known:
        return known[wanted]
    hint = did_you_mean(wanted, known)
    has = f"it has {', '.join(sorted(known))}" if known else "it has none in CSV"
    raise MlaplanError("; ".join([f"--tables {told}", *([hint] if hint else []), has]))
