"""Pages of small questions, made once, and what a browser or a parser is told of them."""

from __future__ import annotations

import io
import json
import shlex
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from typing import Any

from mlaplan.__main__ import main

LITE = "report deepseek-v2-lite h200-sxm --devices 2 --isl 512 --osl 128 --concurrency 16"
LAUNCHED = f"{LITE} --engine vllm"
NOTHING = "report deepseek-v3 k3 --devices 8 --isl 4k --osl 1k --concurrency 8"


@cache
def made(line: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of one run."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(shlex.split(line))
    return code, out.getvalue(), err.getvalue()


def html(line: str) -> str:
    return made(line)[1]


def numbers(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(made(f"{line} --format json")[1])
    return found
