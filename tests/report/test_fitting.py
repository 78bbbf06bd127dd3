"""What is said to fit does, and a little less does not."""

from __future__ import annotations

from mlaplan.engines.load import load_profile
from mlaplan.plan import question, recommend
from mlaplan.report import fitting
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.workload import Overrides, Workload


def test_the_least_memory_is_the_least() -> None:
    work = Workload(4096, 1024, 8)
    q = question(load_chip("k3"), load_model("deepseek-v3"), load_profile("generic"), work, Overrides())
    found = recommend(q, 8)
    miss = found.nearest_miss
    assert miss is not None and not found.plans
    least = fitting.least_capacity(q, miss)
    assert least is not None
    assert fitting.fits(q, miss, least) and not fitting.fits(q, miss, least - fitting.STEP)
    larger = load_chip("k3", [f"memory.capacity={least / 1e9:.0f} GB"])
    again = question(larger, q.setting.model, q.profile, work, Overrides())
    assert recommend(again, 8).plans
    said = fitting.what_fits(q, miss, None)
    assert f"{least / 1e9:.1f} GB" in said[0] and "no network joins them" in said[1]
    assert fitting.what_fits(q, miss, "16 chips would hold it")[0] == "16 chips would hold it"
