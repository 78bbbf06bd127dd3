"""Claims of the four articles: every verdict agrees with its numbers, and the numbers that decide are right."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from mlaplan.validation import article_k3
from mlaplan.validation.articles import (
    ARTICLES,
    HOLDS,
    NOT,
    UNKNOWN,
    VERDICTS,
    WITH,
    Row,
    agrees,
    articles_rows,
    computations,
    data,
    figures,
    stated,
)

ROWS = {(r.article, r.id): r for r in articles_rows()}
CLAIMS = {(a, c["id"]): c for a in ARTICLES for c in data()["claims"][a]}


def test_every_article_has_claims_and_each_claim_one_row() -> None:
    assert Counter(r.article for r in ROWS.values()) == {"k3": 41, "sc11": 10, "h100": 23, "ascend": 14}
    assert len(ROWS) == len(articles_rows()) == len(CLAIMS)
    assert {a for a, _ in ROWS} == set(data()["articles"]) == set(ARTICLES)


@pytest.mark.parametrize("article", ARTICLES)
def test_every_computation_belongs_to_a_claim(article: str) -> None:
    assert set(computations(article)) <= {c["id"] for c in data()["claims"][article]}


@pytest.mark.parametrize("key", ROWS, ids="-".join)
def test_a_verdict_agrees_with_its_numbers(key: tuple[str, str]) -> None:
    row, claim = ROWS[key], CLAIMS[key]
    assert row.verdict in VERDICTS
    assert row.recomputed is None or math.isfinite(row.recomputed)
    if row.claimed is not None and row.recomputed is not None and "within" in claim:
        near = agrees(row.claimed, row.recomputed, claim["within"])
        assert near == (row.verdict in (HOLDS, WITH)), f"{row.claimed} against {row.recomputed}"
    if row.verdict in (NOT, WITH, UNKNOWN):
        assert len(row.reason) > 2, "a reader is told why"
    if "verdict" not in claim:
        assert "within" in claim


def of(article: str, name: str) -> Row:
    return ROWS[article, name]


@pytest.mark.parametrize(
    ("key", "number", "tolerance"),
    [
        # K3, by hand: 0.72 x 1.08 / 0.819, 0.85 x 0.87 / 0.819, 0.88 x 0.71 / 0.819
        (("k3", "factor-chunking"), 0.949, 5e-4), (("k3", "factor-fused"), 0.903, 5e-4),
        (("k3", "factor-deep"), 0.763, 5e-4), (("k3", "deep-latency"), 0.819, 1e-9),
        (("k3", "gather-bytes"), 64 / 7, 1e-9), (("k3", "order-of-magnitude"), 56.9, 0.05),
        (("k3", "tokens-fused"), 3661, 1), (("k3", "tokens-deep"), 4486, 1), (("k3", "guard"), 20, 0),
        (("k3", "end-to-end"), 0.47, 5e-3), (("k3", "alternative"), 241.8, 0.1),
        (("h100", "bound-coarse"), 4225, 1), (("h100", "bound-tuned"), 89825, 1), (("h100", "below-gqa"), 2.25, 1e-9),
        (("h100", "pp-efficiency"), 12, 0), (("h100", "fits-h100"), 83.9, 0.05),
        (("ascend", "kv-token"), 320, 0), (("ascend", "per-card-weights"), 17.5, 1e-9),
        (("ascend", "int8-kv"), 0.492, 5e-4), (("sc11", "tp-or-dp"), 108.0 / 78.1, 2e-3),
    ],
)  # fmt: skip
def test_numbers_by_hand(key: tuple[str, str], number: float, tolerance: float) -> None:
    found = ROWS[key].recomputed
    assert found == pytest.approx(number, abs=tolerance)


def test_overlap_alone_does_not_reach_the_last_row_of_k3() -> None:
    """Neither by arithmetic nor in the model: its deep pipeline ends above the compute of the first row."""
    assert of("k3", "deep-latency").verdict == of("k3", "model-deep").verdict == NOT
    modelled = of("k3", "model-deep").recomputed
    assert modelled is not None and modelled > 0.819
    plan = article_k3.long_sequence()
    floor = max(m.compute_s for m in plan.modes)
    assert all(m.step_s >= floor for m in plan.modes)


def test_fused_compute_factors_are_in_no_chip_file() -> None:
    text = (Path(__file__).parents[2] / "hardware" / "k3.yaml").read_text("utf-8")
    assert not any(factor in text for factor in ("0.949", "0.903", "0.763", "0.371", "0.729", "0.823"))


def test_sc11_rate_is_within_a_quarter_untuned() -> None:
    row = of("sc11", "rate")
    assert row.claimed == 532
    assert row.recomputed == pytest.approx(532, rel=0.25)
    assert row.verdict == HOLDS


def test_the_h100_table_contradicts_itself() -> None:
    assert of("h100", "bound-coarse").verdict == of("h100", "bound-tuned").verdict == NOT
    assert of("h100", "comm-fall").recomputed == pytest.approx(17.72 - 10.70, abs=0.01)


def test_what_is_stated_of_slices_is_data() -> None:
    s = stated()
    assert (s.slice_bytes, s.depth, s.batch, s.context) == ((16384, 65536), 4, 32, 2048)
    assert figures("k3")["rows"][3]["step_ms"] == 0.71
