"""`simulate`: requests through a fleet, event by event."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlaplan.serving.simulator.outcome import Outcome
    from mlaplan.serving.simulator.requests import Requests
    from mlaplan.serving.simulator.server import Fleet

Progress = Callable[[int, int], None]  # (requests done, requests in all)


def simulate(
    requests: Requests, fleet: Fleet, *, concurrency: int | None = None, seed: int = 0, progress: Progress | None = None
) -> Outcome:
    """Runs the requests through the fleet.

    concurrency: that many are sent at once and each finished one is replaced, so that arrivals play no part (closed
    loop); without it they are sent as they arrive (open loop). seed: of the tokens that drafts yield.
    """
    raise NotImplementedError
