"""`mlaplan plot`: files of rows and of questions, and one clear line for what does not go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

ROWS = str(Path(__file__).parents[1] / "fixtures" / "sweep.csv")
QUESTION = ("deepseek-v2-lite", "h200-sxm", "--devices", "2", "--isl", "1k", "--osl", "128", "--concurrency", "16")


def test_a_kind_of_rows_is_written_where_asked_or_named_by_itself(run: Run, tmp_path: Path) -> None:
    narrow = ("--where", "isl=8k", "--where", "concurrency=256")
    done = run("plot", ROWS, "--kind", "scaling", "--by", "chip,strategy", *narrow, "-o", "a.png")
    assert (done.code, done.out, done.err) == (0, "", "written to a.png\n")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    done = run(
        "plot", ROWS, "--kind", "heatmap", "--where", "devices=16", "--x", "isl", "--y", "tok_s_chip", "--by", "chip"
    )
    assert done.err == "written to sweep-heatmap.svg\n"


def test_without_a_kind_all_that_rows_allow_is_drawn(run: Run, tmp_path: Path) -> None:
    done = run("plot", ROWS, "--width", "column", "-o", "all")
    assert done.code == 0
    assert "written to all/scaling.svg (isl 8k, concurrency 256)" in done.err
    assert "not drawn: timeline: the rows of a sweep hold no operators" in done.err
    assert {p.name for p in (tmp_path / "all").iterdir()} == {f"{kind}.svg" for kind in (
        "pareto", "heatmap", "breakdown", "scaling", "memory")}  # fmt: skip


@pytest.mark.parametrize("kind", ["pareto", "roofline", "breakdown", "memory", "timeline", "sensitivity"])
def test_kinds_of_a_question(run: Run, tmp_path: Path, kind: str) -> None:
    done = run("plot", *QUESTION, "--kind", kind, "-o", "a.svg")
    assert (done.code, done.err) == (0, "written to a.svg\n")
    assert "<svg" in (tmp_path / "a.svg").read_text()


def test_scaling_of_a_question_takes_several_numbers_of_chips(run: Run) -> None:
    done = run("plot", "deepseek-v2-lite", "h200-sxm", "--devices", "2,4", "--concurrency", "16", "--kind", "scaling")
    assert done.code == 0
    assert done.err == (
        "not given and taken: --isl 4096 --osl 1024\nwritten to deepseek-v2-lite-h200-sxm-scaling.svg\n"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((ROWS, "--kind", "paretto"), "--kind paretto: expected one of pareto, heatmap"),
        ((ROWS, "--kind", "paretto"), "did you mean 'pareto'?"),
        ((ROWS, "--kind", "pareto", "--x", "tok_s_usr"), "--x tok_s_usr: no such column; did you mean 'tok_s_user'?"),
        ((ROWS, "--kind", "pareto", "--by", "chp"), "--by chp: no such column; did you mean 'chip'?"),
        ((ROWS, "--kind", "pareto", "--y", "chip"), "--y chip: not a column of numbers"),
        ((ROWS, "--kind", "roofline"), "roofline: the rows of a sweep hold no operators; ask one question"),
        ((ROWS, "--kind", "sensitivity"), "sensitivity: no figure is varied by a factor"),
        ((ROWS, "--kind", "scaling", "--x", "isl"), "--x is not for a scaling; it takes --y, --by"),
        ((ROWS, "--kind", "scaling", "--by", "chip"), "isl varies (1k, 8k, 64k) and is not shown; choose one, --where"),
        ((ROWS, "--kind", "scaling", "--where", "isl=9k"), "--where isl=9k: no row has it; the values are 1k, 8k, 64k"),
        ((ROWS, "--kind", "scaling", "--where", "chip=h200-smx"), "did you mean 'h200-sxm'?"),
        ((ROWS, "--kind", "scaling", "--where", "isl"), "--where isl: expected COLUMN=VALUE such as isl=4k"),
        ((ROWS, "--kind", "scaling", "--isl", "4k"), "--isl goes with a question, MODEL CHIP"),
        ((ROWS, "--kind", "scaling", "-o", "a.gif"), "-o a.gif: expected a name that ends in .svg, .png, .pdf"),
        ((ROWS, "--kind", "scaling", "-o", "none/a.svg"), "there is no folder none"),
        ((ROWS, "-o", "a.svg"), "without --kind all kinds are drawn; expected a folder"),
        (("none.csv", "--kind", "pareto"), "none.csv: cannot be read"),
        ((*QUESTION,), "give a --kind"),
        ((*QUESTION, "--kind", "heatmap"), "heatmap: one question is one cell; sweep first"),
        ((*QUESTION, "--kind", "pareto", "--by", "chip"), "--by goes with the rows of a sweep"),
        ((*QUESTION, "--kind", "scaling"), "--devices 2: scaling needs 2 to 16 numbers of chips"),
        ((*QUESTION, "--kind", "pareto", "--factor", "2"), "--factor goes with --kind sensitivity, not pareto"),
        ((*QUESTION, "--kind", "sensitivity", "--factor", "1"), "--factor 1: expected a number above 1"),
        (("deepseek-v2-lite", "h200-sxm", "--kind", "memory"), "a question needs --devices N"),
        (("deepseek-v2-lite", "h200-smx", "--kind", "memory", "--devices", "2"), "did you mean 'h200-sxm'?"),
        (("deepseek-v3", "h200-sxm", "--kind", "memory", "--devices", "x"), "--devices x: expected whole numbers"),
        (("rows.txt", "--kind", "memory"), "rows.txt: expected rows of a sweep"),
        ((), "expected FILE, the rows of a sweep, or MODEL CHIP"),
    ],
)  # fmt: skip
def test_what_does_not_go_is_told_in_one_line(run: Run, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    done = run("plot", *words)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_nothing_feasible_is_told_and_draws_nothing(run: Run, tmp_path: Path) -> None:
    done = run("plot", "deepseek-v3", "h100-sxm", "--devices", "1", "--isl", "1k", "--osl", "8", "--kind", "roofline")
    assert done.code == 1
    assert done.err.startswith("nothing is feasible on 1 x h100-sxm; nearest ")
    assert not list(tmp_path.iterdir())
