"""docs/rules.md is what the rules say of themselves."""

from __future__ import annotations

import os
from pathlib import Path

from mlaplan.lint.rules import lint_rules
from mlaplan.report.rules_page import page

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_page_is_current() -> None:
    said = page(lint_rules())
    if os.environ.get("MLAPLAN_UPDATE"):
        PAGE.write_text(said)
    assert PAGE.read_text() == said, "MLAPLAN_UPDATE=1 pytest tests/lint/test_docs_page.py writes it anew"
