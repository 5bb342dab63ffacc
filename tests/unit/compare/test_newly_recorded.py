"""Baselines of other versions: what an older one did not record, and what a newer one adds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.folder import load_record
from canary.record.types import RunRecord
from tests.unit.comparing import EXAMPLES
from tests.unit.diagnosing import (
    GRAD_NORMS,
    GRADIENT,
    GROUPS,
    LOSSES,
    TOTAL,
    TRAJECTORY,
    Change,
    changed,
    later,
    sides,
)

APPLIED = [min(norm, 0.5 * TOTAL) for norm in GRAD_NORMS]
SHARE = APPLIED[0] / TOTAL
NEWER: Change = (("exact", "clipping"), {"before": GRAD_NORMS, "applied": APPLIED})
CLIPPED: list[Change] = [
    ((*GRADIENT, "total"), APPLIED[0]),
    ((*GRADIENT, "groups"), {name: norm * SHARE for name, norm in GROUPS.items()}),
]
NO_NORMS: list[Change] = [((*TRAJECTORY, "grad_norms"), [None] * len(GRAD_NORMS))]
NO_LOSSES: list[Change] = [
    (("exact", "first_loss"), {"loss": None, "micro_losses": []}),
    ((*TRAJECTORY, "losses"), [None] * len(LOSSES)),
    (("stability", "loss_values"), []),
]


def compared(older: list[Change], current: list[Change]) -> Comparison:
    """The current side as a newer version records it, against what an older one did."""
    before, after = sides()
    newer: RunRecord = changed(after, NEWER, *current)
    return compare_to_baseline(newer, changed(before, *CLIPPED, *older), gates=())


@pytest.mark.parametrize("older", [NO_NORMS, NO_LOSSES, [*NO_NORMS, *NO_LOSSES]])
def test_what_the_baseline_could_not_record_is_no_regression(older: list[Change]) -> None:
    found = compared(older, [])
    assert not found.failed_checks, [check.message for check in found.failed_checks]
    assert found.differences == ()


def test_other_losses_are_not_called_another_gradient_for_want_of_norms() -> None:
    found = compared(NO_NORMS, [((*TRAJECTORY, "losses"), later(LOSSES, 4))])
    assert found.verdict == "changed"
    assert found.first_difference is not None
    assert found.first_difference.signal == "loss"
    told = [suspect.description for suspect in found.diagnosis.suspects]
    assert not any("another gradient" in words for words in told), told


def test_what_a_newer_version_adds_is_kept_and_ignored(tmp_path: Path) -> None:
    example = EXAMPLES / "sft_smoke.json"
    newer = json.loads(example.read_text(encoding="utf-8"))
    newer["exact"]["new_section"] = {"a": [1, None]}
    newer["exact"]["first_loss"]["new_key"] = "text"
    newer["exact"]["batches"][0][0]["new_count"] = 3
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(newer))
    record = load_record(path)
    assert json.loads(record.model_dump_json())["exact"] == newer["exact"]
    baseline = load_record(example).model_copy(update={"run_id": "baseline"})
    assert compare_to_baseline(record, baseline).first_difference is None
