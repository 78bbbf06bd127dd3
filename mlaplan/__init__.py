"""mlaplan: plan the deployment of Multi-head Latent Attention models on any accelerator.

import mlaplan

mlaplan.recommend("deepseek-v3", "h200-sxm", 16, concurrency=512, tpot="60ms").to_pandas()
mlaplan.sweep("deepseek-v3", "h200-sxm", devices="8,16", isl="1k:64k:log7").to_pandas()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlaplan.api import recommend as recommend
    from mlaplan.api import sweep as sweep

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The two functions, found when they are asked for: a start of the command line needs neither."""
    if name in ("recommend", "sweep"):
        return getattr(import_module("mlaplan.api"), name)
    raise AttributeError(f"module 'mlaplan' has no attribute '{name}'")
