"""Points are priced with the kernels of the release that ran, where their source tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlaplan.specs.releases import line_of
from mlaplan.validation import silicon
from mlaplan.validation.points import published
from mlaplan.validation.setting import subject

POINTS = {p.id: p for p in (*published(), *silicon.points())}


@pytest.mark.parametrize(
    ("point", "calibration"),
    [
        ("trt-h200-maxtput", "h200-sxm.trtllm@0.20.cal.yaml"),
        ("dstack-h200-trtllm-c8", "h200-sxm.trtllm@0.20.cal.yaml"),  # 0.18 is older than all lines
        ("trt-h200-minlat", "h200-sxm.trtllm@0.20.cal.yaml"),
        ("trt-b200-minlat-mtp0", "b200-sxm.trtllm@1.0.cal.yaml"),  # the oldest line of that chip
        ("trt-b200-minlat-ep2", "b200-sxm.trtllm@1.0.cal.yaml"),
        ("silicon-trtllm-1024-1024-c4-tpot", "h200-sxm.trtllm@1.0.cal.yaml"),
        ("silicon-sglang-1024-1024-c4-tpot", "h200-sxm.sglang.cal.yaml"),
        ("dstack-h200-vllm-c8", "h200-sxm.vllm.cal.yaml"),  # no older line of vLLM is shipped
    ],
)
def test_a_point_has_the_kernels_of_its_release(point: str, calibration: str) -> None:
    if point not in POINTS:
        pytest.skip("aiconfigurator-core is not installed (extra silicon)")
    assert Path(subject(POINTS[point]).chip.calibration).name == calibration


def test_a_release_is_one_that_lines_are_told_by() -> None:
    given = [p for p in POINTS.values() if p.release is not None]
    assert len(given) >= 10
    assert all(line_of(p.release) is not None for p in given)
