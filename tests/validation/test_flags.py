"""Figures that contradict themselves are flagged, sound ones are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlaplan.validation.flags import flags, rejected
from mlaplan.validation.points import Point, published

BY_ID = {p.id: p for p in published()}


def test_every_rejected_point_is_flagged() -> None:
    found = rejected()
    assert len(found) >= 7
    assert all(why for _, why in found), [p.id for p, why in found if not why]


def claims(**figures: float) -> Point:
    return replace(BY_ID["seed2-tp16"], claims=figures)


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"step": 0.0426, "tok_s": 8420.0, "in_flight": 180.0}, "4,225 tok/s, 8,420 are claimed"),
        ({"step": 0.0114, "tok_s": 32800.0, "in_flight": 1024.0}, "only 37% of the sequences can be running"),
    ],
)
def test_rate_and_step_must_agree(figures: dict[str, float], said: str) -> None:
    assert said in flags(claims(**figures))[0]


@pytest.mark.parametrize(
    "figures",
    [
        {"step": 0.0494, "tok_s": 1943.0, "in_flight": 96.0},  # CloudMatrix384 as published
        {"step": 0.050, "tok_s": 1850.0, "in_flight": 91.7},  # RTP-LLM as published
        {"step": 0.05},
    ],
)
def test_sound_figures_pass(figures: dict[str, float]) -> None:
    assert flags(claims(**figures)) == []


def test_overlap_cannot_shrink_busy_time() -> None:
    series = tuple(
        replace(BY_ID["seed0-none"], claims={"step": step, "busy_share": share})
        for step, share in ((1.0, 0.6), (0.75, 0.8))
    )
    assert flags(series[0], series) == []
    worse = (series[0], replace(series[1], claims={"step": 0.6, "busy_share": 0.8}))
    assert "cannot shrink work" in flags(worse[0], worse)[0]


def test_what_does_not_fit_the_memory_is_flagged() -> None:
    point = BY_ID["xllm-910b"]
    assert "fit beside the weights" in flags(point)[0]
    few = replace(point, claims={**point.claims, "in_flight": 64.0, "devices": 64.0, "tok_s": 640.0})
    assert flags(few) == []
