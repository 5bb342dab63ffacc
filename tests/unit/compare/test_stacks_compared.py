"""Two stacks compared: real records of one SFT job on trl 0.29.1 and 1.0.0.

Between transformers 4.57 and 5.23 the loss of whole texts is divided by one token less a sequence.
The batches and the model are the same, so that the loss of step 1 is what moves first.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline, load_metrics
from canary.record.types import RunRecord

DATA = Path(__file__).parents[2] / "data"


def on(trl: str) -> RunRecord:
    return load_metrics(DATA / f"sft_trl_{trl}.json").model_copy(deep=True)


@pytest.fixture(scope="module")
def upgrade() -> Comparison:
    return compare_to_baseline(on("1.0.0"), [on("0.29.1")])


def test_an_upgrade_that_changes_the_loss_needs_acceptance(upgrade: Comparison) -> None:
    assert upgrade.verdict == "changed"
    assert upgrade.check("first_loss").status == "changed"
    assert not [check.name for check in upgrade.checks if check.status == "fail"]


def test_the_differences_begin_at_the_environment_and_end_in_the_losses(
    upgrade: Comparison,
) -> None:
    stages = [difference.stage for difference in upgrade.differences]
    assert stages[:2] == ["environment", "first_loss"]
    assert "trajectory" in stages
    assert not {"config", "data", "batches", "model"} & set(stages)
    first = upgrade.differences[0]
    assert (first.signal, first.baseline, first.current) == (
        "packages.transformers",
        "4.57.6",
        "5.23.0",
    )


def test_more_work_without_an_upgrade_is_a_regression() -> None:
    before, after = on("0.29.1"), on("1.0.0")
    after.env = before.env
    found = compare_to_baseline(after, [before])
    assert found.verdict == "regression"
    assert found.check("first_loss").status == "changed"
    assert found.check("host_reads").status == "fail"


def test_more_work_of_an_upgrade_is_not_excused() -> None:
    after = on("1.0.0")
    after.exact["work"]["flops"] *= 2
    found = compare_to_baseline(after, [on("0.29.1")], accept="an upgrade")
    assert found.check("flops").status == "fail"
    assert found.verdict == "regression"
