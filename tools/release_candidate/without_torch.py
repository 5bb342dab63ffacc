"""A plugin of pytest: modules that need the training stack are skipped where it is missing."""

from __future__ import annotations

from collections.abc import Generator

import pytest

MISSING = ("torch", "transformers", "playwright", "distlib")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Make a failed import of a missing package a skip."""
    report = yield
    said = str(report.longrepr)
    if report.failed and any(f"No module named '{name}'" in said for name in MISSING):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, "Skipped: it needs the training stack")
    return report
