"""Coverage-guided fuzzing of what `mlaplan check` reads. Run by hand, not in CI; needs `pip install atheris`:

    python fuzz/check.py -max_total_time=600 -max_len=8192 -timeout=5 -rss_limit_mb=1024 fuzz/corpus

The corpus folder may be empty; texts of tests/lint/golden with one byte before each (0: script, 1: YAML, 2: plan) are a
good start. On a busy machine raise -timeout: it is wall time. A traceback, a hang or a memory leak stops it and
leaves the input in a file named crash-..., which the same command takes as an argument to reproduce.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["mlaplan.lint", "mlaplan.engines.flags"]):
    from mlaplan.errors import MlaplanError
    from mlaplan.lint.deployment import Asked
    from mlaplan.lint.run import Checker, first_ones
    from mlaplan.report import annotations, check_data, check_text

NAMES = ("a.sh", "a.yaml", "plan.json", "a")


def one(data: bytes) -> None:
    """Checks the bytes as one kind of file, by their first byte, and writes the findings in every format."""
    if not data:
        return
    checker = Checker(Asked(chip="h100-sxm", devices=8))
    try:
        checker.raw(data[1:], NAMES[data[0] % len(NAMES)])
        report = checker.finish([], [])
        report.findings = first_ones(report.findings)
    except MlaplanError:
        return
    check_text.text(report)
    annotations.github(report)
    annotations.sarif(report)
    check_data.data(report)


WARM = b"\0# vLLM 0.33.0\nvllm serve deepseek-ai/DeepSeek-V3 -tp 8 --enforce-eager\n"

if __name__ == "__main__":
    one(WARM)  # imports and profiles are no part of any input's time
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
