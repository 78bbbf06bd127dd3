"""The same page as Markdown."""

from __future__ import annotations

import re

from mlaplan.report.page import markdown
from tests.report.page.pages import LAUNCHED, NOTHING, html, made
from tests.report.page.test_html import HOSTILE, hostile_page


def test_sections_and_tables_are_those_of_the_html() -> None:
    code, text, _ = made(f"{LAUNCHED} --format md")
    assert code == 0
    titles = re.findall(r"^## (.+)$", text, re.M)
    assert titles == re.findall(r"<h2 id=\"[^\"]+\">([^<]+)</h2>", html(LAUNCHED))
    assert text.count("\n| ---") == html(LAUNCHED).count("<table>") + 1  # the figures of the answer
    assert "```sh\n# vLLM" in text


def test_every_table_is_whole() -> None:
    for block in re.findall(r"(?:^\|.*\n)+", made(f"{LAUNCHED} --format md")[1], re.M):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(cells) == 1, block


def test_without_a_plan_it_says_so() -> None:
    code, text, _ = made(f"{NOTHING} --format md")
    assert code == 1 and "**Nothing feasible" in text and "what would fit: 97.0 GB" in text


def test_marks_in_texts_are_letters() -> None:
    text = markdown.document(hostile_page())
    outside = re.sub(r"^(`{3,})sh\n.*?^\1$", "", text, flags=re.M | re.S)
    outside = re.sub(r"`[^`\n]*`", "", outside)
    assert not re.search(r"(?<!\\)<", outside)
    assert HOSTILE in text  # in the commands, as it is
