"""A page in headless Chromium: no errors, no overflow at 400 and 1400 pixels, readable in light and dark, printable."""

from __future__ import annotations

import html as escaping
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.report.page.pages import LAUNCHED, NOTHING, html

BROWSER = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium here: apt-get install chromium")

SCHEMES = {"dark": 0, "light": 1}
WIDTHS = (400, 1400)
# what is told of a page: its width, boxes that stick out of it, and the least contrast of texts in pictures
PROBE = """
<script>
addEventListener("load", () => {
  const root = document.documentElement, colour = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const contrast = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const inBox = (one) => one.closest(".scroll") !== null;
  const out = [...document.body.querySelectorAll("*")].filter((one) => !inBox(one.parentElement) &&
    one.getBoundingClientRect().right > root.clientWidth + 0.5).map((one) => one.tagName);
  const paper = colour(getComputedStyle(document.body).backgroundColor);
  const texts = [...document.querySelectorAll("svg text")].filter((one) => one.textContent.trim());
  const contrasts = texts.map((one) => contrast(colour(getComputedStyle(one).fill), paper));
  const told = { width: root.clientWidth, scroll: root.scrollWidth, out, paper, texts: texts.length,
    ink: contrast(colour(getComputedStyle(document.body).color), paper), least: Math.min(99, ...contrasts) };
  const place = parent.document.createElement("pre");
  place.textContent = JSON.stringify(told);
  parent.document.getElementById("told").append(place);
});
</script>
"""


def chromium(*options: str) -> subprocess.CompletedProcess[str]:
    assert BROWSER is not None
    return subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
         *options],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip


def framed(pages: list[str]) -> str:
    """Every page in frames of both widths, since a window has a least width of its own."""
    frames = [
        f'<iframe width="{width}" height="600" srcdoc="{escaping.escape(page + PROBE)}"></iframe>'
        for page in pages for width in WIDTHS
    ]  # fmt: skip
    return f"<!DOCTYPE html><title>frames</title><div id=told></div>{''.join(frames)}"


@cache
def seen(scheme: str) -> tuple[list[dict[str, Any]], str]:
    """(what is told of each frame, messages of the console)."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "frames.html"
        path.write_text(framed([html(LAUNCHED), html(NOTHING)]), "utf-8")
        setting = f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"
        done = chromium(setting, "--virtual-time-budget=20000", "--dump-dom", path.as_uri())
    told = [json.loads(escaping.unescape(m)) for m in re.findall(r"<pre>(.*?)</pre>", _told(done.stdout), re.S)]
    return told, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def _told(dom: str) -> str:
    start = dom.index('id="told"')
    return dom[start : dom.index("<iframe", start)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_sticks_out_and_the_console_is_silent(scheme: str) -> None:
    told, console = seen(scheme)
    assert sorted(one["width"] for one in told) == sorted(WIDTHS * 2)
    for one in told:
        assert one["scroll"] == one["width"] and one["out"] == [], one
    assert console == ""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_words_and_pictures_can_be_read(scheme: str) -> None:
    """Contrast of WCAG 2.2: 4.5 for text; names in the colour of their series are held to the 3 of graphics."""
    told, _ = seen(scheme)
    for one in told:
        assert (sum(one["paper"][:3]) < 150) == (scheme == "dark")
        assert one["ink"] > 12
        assert one["least"] >= 3.0, one
    assert max(one["texts"] for one in told) > 50


def test_what_is_wrong_is_seen(tmp_path: Path) -> None:
    """So that the tests above can fail."""
    bad = '<!DOCTYPE html><body><p style="width:2000px">wide</p><script>console.error("broken")</script></body>'
    (tmp_path / "bad.html").write_text(framed([bad]), "utf-8")
    done = chromium("--virtual-time-budget=5000", "--dump-dom", (tmp_path / "bad.html").as_uri())
    assert "broken" in done.stderr
    assert '"out":["P"' in escaping.unescape(_told(done.stdout))


def test_a_page_prints(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(html(LAUNCHED), "utf-8")
    pdf = tmp_path / "page.pdf"
    chromium(f"--print-to-pdf={pdf}", "--no-pdf-header-footer", (tmp_path / "page.html").as_uri())
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF") and 4 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 25
