"""The same rows cut into other micro-batches: what is learned is the whole step's."""

from __future__ import annotations

from typing import Any

from canary.compare.exact.stages import LEARNED_STAGES
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.unit.comparing import altered, plain
from tests.unit.diagnosing import OTHER, sides

SUMMED = ("input_tokens", "label_tokens", "sequences", "eos_labels", "bos_tokens", "pad_tokens")


def in_one_micro_batch(whole: RunRecord) -> RunRecord:
    """The record as of the same rows in one micro-batch per step, with the same losses; a metric
    that is a mean of micro-batches moves."""
    made = whole.model_copy(deep=True)
    made.exact["batches"] = [[_joined(step)] for step in plain(made)["batches"]]
    made.exact["first_loss"]["micro_losses"] = [made.exact["first_loss"]["loss"]]
    return altered(made, "exact", "trajectory", "rl", "entropy", 5, to=3.0)


def _joined(step: list[Any]) -> Any:
    shapes: dict[str, list[int]] = {}
    for micro in step:
        for name, (rows, width) in micro["shapes"].items():
            seen = shapes.get(name, [0, 0])
            shapes[name] = [seen[0] + rows, max(seen[1], width)]
    hashes = {"input_ids": [h for micro in step for h in micro["rows"]["input_ids"]]}
    counts = {key: sum(micro[key] for micro in step) for key in SUMMED}
    return {"sha256": OTHER, "shapes": shapes, "rows": hashes, **counts}


WHOLE, HALVES = sides()
WHOLE = in_one_micro_batch(WHOLE)


def compared(current: RunRecord, baseline: RunRecord = WHOLE) -> Comparison:
    return compare_to_baseline(current, baseline, gates=())


def test_the_same_rows_in_other_micro_batches_learn_the_same() -> None:
    found = compared(HALVES)
    assert found.check("batches").status == "warn"
    assert "the same rows in 2 micro-batches per step, 1 in" in found.check("batches").message
    assert [c.name for c in found.checks if c.failed] == []
    passed = [c.name for c in found.checks if c.name in LEARNED_STAGES and c.status == "pass"]
    assert {"first_loss", "trajectory"} <= set(passed)


def test_rows_that_only_changed_their_micro_batch_learn_the_same() -> None:
    moved = HALVES.model_copy(deep=True)
    for step in moved.exact["batches"]:
        one, two = (micro["rows"]["input_ids"] for micro in step)
        one[0], two[0] = two[0], one[0]
        for micro in step:
            micro["sha256"] = OTHER
    moved.exact["first_loss"]["micro_losses"] = [1.0, 1.2]
    found = compared(moved, sides()[0])
    assert [c.name for c in found.checks if c.failed] == []
    assert "the same rows in different micro-batches" in found.check("batches").message


def test_a_whole_step_that_learns_otherwise_is_changed_in_whatever_micro_batches() -> None:
    found = compared(altered(HALVES, "exact", "first_loss", "loss", to=2.3))
    assert found.check("first_loss").status == "changed"
    assert found.check("first_loss").baseline == WHOLE.exact["first_loss"]["loss"]


def test_work_is_judged_where_no_mask_tells_the_rows() -> None:
    """Of a plain loop: as many rows, in twice as many micro-batches of other widths."""
    sides = WHOLE.model_copy(deep=True), HALVES.model_copy(deep=True)
    for side in sides:
        for micro in (micro for step in side.exact["batches"] for micro in step):
            del micro["input_tokens"]
            micro["shapes"] = {"input_ids": micro["shapes"]["input_ids"]}
    work = plain(sides[1])["work"]
    more = work | {
        "operator_total": 2 * work["operator_total"],
        "forwards": 2 * work["forwards"],
        "operators": {name: 2 * count for name, count in work["operators"].items()},
    }
    found = compared(altered(sides[1], "exact", "work", to=more), sides[0])
    assert found.check("operators").status == "fail"
    told = next(one for one in found.differences if one.signal == "operators").sentence()
    assert f"(forward passes +{work['forwards']}, " in told


def test_the_work_of_a_step_is_judged_in_whatever_micro_batches() -> None:
    work = HALVES.exact["work"]
    more = work | {
        "operators": work["operators"] | {"aten.new": work["operator_total"]},
        "operator_total": 2 * work["operator_total"],
        "host_reads": 2 * work["host_reads"],
    }
    found = compared(altered(HALVES, "exact", "work", to=more))
    assert found.check("operators").status == "fail"
    assert found.check("host_reads").status == "warn", "each micro-batch reads what one did"
    assert "aten.new" in next(d for d in found.differences if d.stage == "work").sentence()
    suspect = found.diagnosis.suspects[0]
    assert suspect.category.value == "kernel"
    assert "2 micro-batches per step instead of 1" in suspect.description
