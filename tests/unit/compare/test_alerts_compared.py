"""Alerts of a record: in the comparison, in every format, and refused where they are forged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.errors import RecordError
from canary.github.section import section
from canary.github.status import Source
from canary.record.folder import load_record
from canary.record.step_row import Row
from canary.record.summary import with_alerts
from canary.record.types import MOST_ALERTS as MOST
from canary.record.types import RunRecord
from canary.report.render import render
from tests.unit.comparing import history, record, write


def alert(kind: str = "loss_spike", step: int = 12, **more: Any) -> Any:
    return {
        "severity": "medium",
        "category": "convergence",
        "type": kind,
        "message": "the loss jumped from about 2.2 to 8.1",
        "step": step,
        "value": 8.125,
        "threshold": 4.4,
        "metadata": {"batch_sha256": ["ab" * 32]},
        "launch": 1,
    } | more


def watched(whole: RunRecord, *alerts: Any) -> RunRecord:
    rows: list[Row] = [{"launch": 1, "step": each["step"], "alerts": [each]} for each in alerts]
    return with_alerts(whole, rows)


def current(*alerts: Any) -> RunRecord:
    return watched(record(1000), *alerts)


def baseline(*alerts: Any) -> list[RunRecord]:
    return [watched(each, *alerts) for each in history()]


def compared(now: RunRecord, before: list[RunRecord]) -> Comparison:
    return compare_to_baseline(now, before, history=True)


def test_an_alert_that_the_baseline_never_raised_warns_and_is_never_red_alone() -> None:
    healthy = compared(current(), baseline())
    found = compared(current(alert(), alert(step=40)), baseline())
    check = found.check("alerts")
    assert check.status == "warn"
    assert "loss_spike (medium) at step 12, value 8.125" in check.message
    assert check.delta == 1
    assert found.verdict == healthy.verdict
    assert healthy.check("alerts").status == "pass"


def test_an_alert_that_the_baseline_raised_too_passes() -> None:
    found = compared(current(alert(step=30)), baseline(alert()))
    assert found.check("alerts").status == "pass"


def test_what_was_never_watched_is_not_judged() -> None:
    old = history()
    assert all(each.alert_summary is None for each in old)
    with pytest.raises(KeyError):
        compared(record(1000), old).check("alerts")
    assert compared(record(1000), baseline()).check("alerts").status == "skip"
    new = compared(current(alert()), old).check("alerts")
    assert new.status == "warn"
    assert "no alert detectors ran on the baseline" in new.message


def test_alerts_are_shown_in_every_format() -> None:
    raised = compared(current(alert(), alert(step=40)), baseline())
    for form in ("text", "markdown", "json"):
        text = render(raised, form)
        assert "the loss jumped from about 2.2 to 8.1" in text
        if form != "json":
            assert "Alerts during training" in text
            assert "(2 of them)" in text
        assert "Alerts during training" not in render(compared(current(), baseline()), form)


def test_the_comment_holds_them_escaped() -> None:
    hostile = alert(message="[x](http://evil) <img src=x> | cell @everyone")
    text = section(compared(current(hostile), baseline()), Source("a" * 40, ""), 60_000)
    assert "Alerts during training" in text
    assert "<img" not in text
    assert "[x](" not in text
    assert "http://evil" not in text


def test_alerts_of_a_failed_run_are_still_shown() -> None:
    stopped = current(alert()).model_copy(update={"status": "failed", "reason": "stopped"})
    found = compared(stopped, baseline())
    assert found.verdict == "error"
    assert [one.type for one in found.alerts] == ["loss_spike"]


@pytest.mark.parametrize(
    "forged",
    [
        {"severity": "apocalyptic"},
        {"message": "x" * 5000},
        {"step": "twelve"},
        {"type": "t" * 100},
        {"value": [1.0]},
    ],
)
def test_a_record_with_a_forged_alert_is_refused(tmp_path: Path, forged: dict[str, Any]) -> None:
    made = current(alert()).model_copy(update={"alerts": [alert(**forged)]})
    with pytest.raises(RecordError, match="alerts"):
        load_record(write(tmp_path / "metrics.json", made))


def test_a_record_holds_so_many_alerts_and_counts_them_all() -> None:
    many = current(*(alert(step=step) for step in range(1, MOST + 51)))
    assert len(many.alerts) == MOST
    assert many.alert_summary is not None
    assert many.alert_summary.total == MOST + 50
    assert many.alert_summary.by_severity == {"medium": MOST + 50}
    assert many.alert_summary.by_category == {"convergence": MOST + 50}
    assert many.alert_summary.latest == alert(step=MOST + 50)


def test_what_several_ranks_saw_at_one_step_counts_once() -> None:
    rows: list[Row] = [
        {"launch": 1, "step": 3, "alerts": [alert(step=3, rank=rank)]} for rank in range(4)
    ]
    assert [each["rank"] for each in with_alerts(record(), rows).alerts] == [0]
