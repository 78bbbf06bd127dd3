"""Pictures are compared in every run: pytest-mpl does so only when asked, here instead of on each command line."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "mpl"):  # the plug-in is there
        config.option.mpl = True
