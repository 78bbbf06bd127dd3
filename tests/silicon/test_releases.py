"""The change of kernels from release to release is that of the installed tables."""

import pytest

from mlaplan.calibration import tables
from mlaplan.costs.band import whole_step

pytestmark = pytest.mark.skipif(tables.root() is None, reason="aiconfigurator-core is not installed (extra silicon)")


def test_band_yaml_holds_what_the_tables_say():
    from mlaplan.calibration.releases import FAMILIES, spread

    known = whole_step().releases
    assert known.keys() == FAMILIES.keys()
    for of, value in known.items():
        assert spread(of) == pytest.approx(value, abs=0.0006), of


def test_candidates_come_before_their_release():
    from mlaplan.calibration.releases import _release

    found = sorted(["1.3.0.post2", "1.3.0", "1.3.0rc20", "1.2.0rc5", "1.3.0rc10"], key=_release)
    assert found == ["1.2.0rc5", "1.3.0rc10", "1.3.0rc20", "1.3.0", "1.3.0.post2"]
