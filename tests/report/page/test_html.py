"""A page is valid HTML5 that needs nothing from elsewhere, and no text in it becomes markup."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from mlaplan.engines.load import load_profile
from mlaplan.report import chip_sheet, engine_sheet
from mlaplan.report.chip_sheet import Sources
from mlaplan.report.grid import Column, text
from mlaplan.report.page import elements as e
from mlaplan.report.page import html as writer
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.specs.source import read
from tests.report.page.pages import LAUNCHED, LITE, NOTHING, html, made, numbers

REPO = Path(__file__).resolve().parents[3]
HOSTILE = '<script>alert("1")</script> & `</code><img src=x onerror=y>` ]]> --> \u2028'
SVG = "{http://www.w3.org/2000/svg}svg"
QUESTIONS = pytest.mark.parametrize("line", [LAUNCHED, NOTHING], ids=["plan", "nothing"])


def tree(page: str) -> ET.Element:
    """The page as a parser of HTML5 understands it, which must find nothing to complain about."""
    parser = pytest.importorskip("tinyhtml5.parser", reason="tinyhtml5 is not installed").HTMLParser(False)
    root: ET.Element = parser.parse(page)
    assert parser.errors == []
    return root


def hostile_page() -> e.Page:
    block = e.Table(HOSTILE, [text(HOSTILE), Column(HOSTILE)], [[HOSTILE, HOSTILE]], [HOSTILE])
    written = [
        e.Text(HOSTILE), e.Items([HOSTILE]), e.Facts([(HOSTILE, HOSTILE)]), e.Cards([e.Card(*[HOSTILE] * 4)]), block,
        e.Code(HOSTILE, HOSTILE),
    ]  # fmt: skip
    return e.Page(HOSTILE, HOSTILE, [e.Section("one", HOSTILE, written)], {HOSTILE: HOSTILE}, HOSTILE)


@QUESTIONS
def test_a_page_is_valid_html5(line: str) -> None:
    tree(html(line))


def test_a_parser_complains_about_what_is_wrong() -> None:
    """So that the tests above can fail."""
    pytest.importorskip("tinyhtml5", reason="tinyhtml5 is not installed")
    with pytest.raises(AssertionError):
        tree("<!DOCTYPE html><p><table><p></table>")


def test_no_text_becomes_markup() -> None:
    page = writer.document(hostile_page())
    root = tree(page)
    assert [one.tag for one in root.iter("script")] == ["script"]  # the page's own numbers
    assert not list(root.iter("img"))
    assert HOSTILE.replace("`", "") in "".join(root.find(".//main/section/p").itertext())  # type: ignore[union-attr]
    assert "".join(root.find(".//main/section/pre").itertext()) == HOSTILE  # type: ignore[union-attr]
    assert writer.numbers(page) == {HOSTILE: HOSTILE}


def test_names_in_files_do_not_become_markup(tmp_path: Path) -> None:
    """A model's title and source come from a file that anybody may have written."""
    source = (REPO / "models" / "deepseek-v2-lite.yaml").read_text("utf-8")
    changed = re.sub(r"^title: .*$", "title: '<b onclick=x>bold</b> & co'", source, flags=re.M)
    changed = re.sub(r"^name: .*$", "name: mine", changed, flags=re.M)
    assert changed != source
    (tmp_path / "mine.yaml").write_text(changed, "utf-8")
    line = f"report {tmp_path / 'mine.yaml'} h200-sxm --devices 1 --isl 64 --osl 16 --concurrency 1 --top 1"
    code, page, err = made(line)
    assert code == 0, err
    root = tree(page)
    assert not list(root.iter("b"))
    assert "<b onclick=x>bold</b> & co" in "".join(root.find(".//h1").itertext())  # type: ignore[union-attr]


@QUESTIONS
def test_nothing_comes_from_elsewhere(line: str) -> None:
    root = tree(html(line))
    for one in root.iter():
        for name, value in one.attrib.items():
            assert name not in ("src", "srcset", "action", "background") and not name.startswith("on"), (one.tag, name)
            if name == "href":
                assert value.startswith(("#", "data:,")), value
            assert "http" not in value or one.tag == SVG, value
            assert re.findall(r"url\(([^)]*)\)", value) == re.findall(r"url\((#[^)]*)\)", value)
    style = "".join("".join(one.itertext()) for one in root.iter("style"))
    assert "@import" not in style and "url(" not in style
    assert {one.attrib.get("type") for one in root.iter("script")} == {"application/json"}  # data, nothing that runs


@QUESTIONS
def test_headings_tables_and_pictures_can_be_told(line: str) -> None:
    root = tree(html(line))
    assert root.attrib["lang"] == "en"
    assert len(list(root.iter("h1"))) == len(list(root.iter("main"))) == 1
    ids = [one.attrib["id"] for one in root.iter() if "id" in one.attrib]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    for reference in ("href", "aria-labelledby"):
        named = {one.attrib[reference].lstrip("#") for one in root.iter() if reference in one.attrib}
        assert named - {"data:,"} <= set(ids)
    for one in root.iter("table"):
        caption = one.find("caption")
        assert caption is not None and "".join(caption.itertext()).strip()
        assert all(cell.attrib.get("scope") in ("col", "row") for cell in one.iter("th"))
        rows = list(one.iter("tr"))
        assert len({len(list(row)) for row in rows}) == 1
        assert all(row.find("th") is not None for row in rows)
    for one in root.iter(SVG):
        assert one.attrib["role"] == "img" and len(one.attrib["aria-label"]) > 40


def test_every_section_is_there() -> None:
    root = tree(html(LAUNCHED))
    found = [one.attrib["id"] for one in root.iter("h2")]
    assert found == [
        "question", "answer", "why", "alternatives", "excluded", "pareto", "memory", "roofline", "sensitivity", "bands",
        "limits", "sources",
    ]  # fmt: skip
    assert len(list(root.iter(SVG))) == 5
    page = html(LAUNCHED)
    assert "vllm serve deepseek-ai/DeepSeek-V2-Lite" in page and "vllm bench serve" in page
    assert "mlaplan report deepseek-v2-lite h200-sxm --devices 2 --isl 512" in page


def test_every_source_is_named() -> None:
    """Of the chip, of the calibration laid over it, of the model, of the engine and of the cost model's constants."""
    root = tree(html(LAUNCHED))
    said = " ".join("".join(one.itertext()) for one in root.iter("section") if "sources" in one.attrib.values())
    said = " ".join(said.split())
    chip, model, profile = load_chip("h200-sxm", engine="vllm"), load_model("deepseek-v2-lite"), load_profile("vllm")
    known = Sources()
    rows = [*chip_sheet.figure_rows(chip, "", known), *chip_sheet.kernel_rows(chip, known)]
    assert len(rows) > 50 and chip.calibration and "h200-sxm.vllm.cal.yaml" in said
    list(engine_sheet.rows(profile, chip.efficiency_class, "mla", known))
    missing = [text for text in known.numbers if " ".join(text.replace("`", "").split()) not in said]
    assert not missing and len(known.numbers) > 60
    assert model.source in said
    for name in ("band.yaml", "routing.yaml"):
        for one in read(REPO / "mlaplan" / "costs" / name).data.values():
            assert " ".join(str(one["source"]).replace("`", "").split()) in said
    marks = {int(m) for m in re.findall(r"\[(\d+)\]", said)}
    assert marks == set(range(1, len(root.findall(".//section[@aria-labelledby='sources']/ol/li")) + 1))


def test_without_a_plan_the_page_says_what_would_fit() -> None:
    page, found = html(NOTHING), numbers(NOTHING)
    assert made(NOTHING)[0] == 1
    assert "Nothing feasible" in page and "MLA201" in page
    assert "97.0 GB (90.3 GiB) of memory on each chip" in page
    assert found["plans"] == [] and found["rejected"]["MLA201"] > 0 and found["nearest_miss"]["rule"] == "MLA201"


def test_the_numbers_in_a_page_are_those_of_the_json() -> None:
    assert writer.numbers(html(LAUNCHED)) == numbers(LAUNCHED)
    assert numbers(LAUNCHED)["schema"] == "mlaplan.report/1"


def test_the_plans_are_those_of_recommend() -> None:
    known = json.loads(made(f"{LITE.replace('report', 'recommend')} --format json")[1])
    mine = numbers(LITE)
    assert [p["served"] for p in mine["plans"]] == [p["served"] for p in known["plans"]]
    assert [p["memory"] for p in mine["plans"]] == [p["memory"] for p in known["plans"]]
    assert mine["rejected"] == known["rejected"] and mine["priced"] == known["priced"]


def test_the_same_question_gives_the_same_bytes() -> None:
    """In processes of their own, whose hashes differ."""
    pages = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONPATH": str(REPO), "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-m", "mlaplan", *LITE.split(), "--top", "2"],
            cwd=REPO, env=env, capture_output=True, timeout=300, check=True,
        )  # fmt: skip
        pages.add(done.stdout)
    assert len(pages) == 1


def test_pictures_of_two_pages_share_no_id() -> None:
    """So that both can be put on one page."""

    def ids(line: str) -> set[str]:
        return {one.attrib["id"] for svg in tree(html(line)).iter(SVG) for one in svg.iter() if "id" in one.attrib}

    first, second = ids(LAUNCHED), ids(f"{LITE} --concurrency 32")
    assert first and second and not first & second
