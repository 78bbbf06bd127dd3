"""Loads that are drawn: lengths, arrivals, and conversations that share prompts. Equal seeds draw equal loads."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlaplan.errors import MlaplanError, nearest
from mlaplan.serving.simulator.requests import HASH_TOKENS, Requests

MOST_TOKENS = 100_000_000
MOST_CV = 10.0
SETTLED = 5  # conversations are drawn for so many of their mean length before the first request is kept
FORMS = "tokens, uniform:SHORTEST:LONGEST or lognormal:MEAN:CV"


@dataclass(frozen=True, slots=True)
class Lengths:
    """`a` tokens (value), from a to b (uniform), or of mean a and deviation over mean b (lognormal)."""

    kind: str
    a: float
    b: float = 0.0

    @property
    def mean(self) -> float:
        return (self.a + self.b) / 2 if self.kind == "uniform" else self.a

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """So many whole lengths of at least one token."""
        if self.kind == "uniform":
            return rng.integers(int(self.a), int(self.b), count, endpoint=True)
        if self.kind == "lognormal":
            return lognormal(self.a, self.b, count, rng)
        return np.full(count, int(self.a), dtype=np.int64)


def lognormal(mean: float, cv: float, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Lengths with this mean and coefficient of variation: sigma^2 = ln(1 + cv^2), mu = ln(mean) - sigma^2 / 2."""
    s2 = math.log1p(cv * cv)
    drawn = rng.lognormal(math.log(mean) - s2 / 2, math.sqrt(s2), count)
    return np.clip(np.rint(drawn), 1, MOST_TOKENS).astype(np.int64)


def lengths(flag: str, text: str) -> Lengths:
    """A distribution by its text: 3500, 4k, uniform:2800:3500, lognormal:3500:0.8."""
    kind, *numbers = text.strip().split(":")
    if not numbers:
        return Lengths("value", _tokens(flag, text, kind))
    if kind not in ("uniform", "lognormal"):
        near = nearest(kind, ["uniform", "lognormal"])
        hint = f"; did you mean '{near}'?" if near else ""
        raise MlaplanError(f"{flag}: unknown distribution '{kind}'; expected {FORMS}{hint}")
    if len(numbers) != 2:
        raise MlaplanError(f"{flag}: '{text}' has {len(numbers)} numbers; expected {FORMS}")
    first = _tokens(flag, text, numbers[0])
    if kind == "lognormal":
        return Lengths(kind, first, _cv(flag, text, numbers[1]))
    last = _tokens(flag, text, numbers[1])
    if last < first:
        raise MlaplanError(f"{flag}: '{text}' ends before it begins; expected the shorter length first")
    return Lengths(kind, first, last)


def _tokens(flag: str, text: str, number: str) -> int:
    from mlaplan import units

    try:
        found = units.parse_tokens(number)
    except units.UnitError as error:
        raise MlaplanError(f"{flag}: '{text}': {error}; expected {FORMS}") from None
    if not 1 <= found <= MOST_TOKENS:
        raise MlaplanError(f"{flag}: '{text}': {number} is no length; expected 1 to {MOST_TOKENS:,} tokens")
    return found


def _cv(flag: str, text: str, number: str) -> float:
    try:
        cv = float(number)
    except ValueError:
        cv = math.nan
    if not 0 <= cv <= MOST_CV:
        raise MlaplanError(f"{flag}: '{text}': '{number}' is no deviation over the mean; expected 0 to {MOST_CV:g}")
    return cv


def arrivals(count: int, rate: float, burstiness: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Arrival times with gamma gaps of mean 1 / rate and shape `burstiness`: 1 is a Poisson process, less is burstier.

    Their squared coefficient of variation is 1 / burstiness. As `vllm bench serve --burstiness` defines it.
    """
    return np.cumsum(rng.gamma(burstiness, 1.0 / (rate * burstiness), count))


def drawn(
    prompt: Lengths, output: Lengths, count: int, *, rate: float | None = None, burstiness: float = 1.0, seed: int = 0
) -> Requests:
    """Requests of two distributions; without a rate all at once, for a closed loop."""
    rng = np.random.default_rng(seed)
    lengths_in, lengths_out = prompt.draw(count, rng), output.draw(count, rng)
    at = arrivals(count, rate, burstiness, rng) if rate is not None else np.zeros(count)
    return Requests(at, lengths_in, lengths_out)


@dataclass(frozen=True, slots=True)
class Chats:
    """Conversations: each begins with one of a few system prompts, each turn sends all that was said before.

    A conversation's k-th prompt is the system prompt, all earlier questions and answers, and a new question. Blocks of
    512 tokens that lie within what was already said keep their ids. System prompts are chosen by Zipf's law.
    """

    systems: int = 8
    system: Lengths = Lengths("lognormal", 1800, 0.5)
    turns: float = 4.0  # mean, geometric
    question: Lengths = Lengths("lognormal", 450, 1.2)
    answer: Lengths = Lengths("lognormal", 320, 0.8)
    pause_s: float = 30.0  # mean, exponential: from an answer's expected end to the next question
    answering_s: float = 10.0  # that a user takes an answer to last
    longest: int = 32_768  # a conversation ends before its prompt gets longer


CHATS = Chats()


def chats(count: int, rate: float, seed: int = 0, c: Chats = CHATS, burstiness: float = 1.0) -> Requests:
    """`count` requests of conversations that begin often enough for `rate` requests per second on average."""
    rng = np.random.default_rng(seed)
    system = c.system.draw(c.systems, rng)
    chance = 1.0 / np.arange(1, c.systems + 1)
    chance /= chance.sum()
    # the first conversations are all in their first turns: those are left out
    starts = arrivals(
        count + 64 + round(2 * SETTLED * rate * (c.pause_s + c.answering_s)), rate / c.turns, burstiness, rng
    )
    rows: list[tuple[float, int, int, list[int]]] = []
    next_id = 0
    heads: list[list[int]] = []
    for tokens in system.tolist():
        heads.append(list(range(next_id, next_id + tokens // HASH_TOKENS)))
        next_id += len(heads[-1])
    for start in starts.tolist():
        kind = int(rng.choice(c.systems, p=chance))
        ids, said, at = list(heads[kind]), int(system[kind]), start
        for _ in range(int(rng.geometric(1.0 / c.turns))):
            prompt = said + int(c.question.draw(1, rng)[0])
            if prompt > c.longest:
                break
            full = prompt // HASH_TOKENS
            while len(ids) < full:
                ids.append(next_id)
                next_id += 1
            row = list(ids)
            if prompt % HASH_TOKENS:  # the open block is another one after each turn
                row.append(next_id)
                next_id += 1
            answer = int(c.answer.draw(1, rng)[0])
            rows.append((at, prompt, answer, row))
            said = prompt + answer
            at += c.answering_s + float(rng.exponential(c.pause_s))
    rows.sort(key=lambda row: row[0])
    settled_s = min(SETTLED * c.turns * (c.pause_s + c.answering_s), starts[-1] / 2)
    first = next((i for i, row in enumerate(rows) if row[0] >= settled_s), 0)
    return _renumbered(rows[first : first + count]).at_rate(rate)


def _renumbered(rows: list[tuple[float, int, int, list[int]]]) -> Requests:
    """Rows as requests, hash ids counted from 0 in the order in which they appear."""
    known: dict[int, int] = {}
    hashes = [[known.setdefault(i, len(known)) for i in row[3]] for row in rows]
    arrival = np.array([row[0] for row in rows])
    prompt, output = (np.array([row[k] for row in rows], dtype=np.int64) for k in (1, 2))
    return Requests(arrival - arrival[0], prompt, output, hashes)
