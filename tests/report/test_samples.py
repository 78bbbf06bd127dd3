"""The committed sample reports hold the numbers that the same questions give now."""

from __future__ import annotations

import io
import json
import math
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mlaplan.__main__ import main

REPO = Path(__file__).resolve().parents[2]
samples: Any = import_module("reports.__main__")
SAME = 1e-6  # of a number: other processors and versions of numpy round otherwise
LARGEST = 400_000  # bytes of a page


def fresh(name: str) -> dict[str, Any]:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = main([*samples.command(name), "--format", "json"])
    assert code in (0, 1)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Places where two documents differ by more than rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = dict.fromkeys((*a, *b))
        return [d for k in keys for d in differences(a.get(k), b.get(k), f"{path}.{k}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for i, (x, y) in enumerate(zip(a, b, strict=True)) for d in differences(x, y, f"{path}[{i}]")]
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (a, b))
    if numbers and math.isclose(a, b, rel_tol=SAME, abs_tol=1e-12):
        return []
    return [] if a == b else [f"{path.lstrip('.')}: {a} in the page, {b} now"]


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_the_numbers_are_those_of_today(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)  # files are named as seen from there
    known, now = samples.numbers(name), fresh(name)
    for one in (known, now):
        del one["tool_version"]
    found = differences(known, now)
    assert not found, "\n".join(["`python -m reports` writes them anew:", *found[:10]])


def test_a_changed_number_is_seen() -> None:
    known = samples.numbers("deepseek-v3-sc11")
    other = json.loads(json.dumps(known))
    other["plans"][0]["served"]["tpot_s"]["value"] *= 1.001
    assert len(differences(known, other)) == 1


def test_the_index_is_made_of_the_pages() -> None:
    assert (REPO / "reports" / "README.md").read_text("utf-8") == samples.index()


def test_every_page_is_a_sample_and_small() -> None:
    pages = {path.stem: path for path in (REPO / "reports").glob("*.html")}
    assert set(pages) == set(samples.SAMPLES) == {n for names, _ in samples.ARTICLES.values() for n in names}
    assert len(samples.ARTICLES) == 4
    assert all(path.stat().st_size < LARGEST for path in pages.values())


def test_no_page_names_a_place_on_one_machine() -> None:
    import re

    for path in (REPO / "reports").glob("*.html"):
        assert not re.search(r"(?<![\w.])/(home|root|work|tmp|usr|opt|Users)/", path.read_text("utf-8")), path.name
