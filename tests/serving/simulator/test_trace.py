"""Traces: what is read, what is refused and where, what is written, what is drawn."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from mlaplan.errors import MlaplanError
from mlaplan.serving.simulator import load, trace
from mlaplan.serving.simulator.requests import HASH_TOKENS, Requests

GOOD = (
    '{"timestamp": 27482, "input_length": 1955, "output_length": 52, "hash_ids": [46, 47, 48, 49]}\n'
    '{"timestamp": 30535, "input_length": 512, "output_length": 26, "hash_ids": [46]}\n'
)


def test_a_trace_starts_at_its_first_request(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(GOOD + "\n")
    r = trace.read(str(tmp_path / "t.jsonl"))
    assert r.arrival_s.tolist() == pytest.approx([0.0, 3.053])
    assert r.prompt.tolist() == [1955, 512]
    assert r.output.tolist() == [52, 26]
    assert r.hash_ids == [[46, 47, 48, 49], [46]]
    assert r.rate == pytest.approx(1 / 3.053)


def test_a_gzipped_trace_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(GOOD.encode()))
    assert trace.read(str(tmp_path / "t.jsonl.gz")).prompt.tolist() == [1955, 512]
    (tmp_path / "cut.gz").write_bytes(gzip.compress(GOOD.encode())[:40])
    with pytest.raises(MlaplanError, match="cannot be unpacked"):
        trace.read(str(tmp_path / "cut.gz"))


def test_prompts_without_ids_share_nothing(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"timestamp": 0.5, "input_length": 600, "output_length": 1}\n')
    assert trace.read(str(tmp_path / "t.jsonl")).hash_ids is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"timestamp": 40000, "input_length": 600, "output_length": 5, "hash_ids": [1]}',
         "3:75: 1 hash_ids for 600 tokens; expected 2, one for each 512 tokens begun"),
        ('{"timestamp": 5, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}',
         "3:15: timestamp 5 is before that of a line above, 30535; expected lines in the order"),
        ('{"timestamp": 40000, "input_length": -600, "output_length": 5}', "3:38: input_length is -600, negative"),
        ('{"timestamp": -1, "input_length": 6, "output_length": 5}', "3:15: timestamp is -1, negative"),
        ('{"timestamp": 40000, "input_length": 600, "output_length": 0}', "3:60: output_length is 0; expected a whole"),
        ('{"timestamp": 40000, "input_length": 600, "output_length": 2.5}', "output_length is 2.5, not whole"),
        ('{"timestamp": NaN, "input_length": 600, "output_length": 2}', "3:15: timestamp is nan, not finite"),
        ('{"timestamp": 1e5, "input_length": true, "output_length": 2}', "input_length is a truth value, no number"),
        ('{"timestamp": 1e5, "input_length": "6", "output_length": 2}', "input_length is a text, no number"),
        ('{"timestamp": 1e5, "input_length": 6, "output_length": 1e30}', "output_length is 1e+30, too large"),
        ('{"timestamp": 1e5, "input_lenght": 6, "output_length": 3}', "3:1: has no 'input_length', but 'input_lenght'"),
        ('{"timestamp": 1e5, "input_length": 600, "output_length": 5, "hash_ids": [7, 7]}', "hash id 7 appears twice"),
        ('{"timestamp": 1e5, "input_length": 6, "output_length": 5, "timestamp": 2}', ":59: 'timestamp' appears twice"),
        ('{"timestamp": 1e5, "input_length": 600, "output_length": 5, "x": {"y": 1, "y": 1}}', "'y' appears twice"),
        ('{"timestamp": 1e5, "input_length": 600, "output_length": 5, "hash_ids": ["a", 7]}', "no list of whole"),
        ("[1, 2]", "3:1: is a list, no request"),
        ('{"timestamp": 1,', "3:17: is not JSON"),
        ("[" * 100_000, "3:1: is nested too deeply"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(line: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(GOOD + line + "\n")
    with pytest.raises(MlaplanError) as error:
        trace.read(str(file))
    assert str(error.value).startswith(f"{file}:3:")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_every_bad_line_is_named_and_the_rest_counted(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(GOOD + '{"timestamp": 0, "input_length": 0, "output_length": 0}\n' * 30)
    with pytest.raises(MlaplanError) as error:
        trace.read(str(file))
    lines = str(error.value).split("\n")
    assert [line.split(":")[1] for line in lines[:3]] == ["3", "3", "3"]  # both lengths and the order
    assert lines[-1].endswith("more lines are as bad")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00"])
def test_a_file_without_requests_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(content)
    with pytest.raises(MlaplanError, match=r"holds no request|is not UTF-8"):
        trace.read(str(tmp_path / "t.jsonl"))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    r = load.chats(200, 3.0, seed=4)
    (tmp_path / "t.jsonl").write_text("\n".join(trace.write(r)))
    back = trace.read(str(tmp_path / "t.jsonl"))
    assert back.prompt.tolist() == r.prompt.tolist()
    assert back.output.tolist() == r.output.tolist()
    assert back.hash_ids == r.hash_ids
    np.testing.assert_allclose(back.arrival_s, r.arrival_s, atol=0.0011)


def test_the_shipped_trace_is_drawn_by_its_seed() -> None:
    shipped = Path(trace.__file__).parent / "traces" / "chat.jsonl"
    assert shipped.read_text() == "\n".join(trace.write(load.chats(600, 4.0, seed=1))) + "\n"


# ---- what is drawn ----


def test_conversations_send_again_what_was_said() -> None:
    r = load.chats(4000, 10.0, seed=2)
    assert r.rate == pytest.approx(10.0)
    assert (np.diff(r.arrival_s) >= 0).all()
    assert all(len(ids) == -(-p // HASH_TOKENS) for p, ids in zip(r.prompt.tolist(), r.hash_ids or [], strict=True))
    seen: set[int] = set()
    found = 0
    for prompt, ids in zip(r.prompt.tolist(), r.hash_ids or [], strict=True):
        n = 0
        while n < prompt // HASH_TOKENS and ids[n] in seen:
            n += 1
        assert not seen & set(ids[n + (prompt % HASH_TOKENS > 0) :])  # nothing is shared behind a gap
        found += n * HASH_TOKENS
        seen.update(ids)
    assert 0.5 < found / r.prompt.sum() < 0.9


def test_equal_seeds_draw_equal_loads() -> None:
    one, other = load.chats(300, 3.0, seed=9), load.chats(300, 3.0, seed=9)
    assert list(trace.write(one)) == list(trace.write(other))
    assert list(trace.write(one)) != list(trace.write(load.chats(300, 3.0, seed=10)))


@pytest.mark.parametrize(
    ("text", "mean", "cv"),
    [("3500", 3500, 0), ("4k", 4096, 0), ("uniform:100:300", 200, 0.29), ("lognormal:3k:0.8", 3072, 0.8)],
)
def test_lengths_have_their_mean_and_deviation(text: str, mean: float, cv: float) -> None:
    d = load.lengths("--isl", text)
    drawn = d.draw(40_000, np.random.default_rng(0))
    assert d.mean == mean
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert drawn.std() / drawn.mean() == pytest.approx(cv, abs=0.03)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("normal:3:4", "did you mean 'lognormal'?"), ("uniform:9", "has 1 numbers"), ("uniform:9:3", "ends before"),
        ("lognormal:9:x", "'x' is no deviation"), ("lognormal:9:-1", "expected 0 to 10"), ("0", "0 is no length"),
        ("", "expected tokens"), ("uniform:a:3", "expected tokens"), ("200000000", "is no length"),
    ],
)  # fmt: skip
def test_a_wrong_distribution_is_refused(text: str, told: str) -> None:
    with pytest.raises(MlaplanError) as error:
        load.lengths("--isl", text)
    assert str(error.value).startswith("--isl: ")
    assert told in str(error.value)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_burstiness_is_the_shape_of_the_gaps(burstiness: float) -> None:
    gaps = np.diff(load.arrivals(100_000, 5.0, burstiness, np.random.default_rng(0)))
    assert gaps.mean() == pytest.approx(0.2, rel=0.03)
    assert (gaps.std() / gaps.mean()) ** 2 == pytest.approx(1 / burstiness, rel=0.05)


def test_a_trace_keeps_its_pattern_at_another_rate() -> None:
    r = Requests(np.array([3.0, 4.0, 6.0]), *(np.array([5, 5, 5]),) * 2)
    np.testing.assert_allclose(r.at_rate(2.0).arrival_s, [0.0, 1 / 3, 1.0])
    at_once = Requests(np.zeros(3), *(np.array([5, 5, 5]),) * 2)
    assert at_once.at_rate(2.0) is at_once
