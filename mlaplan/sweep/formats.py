"""Rows to bytes and whole files from parts: CSV, JSON lines, Parquet.

A part holds rows as the file will, without what only the whole file has: a CSV's header, Parquet's row groups, and,
of best plans, whether a row lies on the front. `join` adds these, in an order and in groups that do not depend on how
the rows were divided into parts.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from mlaplan.sweep.rows import Column

GROUP_ROWS = 65_536  # of a Parquet file
Rows = dict[str, Any]  # by column


class Form(Protocol):
    """One file format."""

    suffix: str

    def encode(self, batches: Iterable[Rows]) -> bytes:
        """A part."""

    def cells(self, part: Path, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """These columns of a part, row by row, as far as they can be told apart: text or numbers."""

    def join(self, parts: Iterable[Path], fronts: Iterator[bool] | None, out: IO[bytes]) -> None:
        """The file; `fronts`: whether each row lies on the front, where the parts leave that open."""


def of(name: str, columns: Sequence[Column]) -> Form:
    """The format of this name."""
    forms: dict[str, type[Csv] | type[JsonLines] | type[Parquet]] = {"csv": Csv, "jsonl": JsonLines, "parquet": Parquet}
    return forms[name](columns)


def plain(values: Any, kind: str) -> list[Any]:
    """Values of a column as Python's own, None where there is none; a float that is a whole number stays a float."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        values = values.tolist()
    if kind == "float":
        return [None if v is None or not math.isfinite(v) else float(v) for v in values]
    if kind == "int":
        return [None if v is None else int(v) for v in values]
    return [None if v is None else bool(v) for v in values] if kind == "bool" else list(values)


class _Text:
    """What formats of lines have in common."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.names = [column.name for column in columns]

    def _lines(self, batch: Rows) -> Iterator[tuple[Any, ...]]:
        return zip(*(plain(batch[name], kind) for name, kind in self.columns), strict=True)


class Csv(_Text):
    """Comma-separated values: a header, true and false, nothing where there is no value."""

    suffix = ".csv"

    def encode(self, batches: Iterable[Rows]) -> bytes:
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        for batch in batches:
            writer.writerows([_shown(value) for value in line] for line in self._lines(batch))
        return stream.getvalue().encode()

    def cells(self, part: Path, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        at = [self.names.index(name) for name in names]
        with part.open(encoding="utf-8", newline="") as stream:
            for line in csv.reader(stream):
                yield tuple(line[i] for i in at)

    def join(self, parts: Iterable[Path], fronts: Iterator[bool] | None, out: IO[bytes]) -> None:
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(self.names)
        out.write(header.getvalue().encode())
        for part in parts:
            with part.open("rb") as stream:
                for line in stream:
                    out.write(line if fronts is None else line[:-1] + (b"true\n" if next(fronts) else b"false\n"))


def _shown(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    return " ".join(value.split()) if isinstance(value, str) else value


class JsonLines(_Text):
    """One JSON object a line, with every column."""

    suffix = ".jsonl"

    def encode(self, batches: Iterable[Rows]) -> bytes:
        lines = (
            json.dumps(dict(zip(self.names, line, strict=True)), ensure_ascii=False, allow_nan=False)
            for batch in batches
            for line in self._lines(batch)
        )
        return "".join(f"{line}\n" for line in lines).encode()

    def cells(self, part: Path, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        with part.open(encoding="utf-8") as stream:
            for line in stream:
                row = json.loads(line)
                yield tuple(row[name] for name in names)

    def join(self, parts: Iterable[Path], fronts: Iterator[bool] | None, out: IO[bytes]) -> None:
        for part in parts:
            with part.open("rb") as stream:
                for line in stream:
                    if fronts is not None:
                        line = line.removesuffix(b"null}\n") + (b"true}\n" if next(fronts) else b"false}\n")
                    out.write(line)


class Parquet:
    """Parquet by pyarrow: typed columns, zstd, row groups of `GROUP_ROWS`."""

    suffix = ".parquet"

    def __init__(self, columns: Sequence[Column]) -> None:
        import pyarrow as pa

        kinds = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
        self.columns = columns
        self.schema = pa.schema([(name, kinds[kind]) for name, kind in columns])

    def _table(self, batch: Rows) -> Any:
        import pyarrow as pa

        arrays = [pa.array(plain(batch[name], kind), self.schema.field(name).type) for name, kind in self.columns]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def encode(self, batches: Iterable[Rows]) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, self.schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_table(self._table(batch))
        return bytes(sink.getvalue())

    def cells(self, part: Path, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        import pyarrow.parquet as pq

        for group in pq.ParquetFile(part).iter_batches(columns=list(names)):
            yield from zip(*(group.column(name).to_pylist() for name in names), strict=True)

    def join(self, parts: Iterable[Path], fronts: Iterator[bool] | None, out: IO[bytes]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        waiting: list[Any] = []
        rows = 0
        with pq.ParquetWriter(out, self.schema, compression="zstd") as writer:
            for part in parts:
                table = pq.read_table(part)
                if fronts is not None:
                    front = pa.array([next(fronts) for _ in range(table.num_rows)], pa.bool_())
                    table = table.set_column(table.schema.get_field_index("front"), "front", front)
                waiting.append(table)
                rows += table.num_rows
                while rows >= GROUP_ROWS:
                    whole = pa.concat_tables(waiting)
                    writer.write_table(whole.slice(0, GROUP_ROWS).combine_chunks(), row_group_size=GROUP_ROWS)
                    waiting, rows = [whole.slice(GROUP_ROWS)], rows - GROUP_ROWS
            if rows:
                writer.write_table(pa.concat_tables(waiting).combine_chunks(), row_group_size=GROUP_ROWS)
