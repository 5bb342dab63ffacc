"""No cause calls equal what was recorded on neither side."""

from __future__ import annotations

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from tests.unit.diagnosing import (
    LOSSES,
    OTHER_LOSS,
    TOTAL,
    Change,
    changed,
    ran_in,
    seen,
    sides,
)

NO_BATCHES: Change = (("exact", "batches"), [])
NO_LOSSES = [
    *seen("first_loss", loss=None, micro_losses=[]),
    *seen("trajectory", losses=[None] * len(LOSSES)),
]
NO_GRADIENT = seen("first_gradient", total=None, groups={})
OTHER_GRADIENT = seen("first_gradient", total=1.2 * TOTAL)
OTHER_UPDATE = seen("first_update", delta_norm=0.2)


def compared(both: list[Change], current: list[Change]) -> Comparison:
    """Sides that are equal but for `current`, without what `both` takes away."""
    before, after = sides()
    return compare_to_baseline(changed(after, *both, *current), changed(before, *both), gates=())


@pytest.mark.parametrize(
    ("both", "current", "named", "never"),
    [
        ([NO_BATCHES], OTHER_LOSS, "batches", "same batch"),
        (NO_LOSSES, OTHER_GRADIENT, "the loss of step 1", "loss is the same"),
        (NO_GRADIENT, OTHER_UPDATE, "the gradient of step 1", "same gradient"),
    ],
)
def test_what_neither_side_recorded_is_not_called_equal(
    both: list[Change], current: list[Change], named: str, never: str
) -> None:
    found = compared(both, current)
    suspects = found.diagnosis.suspects
    told = [s.description for s in suspects]
    assert not any(never in words.lower() for words in told), told
    assert any("Not recorded on both sides" in words and named in words for words in told), told
    assert suspects[0].category == "unknown", told
    assert "undo half of the change" in suspects[0].suggested_actions[0], "none is about speed"
    assert "Likely cause" not in found.first_line


@pytest.mark.parametrize(
    ("both", "current", "phase", "category"),
    [
        ([NO_BATCHES], OTHER_LOSS, "loss", "objective"),
        ([NO_BATCHES], OTHER_LOSS, "data", "data"),
        (NO_LOSSES, OTHER_GRADIENT, "optimizer", "optimizer"),
    ],
)
def test_where_no_row_is_likely_the_changed_code_that_ran_tells_the_kind(
    both: list[Change], current: list[Change], phase: str, category: str
) -> None:
    before, after = sides()
    for side, digest in ((before, "a"), (after, "b")):
        ran_in(side, phase, "step", digest)
    changes = (changed(after, *both, *current), changed(before, *both))
    top = compare_to_baseline(*changes, gates=()).diagnosis.suspects[0]
    assert (top.category, top.confidence) == (category, 0.5)
    assert "train.py:7 in step" in top.description
    assert any("train.py:7 in step" in item.message for item in top.evidence)
    assert top.suggested_actions[0] == "undo train.py:7 in step, or accept the change"
