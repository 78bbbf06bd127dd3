"""Request traces as JSON lines, in the format that Mooncake publishes its production traces in; plain or gzipped.

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2354]}

timestamp in ms from the start, lengths in tokens, one hash id for each block of 512 prompt tokens, the last one perhaps
not full: ceil(input_length / 512) ids. Equal ids at the start of two prompts stand for equal tokens.
Source: kvcache-ai/Mooncake, FAST25-release/traces; Qin et al., Mooncake, arXiv:2407.00079, sec. 9.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mlaplan.errors import MlaplanError, Problem, SpecError, nearest
from mlaplan.serving.simulator.requests import HASH_TOKENS, Requests

KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
MOST_TOKENS = 100_000_000  # of a request: more is no length
MOST_MS = 1e15
LIMITS = {"timestamp": (0, MOST_MS), "input_length": (1, MOST_TOKENS), "output_length": (1, MOST_TOKENS)}
EXPECTED = {
    "timestamp": "milliseconds of at least 0", "input_length": "a whole number of at least 1 token",
    "output_length": "a whole number of at least 1 token",
}  # fmt: skip
MOST_TOLD = 20  # problems of one file: the rest is counted
LINE = '{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [...]}'


def read(file: str) -> Requests:
    """The requests of a trace; SpecError names every bad line."""
    problems: list[Problem] = []
    arrival: list[float] = []
    prompt: list[int] = []
    output: list[int] = []
    ids: list[list[int]] = []
    bad, after_ms = 0, 0.0
    for number, line in enumerate(_lines(file), 1):
        if not line.strip():
            continue
        found, wrong, at_ms = _request(line, after_ms)
        after_ms = max(after_ms, at_ms)
        if found is None:
            bad += 1
            if len(problems) < MOST_TOLD:
                problems += [Problem(file, number, col, message, expected) for col, message, expected in wrong]
            continue
        arrival.append(found[0])
        prompt.append(found[1])
        output.append(found[2])
        ids.append(found[3])
    if problems:
        told = len({p.line for p in problems})
        if bad > told:
            problems.append(Problem(file, None, None, f"{bad - told:,} more lines are as bad"))
        raise SpecError(problems)
    if not arrival:
        raise MlaplanError(f"{file}: holds no request; expected lines {LINE}")
    start = arrival[0]
    return Requests(
        (np.array(arrival) - start) / 1e3, np.array(prompt, dtype=np.int64), np.array(output, dtype=np.int64),
        ids if any(ids) else None,
    )  # fmt: skip


def write(requests: Requests) -> Iterator[str]:
    """The lines of a trace; times are rounded to whole milliseconds, as published ones are."""
    for i in range(len(requests)):
        ids = list(requests.hash_ids[i]) if requests.hash_ids is not None else []
        row = dict(zip(KEYS, (round(float(requests.arrival_s[i]) * 1e3), int(requests.prompt[i]),
                              int(requests.output[i]), [int(n) for n in ids]), strict=True))  # fmt: skip
        yield json.dumps(row)


def _lines(file: str) -> Iterable[str]:
    path = Path(file)
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        text = data.decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError):
        raise MlaplanError(f"{file}: cannot be unpacked: the gzip file is damaged") from None
    except UnicodeDecodeError:
        raise MlaplanError(f"{file}: is not UTF-8 text; expected lines {LINE}") from None
    except (OSError, ValueError) as error:
        raise MlaplanError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return text.split("\n")


Wrong = tuple[int, str, str]  # column, what is wrong, what is expected
Row = tuple[float, int, int, list[int]]


def _request(line: str, after_ms: float) -> tuple[Row | None, list[Wrong], float]:
    """(the request of a line, None if it is bad; everything that is wrong with it; its time, 0 if it has none)."""
    twice: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice.extend(key for key in found if keys.count(key) > 1)
        return found

    try:
        row = json.loads(line, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        return None, [(error.colno, f"is not JSON: {error.msg}", LINE)], 0.0
    except (RecursionError, ValueError):
        return None, [(1, "is nested too deeply or has too many digits", LINE)], 0.0
    if not isinstance(row, dict):
        return None, [(1, f"is {_kind(row)}, no request", LINE)], 0.0
    if twice:
        return None, [(_again(line, key), f"'{key}' appears twice in one line", "each key once") for key in twice], 0.0
    wrong: list[Wrong] = []
    for key in KEYS[:3]:
        if key not in row:
            near = nearest(key, [str(k) for k in row if k not in KEYS])
            wrong.append((1, f"has no '{key}'" + (f", but '{near}'" if near else ""), LINE))
        elif told := _number(row[key], *LIMITS[key], whole=key != "timestamp"):
            wrong.append((_column(line, key), f"{key} {told}", EXPECTED[key]))
    at_ms: Any = row.get("timestamp")
    timed = _number(at_ms, *LIMITS["timestamp"], whole=False) is None
    clock = float(at_ms) if timed else 0.0
    if timed and clock < after_ms:
        told = f"timestamp {clock:g} is before that of a line above, {after_ms:g}"
        wrong.append((_column(line, "timestamp"), told, "lines in the order of their timestamps"))
    ids = row.get("hash_ids", [])
    if not isinstance(ids, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        wrong.append((_column(line, "hash_ids"), "hash_ids is no list of whole numbers", "one id for each 512 tokens"))
    elif len(set(ids)) < len(ids):
        twice = next(i for n, i in enumerate(ids) if i in ids[:n])
        expected = "an id that stands for the whole prompt up to its block"
        wrong.append((_column(line, "hash_ids"), f"hash id {twice} appears twice in one prompt", expected))
    if wrong:
        return None, wrong, clock
    wanted = -(-int(row["input_length"]) // HASH_TOKENS)
    if ids and len(ids) != wanted:
        told = f"{len(ids)} hash_ids for {row['input_length']} tokens"
        return None, [(_column(line, "hash_ids"), told, f"{wanted}, one for each 512 tokens begun")], clock
    return (clock, int(row["input_length"]), int(row["output_length"]), ids), [], clock


def _number(value: Any, least: float, most: float, whole: bool) -> str | None:
    """What is wrong with a number, None if nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"is {_kind(value)}, no number"
    if not math.isfinite(value):
        return f"is {value}, not finite"
    if whole and value != int(value):
        return f"is {value}, not whole"
    if value < least:
        return f"is {value:g}" + (", negative" if value < 0 else "")
    return f"is {value:g}, too large to be real" if value > most else None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def _again(line: str, key: str) -> int:
    """Column where a key stands for the second time, 1-based."""
    places = [found.start() for found in re.finditer(rf"{re.escape(json.dumps(key))}\s*:", line)]
    return places[1] + 1 if len(places) > 1 else 1


def _column(line: str, key: str) -> int:
    """Column of a key's value, 1-based."""
    found = re.search(rf'"{key}"\s*:\s*', line)
    return found.end() + 1 if found else 1
