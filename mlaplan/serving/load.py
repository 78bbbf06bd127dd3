"""What a rank is like under a load: waits and times of service, made of the slots that `lockstep` says it has.

Closed loop: a request is sent when a step ends, is seen in the next, and its own steps begin with the one after; half a
prompt of its rank times mu is before it. Open loop: it comes at any time of a step, so the rest of the one under way is
before it, then a whole one, as it is seen in it, and the prompts that find no room in its rank's steps: of R units that
a step holds, as in front of floor(R) servers (`waiting`) that together do R in the time of one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlaplan.costs.roofline import Numeric
from mlaplan.serving import lockstep, waiting
from mlaplan.serving.lockstep import Meeting, Ranks, Slot

FULL = 1.0 - 1e-9  # a load from which waits are as good as endless


class Load(NamedTuple):
    """A rank under its load, per row. Times in seconds."""

    request_s: Numeric  # of the rank that a request takes: 1 / X where the rank is never idle
    wait_s: Numeric  # for earlier prompts, and for the step under way
    service_s: Numeric  # from there to the first token
    share: Numeric  # of the time that prompts take
    round_s: Numeric  # of a decode round, prompts in between included

    def towards(self, other: Load, part: Numeric) -> Load:
        """So far on the way to the other."""
        return Load(*(a + part * (b - a) for a, b in zip(self, other, strict=True)))


def either(where: NDArray[np.bool_], one: Load, other: Load) -> Load:
    """Row by row one or the other."""
    return Load(*(np.where(where, a, b) for a, b in zip(one, other, strict=True)))


def closed_loop(k: Ranks, met: Meeting | None = None, away_s: Numeric | None = None) -> Load:
    """A request is sent when another ends. met: as for `lockstep.closed`; away_s: a round while it is in the front end,
    where it differs from `k.decode_s`."""
    met = lockstep.meeting(k) if met is None else met
    slot, others = lockstep.closed(k, met), k.sequences * k.ranks > 1.0
    own = k.passes * lockstep.own_step_s(k, slot, others, met)
    ahead = np.minimum(slot.units / 2.0, np.maximum(k.sequences - 1.0, 0.0)) * own
    # steps that begin and end meanwhile are short ones
    passing = np.ceil(k.front_s / (k.decode_s if away_s is None else away_s))
    steps = 1.0 + (passing - 1.0) * (1.0 - slot.some) if k.front_s else 0.0
    seen = np.maximum(steps * slot.seconds - k.front_s, 0.0) + slot.seconds
    taken = lockstep.request_s(k, slot) * np.minimum(k.sequences, 1.0)
    if not np.all(others):
        seen, taken = np.where(others, seen, 0.0), np.where(others, taken, 0.0)
    each = slot.seconds if k.mixed else round_s(slot)
    return Load(taken, ahead + seen, own + k.drain_s, slot.with_prompts, each)


def open_loop(k: Ranks, rate: Numeric) -> Load:
    """Poisson arrivals, `rate` of a rank and second."""
    slot = lockstep.open_loop(k, rate)
    own = k.passes * lockstep.own_step_s(k, slot, k.sequences * k.ranks > 1.0)
    room = np.maximum(k.room, 1.0)
    places = np.floor(room)
    load = rate * own * np.minimum(k.units, 1.0) / room
    # what a step holds beside whole units serves those sooner
    wait = waiting.mean_s(np.minimum(load, FULL), places, own * places / room) + step_wait_s(k, slot, rate)
    return Load(lockstep.request_s(k, slot), wait, own + k.drain_s, slot.with_prompts, round_s(slot))


def round_s(slot: Slot) -> Numeric:
    """Time from one decode round of a sequence to the next; very long where no time is left for it. [s]"""
    return slot.seconds / np.maximum(slot.rounds_share, 1e-9)


def step_wait_s(k: Ranks, slot: Slot, rate: Numeric) -> Numeric:
    """Rest of the step under way and the one after it, where some request is there, as in M/G/oo. [s]"""
    meets = -np.expm1(-k.ranks * rate * (k.rounds * round_s(slot) + k.passes * slot.seconds))
    return meets * (slot.rest_s + slot.seconds)
