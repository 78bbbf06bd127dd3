"""One picture of every kind beside the one that was looked at: pytest-mpl, tolerant of other font engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlaplan.report.plots import KINDS
from mlaplan.report.plots.style import COLUMN
from tests.report.plots.examples import EXAMPLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

pytest.importorskip("pytest_mpl")

TOLERANCE = 12  # root mean square of 255: text of another font engine; a missing bar or line is more


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.mpl_image_compare(
    baseline_dir="../baseline", tolerance=TOLERANCE, style="default", savefig_kwargs={"dpi": 80}, deterministic=True
)
def test_picture(kind: str) -> Figure:
    module, data = EXAMPLES[kind]
    return module.figure(data(), COLUMN)
