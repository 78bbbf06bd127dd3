"""`mlaplan recommend` at its edges: what to run next, no plan in rows, pins, sizes and names that cannot be."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.cli.conftest import Run
from tests.cli.test_recommend import V3_ONE_NODE, answer, data, words


@pytest.mark.parametrize("given", ["--mtp-accept 3.5 --osl 1k", "--mtp-accept 2 --osl 1"])
def test_the_next_command_takes_the_accepted_tokens_of_the_plan(given: str) -> None:
    line = f"recommend deepseek-v3 h200-sxm --devices 8 --isl 4k --concurrency 1168 {given}"
    plan, told = data(line)["plans"][0], answer(line).err.splitlines()
    command = next(text for text in told if text.startswith("next: mlaplan ")).removeprefix("next: mlaplan ")
    depth = plan["strategy"]["mtp"]
    wanted = f"--mtp-accept {min(3.5, 1 + depth):g}" if depth else ""
    assert wanted in command and ("--mtp-accept" in command) is (depth > 0)
    again = answer(f"{command} --format json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["served"] == plan["served"]


def test_rows_without_a_plan_say_why_beside_them() -> None:
    result = answer(f"{V3_ONE_NODE} --format csv")
    assert result.code == 1 and not result.out.strip()
    assert "MLA201" in result.err and "smallest change: 16 chips would hold it" in " ".join(result.err.split())


def test_a_pinned_conversion_is_not_laid_to_the_chip() -> None:
    line = "recommend deepseek-v3 h200-sxm --devices 16 --isl 4k --osl 1k --concurrency 64 --weight-dtype bf16"
    assert "the checkpoint is fp8: the plan converts the 671 B weights to bf16" in words(line)


def test_more_chips_than_anyone_has_are_refused() -> None:
    result = answer("recommend deepseek-v3 h200-sxm --devices 99999999999999999999")
    assert result.code == 2 and result.err.count("\n") == 1 and "1<=x<=1000000" in result.err


def test_a_file_without_a_name_is_refused(run: Run) -> None:
    result = run(*shlex.split(f"{V3_ONE_NODE} -o ''"))
    assert (result.code, result.out) == (2, "")
    assert result.err == "the name of the file to write is empty; expected a name, or - for stdout\n"


def test_a_model_and_a_chip_the_wrong_way_round_are_told_so() -> None:
    result = answer("recommend h200-sxm deepseek-v3 --devices 8")
    assert (result.code, result.out) == (2, "")
    assert result.err == "'h200-sxm' is a chip and 'deepseek-v3' is a model; expected MODEL CHIP, in this order\n"


def test_no_operator_but_what_overlap_hides_takes_less_than_nothing() -> None:
    # rounding left the bubble of one of these plans at -3e-17 s
    for plan in data("recommend deepseek-v3 h200-sxm --devices 8 --isl 4k --osl 1k --mtp-accept 3.5")["plans"]:
        for phase in ("decode", "prefill"):
            operators = plan[phase]["operators"]
            assert [o for o in operators if o["time_s"] < 0 and "overlap" not in o["name"]] == []
            assert sum(o["time_s"] for o in operators) == pytest.approx(plan[phase]["step_s"]["value"], rel=1e-9)
