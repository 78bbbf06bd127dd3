"""A page of a split: its pools, commands and comparison; where together wins, the comparison behind the answer."""

from __future__ import annotations

import io
import json
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from mlaplan.__main__ import main

ASKED = "report llama-3-70b ascend-910b3 --devices 8 --isl 4096 --osl 512 --ttft 3s --tpot 60ms"


@cache
def made(line: str) -> tuple[int, str, str]:
    out, told = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(told):
        code = main(shlex.split(line))
    return code, out.getvalue(), told.getvalue()


def page(line: str) -> str:
    code, out, told = made(line)
    assert code == 0, told
    return out


def test_the_answer_is_the_two_pools() -> None:
    text = page(f"{ASKED} --disagg on --engine vllm-ascend --format md")
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert sections[:4] == ["The question", "The answer", "The pools", "Together or apart"]
    assert "Prefill and decode apart: " in text and "kv\\_producer" not in text and '"kv_producer"' in text
    assert "The router" in text and "load_balance_proxy_server_example.py" in text
    assert "Operators of a prefill step" in text and "Operators of a decode step" in text
    assert "tok/s/chip" in text and "tok/s chip" not in text


def test_the_numbers_are_those_of_recommend() -> None:
    known = json.loads(page(f"{ASKED} --disagg on --format json"))["disagg"]
    words = shlex.split(f"{ASKED} --disagg on --format json".replace("report", "recommend", 1))
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        assert main(words) == 0
    assert json.loads(out.getvalue())["disagg"] == known
    assert known["wins"] == "apart" and known["split"]["poisson"]["share"] == 0.8


def test_together_stands_first_where_it_wins() -> None:
    text = page("report llama-3-70b ascend-910b3 --devices 8 --isl 512 --osl 1024 --disagg auto --format md")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[1:3] == ["The answer", "Together or apart"]
    assert "Launch commands" in text


def test_two_kinds_of_chips_have_their_sources() -> None:
    text = page("report llama-3-70b h200-sxm --prefill-chip h100-sxm --devices 8 --isl 4096 --osl 256 --disagg on "
                "--engine vllm --format md")  # fmt: skip
    assert "H100" in text.partition("## Sources")[2] and "H200" in text.partition("## Sources")[2]


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ("--emit kthena", "--emit kthena: a page holds commands; mlaplan recommend writes manifests"),
        ("--emit lws", "a page holds commands"),
        ("--kv-connector nixl", "--kv-connector goes with --disagg on or auto"),
        ("--disagg on --objective pareto", "sizes pools by throughput"),
    ],
)
def test_what_a_page_cannot_hold_is_refused(extra: str, said: str) -> None:
    code, out, told = made(f"{ASKED} {extra}")
    assert code == 2 and said in told and not out


def test_the_help_names_engines_only() -> None:
    text = made("report --help")[1]
    shown = " ".join(text.partition("--emit")[2].partition("--tp ")[0].split())
    assert "lws" not in shown and "kthena" not in shown


def test_a_page_names_no_folder_of_its_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files elsewhere by their name, those below the working folder as seen from it."""
    from mlaplan.specs import lookup

    source = Path(lookup.load_chip("ascend-910b3").origin).resolve()
    (tmp_path / "chips").mkdir()
    own = tmp_path / "chips" / "mine.yaml"
    own.write_text(source.read_text())
    monkeypatch.chdir(tmp_path)
    for how in ("html", "md", "json"):
        for chip in (str(own), "chips/mine.yaml"):
            line = f"report llama-3-70b {chip} --devices 8 --isl 4096 --osl 512 --format {how}"
            text = page(line)
            assert str(tmp_path) not in text and str(source.parents[1]) not in text
            assert "chips/mine.yaml" in text
    for verb in ("recommend", "explain"):
        flags = "--devices 8" if verb == "recommend" else "--tp 8"
        text = page(f"{verb} llama-3-70b {own} {flags} --isl 512 --osl 64 --concurrency 4 --format json")
        assert str(tmp_path) not in text
