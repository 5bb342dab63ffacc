"""The page of a calibration: what is detectable, and the runs of each gated metric."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canary.campaign.calibrate import PAIR_COUNTS, calibration, calibration_text, table_rows
from canary.campaign.calibration_page import calibration_page
from tests.unit.campaign.test_calibration import equal_runs
from tests.unit.pages.making import Read, numbers


def test_the_page_of_a_calibration_has_the_numbers_of_its_table() -> None:
    made = calibration(equal_runs())
    page = calibration_page(made)
    read = Read(page)
    for row in table_rows(made):
        for cell in row:
            assert cell in read.text
            assert cell in calibration_text(made)
    rows = numbers(page, "detectable")["rows"]
    gated = made.model.detectable_pct
    assert len(rows) == len(gated) * len(PAIR_COUNTS)
    by_pairs = {row[1]: row[2] for row in rows if row[0] == "CPU time per step"}
    assert by_pairs == pytest.approx({n: gated["cpu_time"][str(n)] for n in PAIR_COUNTS})
    for name in gated:
        values = [row[1] for row in numbers(page, f"runs_{name}")["rows"]]
        assert values == pytest.approx(made.values[name])


def test_signals_that_differ_between_equal_runs_are_named() -> None:
    made = calibration(equal_runs())
    noisy = made.model.model_copy(update={"inexact": {"batches.<script>": 1.0}})
    page = calibration_page(replace(made, model=noisy, probed=True))
    assert "batches.&lt;script&gt;" in page
    assert "batches.<script>" not in page
