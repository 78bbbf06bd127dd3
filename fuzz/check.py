"""Coverage-guided fuzzing of what `mlaplan check` reads. Run by hand, not in CI; needs `pip install atheris`:

    python fuzz/check.py -max_total_time=600 -max_len=8192 -timeout=5 -rss_limit_mb=1024 fuzz/corpus

The corpus folder may be empty; tests/lint/golden is a good start. A traceback, a hang or a memory leak stops it and
leaves the input in a file named crash-..., which the same command takes as an argument to reproduce.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["mlaplan.lint", "mlaplan.engines.flags"]):
    from mlaplan.errors import MlaplanError
    from mlaplan.lint.deployment import Asked
    from mlaplan.lint.run import Checker
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
    except MlaplanError:
        return
    check_text.text(report)
    annotations.github(report)
    annotations.sarif(report)
    check_data.data(report)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
