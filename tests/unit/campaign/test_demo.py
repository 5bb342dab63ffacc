"""The demo and `canary run` show one loss: the mean of the last tenth of the steps."""

from __future__ import annotations

from pathlib import Path

from canary.campaign.demo import Demo, demo_text
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from canary.report.render import render
from canary.runner.outcome import outcome_text
from tests.unit.comparing import altered, example

LABEL = "mean of the last tenth of the steps"


def with_losses(*losses: float) -> RunRecord:
    return altered(example(), "stability", "loss_values", to=list(losses))


def test_the_demo_and_its_report_show_the_same_loss() -> None:
    """Neither the last step's loss nor the mean of all steps, which a trainer calls train_loss."""
    base = with_losses(*[0.9] * 18, 0.6, 0.4)
    head = altered(with_losses(*[0.7] * 18, 0.55, 0.35), "run_id", to="changed")
    answer = compare_to_baseline(head, base)
    demo = Demo(answer, answer, Path("d"), Path("d/pad_with_eos/r"))
    report = render(answer, "text")
    assert "final loss          0.5000 -> 0.4500" in report
    text = demo_text(demo, report, "canary")
    assert f"A gate on the loss ({LABEL}) sees 0.5000 -> 0.4500 (-10.0%) and passes." in text
    assert f"  final loss  0.4500 ({LABEL}), 0 NaN, 0 Inf" in outcome_text(head).splitlines()
