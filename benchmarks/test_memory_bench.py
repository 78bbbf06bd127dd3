"""Peak memory of a search over ten million strategies, which are priced in blocks and forgotten."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

ROWS = 10_000_000
BAR_BYTES = 2**30

CHILD = """
import json, resource, sys
from mlaplan import plan, search
from mlaplan.engines.load import load_profile
from mlaplan.specs.lookup import load_chip, load_model
from mlaplan.workload import Overrides, Workload

q = plan.question(
    load_chip("h200-sxm"), load_model("deepseek-v3"), load_profile("generic"),
    Workload(isl=4096, osl=1024), Overrides(),
)
found, devices = search.Found(), []
while found.priced < int(sys.argv[1]):
    devices.append(1024 * (len(devices) + 1))
    search.search(q, devices[-1], "throughput", {}, None, found)
unit = 1 if sys.platform == "darwin" else 1024  # macOS reports bytes
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
print(json.dumps({"rows": found.priced, "peak_bytes": peak, "devices": devices}))
"""


def test_peak_memory_of_ten_million_rows(note: Callable[[str], None]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(ROWS)], capture_output=True, text=True, timeout=1800, check=True
    )
    found = json.loads(done.stdout)
    assert found["rows"] >= ROWS
    note(
        f"memory: {found['rows']:,} strategies on up to {found['devices'][-1]:,} chips, peak of the process "
        f"{found['peak_bytes'] / 2**20:,.0f} MiB (bar {BAR_BYTES / 2**20:,.0f} MiB)"
    )
    assert found["peak_bytes"] < BAR_BYTES
