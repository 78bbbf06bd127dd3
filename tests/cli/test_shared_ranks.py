"""`--shared-ranks`: EP ranks that hold the shared experts and no others."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run

STEP = (
    "explain",
    "deepseek-v3",
    "ascend-910c-die",
    "--engine",
    "generic",
    "--dp",
    "320",
    "--ep",
    "320",
    "--weight-dtype",
    "int8",
)
STEP = (*STEP, "--batch", "4", "--context", "4096", "--redundant-experts", "32")
OTHER = (*STEP[:3], *STEP[5:], "--engine", "vllm-ascend")
NO_SHARED = ("explain", "mixtral-8x7b", "h200-sxm", "--tp", "8", "--batch", "1", "--context", "100")


def test_shared_experts_leave_the_other_ranks(run: Run) -> None:
    """A rank that needs no shared expert streams no weights for one, and the routed ones wait for nobody."""
    found = {}
    for ranks in ("0", "32"):
        out = run(*STEP, "--shared-ranks", ranks, "--format", "json").out
        operators = json.loads(out)["decode"]["operators"]
        found[ranks] = {o["name"]: o for o in operators}
    stays, apart = (sum(o["time_s"] for n, o in found[x].items() if n.startswith("shared_expert")) for x in ("0", "32"))
    assert apart < 0.2 * stays
    more = found["32"]["moe_dispatch"]["link_bytes"] / found["0"]["moe_dispatch"]["link_bytes"]
    assert more == pytest.approx(9 / 8)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*OTHER, "--shared-ranks", "32"), "keeps the shared experts on every rank"),
        ((*NO_SHARED, "--shared-ranks", "1"), "has no shared experts"),
        ((*STEP, "--shared-ranks", "-1"), "-1 is not in the range"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_one_line(run: Run, words: tuple[str, ...], says: str) -> None:
    result = run(*words)
    assert result.code == 2 and result.out == "" and says in result.err
    assert len(result.err.strip().splitlines()) == 1
