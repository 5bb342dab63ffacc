"""From checks to one verdict: six of them, exit codes, and which of them is `passed`."""

from __future__ import annotations

import math
from typing import Any

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.errors import InputError
from canary.record import jsonio
from canary.record.exact import FileCode
from canary.record.types import RunRecord
from canary.report.document import comparison_from, document
from tests.unit.comparing import (
    altered,
    committed,
    crashed,
    example,
    history,
    on_gpu,
    plain,
    record,
)


def learns_otherwise(whole: RunRecord) -> RunRecord:
    return altered(whole, "exact", "first_loss", "loss", to=2.3)


def other_config(whole: RunRecord) -> RunRecord:
    return altered(whole, "config", "learning_rate", to=0.001)


HEALTHY = record(100)
STORED = history(0.005)


def verdict_pass() -> Comparison:
    return compare_to_baseline(HEALTHY, STORED, history=True)


def verdict_regression() -> Comparison:
    return compare_to_baseline(record(100, 0.2), STORED, history=True)


def verdict_changed() -> Comparison:
    return compare_to_baseline(other_config(learns_otherwise(HEALTHY)), STORED, history=True)


def verdict_accepted() -> Comparison:
    current = other_config(learns_otherwise(HEALTHY))
    return compare_to_baseline(current, STORED, history=True, accept="as planned")


def verdict_inconclusive() -> Comparison:
    return compare_to_baseline(HEALTHY, record(0))


def verdict_no_baseline() -> Comparison:
    return compare_to_baseline(HEALTHY, STORED[:2], history=True)


def verdict_error() -> Comparison:
    return compare_to_baseline(crashed(HEALTHY), STORED, history=True)


VERDICTS: list[tuple[Any, str, int, int]] = [
    (verdict_pass, "pass", 0, 0),
    (verdict_regression, "regression", 1, 1),
    (verdict_changed, "changed", 1, 1),
    (verdict_accepted, "changed", 0, 0),
    (verdict_inconclusive, "inconclusive", 0, 3),
    (verdict_no_baseline, "no-baseline", 0, 0),
    (verdict_error, "error", 4, 4),
]


@pytest.mark.parametrize(("make", "verdict", "code", "strict"), VERDICTS)
def test_six_verdicts_and_their_exit_codes(make: Any, verdict: str, code: int, strict: int) -> None:
    found: Comparison = make()
    assert found.verdict == verdict
    assert found.exit_code() == code
    assert found.exit_code(strict=True) == strict
    # Here the exact lane decided, and the speed alone is open where anything is.
    assert found.passed == (verdict in ("pass", "inconclusive"))
    assert "\n" not in found.first_line
    assert found.first_line


def without_look(number: int) -> RunRecord:
    return altered(record(number), "exact", to={})


def without_gradient(number: int) -> RunRecord:
    return altered(record(number), "exact", "first_gradient", to={})


def without_memory(number: int) -> RunRecord:
    return altered(record(number), "perf", "max_mem_mb", to=None)


def unsteady() -> Comparison:
    """Two looks at the baseline have other losses."""
    other = altered(record(0), "exact", "trajectory", "losses", 0, to=9.0)
    return compare_to_baseline(HEALTHY, altered(other, "further_looks", to=[record(0).exact]))


NEVER_PASSED = {
    "no look on either side": lambda: compare_to_baseline(without_look(9), without_look(0)),
    "no look on this side": lambda: compare_to_baseline(without_look(9), record(0)),
    "a stage that one side alone recorded": lambda: compare_to_baseline(
        without_gradient(9), record(0)
    ),
    "memory that one side alone measured": lambda: compare_to_baseline(
        without_memory(9), record(0)
    ),
    "a training that does not repeat itself": unsteady,
    "a crash": verdict_error,
    "a change": verdict_changed,
    "an accepted change": verdict_accepted,
    "no baseline yet": verdict_no_baseline,
    "a crash twice": lambda: compare_to_baseline(
        [crashed(record(100)), crashed(record(101))], STORED
    ),
}


@pytest.mark.parametrize("name", NEVER_PASSED)
def test_what_the_exact_lane_did_not_decide_is_never_passed(name: str) -> None:
    found = NEVER_PASSED[name]()
    assert not found.passed
    assert not document(found)["passed"]


def test_a_comparison_in_which_only_the_speed_is_open_is_passed_with_its_verdict_beside_it() -> (
    None
):
    found = verdict_inconclusive()
    assert (found.passed, found.verdict) == (True, "inconclusive")
    assert document(found)["passed"]
    again = comparison_from(jsonio.loads(jsonio.dumps(document(found))))
    assert again.passed
    assert found.exit_code(strict=True) == 3


def without(stage: str, number: int) -> RunRecord:
    return altered(record(number), "exact", stage, to=[] if stage == "batches" else {})


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (
            "first_gradient",
            "Learns the same: batches, losses and updates are identical; gradients were not "
            "recorded. Speed is not decided: ",
        ),
        ("first_update", "Inconclusive: "),
    ],
)
def test_a_loop_that_does_not_show_a_stage_may_learn_the_same(stage: str, words: str) -> None:
    """Optimizers that step inside backward show no gradient."""
    found = compare_to_baseline(without(stage, 9), without(stage, 0))
    assert found.first_line.startswith(words), found.first_line
    one_side = compare_to_baseline(without(stage, 9), record(0))
    assert one_side.first_line.startswith("Inconclusive: ")


def test_acceptance_excuses_no_regression() -> None:
    slow = other_config(learns_otherwise(record(100, 0.2)))
    found = compare_to_baseline(slow, STORED, accept="as planned")
    assert found.verdict == "regression"
    assert found.accepted is None
    assert found.exit_code() == 1


def test_a_leak_or_a_nan_is_not_accepted_with_a_change() -> None:
    for place, value in ((("stability", "nan_steps"), 1), (("exact", "work", "collectives"), 3)):
        broken = altered(other_config(learns_otherwise(HEALTHY)), *place, to=value)
        assert compare_to_baseline(broken, STORED, accept="as planned").verdict == "regression"


FAULTS: list[RunRecord] = [
    record(100, 0.2, memory_mb=900.0),
    learns_otherwise(HEALTHY),
    other_config(learns_otherwise(HEALTHY)),
    altered(learns_otherwise(HEALTHY), "exact", "data", "dataset_sha256", to="0" * 64),
    altered(HEALTHY, "stability", "nan_steps", to=2),
    altered(HEALTHY, "stability", "loss_values", to=[1.0] * 50 + [math.inf] * 50),
    altered(HEALTHY, "stability", "grad_norm_values", to=[math.nan] * 100),
    altered(HEALTHY, "exact", "first_gradient", "total", to="nan"),
    altered(HEALTHY, "exact", "work", "collectives", to=3),
    altered(HEALTHY, "exact", "frozen", "changed", to=["a"]),
    altered(HEALTHY, "exact", "trajectory", "learning_rates", 0, to=None),
]


@pytest.mark.parametrize("current", FAULTS)
def test_every_failed_check_has_a_delta_that_is_a_number_other_than_zero(
    current: RunRecord,
) -> None:
    found = compare_to_baseline(current, STORED)
    assert found.failed_checks
    for check in found.failed_checks:
        assert isinstance(check.delta, float | int), check.name
        assert not math.isnan(check.delta), check.name
        assert check.delta != 0, check.name
        assert check.delta != 1e9, "no number stands for infinity"
        assert check.message


@pytest.mark.parametrize("status", ["failed", "oom"])
def test_a_crash_twice_where_the_baseline_completes_is_a_regression(status: str) -> None:
    once, again = crashed(record(100), status), crashed(record(101), status)
    found = compare_to_baseline([once, again], STORED)
    assert found.verdict == "regression"
    assert found.exit_code() == 1
    assert found.first_line == "Regression: it broke, in the 2 current runs only."
    assert compare_to_baseline(once, STORED).verdict == "error"


def twice(status: str = "failed") -> list[RunRecord]:
    return [crashed(record(number), status) for number in (100, 101)]


def test_a_crash_twice_proves_nothing_where_something_else_may_be_the_cause() -> None:
    on_small = [on_gpu(run, name="Small 16GB") for run in twice("oom")]
    on_large = [on_gpu(run, name="Large 80GB") for run in STORED]
    for side, baseline in (
        ([*twice(), record(102)], STORED),
        (twice(), [crashed(record(0))]),
        (twice(), []),
        (twice("interrupted"), STORED),
        (on_small, on_large),
    ):
        assert compare_to_baseline(side, baseline).verdict == "error"


def test_a_crash_before_the_device_was_known_is_a_regression_all_the_same() -> None:
    side = twice("timeout")
    for run in side:
        del run.env["device"]
    assert compare_to_baseline(side, STORED).verdict == "regression"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_below_three_stored_runs_nothing_gates_but_what_needs_no_baseline(count: int) -> None:
    found = compare_to_baseline(HEALTHY, STORED[:count], history=True)
    assert found.verdict == "no-baseline"
    assert f"{count} of 3" in found.first_line
    broken = altered(HEALTHY, "stability", "nan_steps", to=1)
    found = compare_to_baseline(broken, STORED[:count], history=True)
    assert found.verdict == "regression"
    assert compare_to_baseline(HEALTHY, STORED[:3], history=True).verdict != "no-baseline"


def test_stored_runs_that_cannot_be_used_do_not_count() -> None:
    stored = [*STORED[:2], crashed(STORED[2]), crashed(STORED[3])]
    assert compare_to_baseline(HEALTHY, stored, history=True).verdict == "no-baseline"


def test_without_a_timing_check_there_is_no_pass() -> None:
    found = compare_to_baseline(HEALTHY, STORED, gates=())
    assert found.verdict == "inconclusive"
    assert "no timing check ran" in found.first_line


def test_a_warning_passes_and_is_said() -> None:
    found = compare_to_baseline(record(100, 0.105), STORED)
    assert found.verdict == "pass"
    assert "worse but within the limit: median step time +5.0%" in found.first_line


def test_what_a_rule_says_of_both_sides_is_not_in_the_line_of_a_pass() -> None:
    clips = {"clips": 12, "empty": 12, "scaled": 0}
    sides = [altered(side, "exact", "facts", to={"clips": clips}) for side in (HEALTHY, *STORED)]
    found = compare_to_baseline(sides[0], sides[1:])
    assert found.check("clip_takes_effect").status == "warn"
    assert found.verdict == "pass"
    assert "warning" not in found.first_line


def test_one_run_on_both_sides_is_refused() -> None:
    with pytest.raises(InputError, match="on both sides"):
        compare_to_baseline(STORED[0], STORED)


def test_a_worse_loss_belongs_to_the_change_of_learning() -> None:
    """Another objective has another scale: a person accepts both, or neither."""
    worse = HEALTHY
    losses = [1.5 * float(loss) for loss in worse.stability.loss_values]
    worse = altered(worse, "stability", "loss_values", to=losses)
    looked = [1.5 * loss for loss in plain(worse)["trajectory"]["losses"]]
    worse = altered(worse, "exact", "trajectory", "losses", to=looked)
    found = compare_to_baseline(worse, STORED)
    assert found.check("final_loss").status == "changed"
    assert found.verdict == "changed"
    accepted = compare_to_baseline(worse, STORED, accept="tuned")
    assert accepted.exit_code() == 0
    broken = altered(worse, "stability", "nan_steps", to=1)
    assert compare_to_baseline(broken, STORED, accept="tuned").verdict == "regression"


def test_a_side_is_repeats_of_one_thing() -> None:
    other = altered(record(101), "config", "learning_rate", to=1.0)
    found = compare_to_baseline([HEALTHY, other], STORED)
    assert found.verdict == "error"
    assert "configs of the current runs differ in learning_rate" in found.first_line
    commits = [committed(record(n), letter * 40) for n, letter in ((101, "a"), (102, "b"))]
    found = compare_to_baseline(commits, STORED)
    assert found.verdict == "error"
    assert "several commits (aaaaaaaaa, bbbbbbbbb)" in found.first_line


def test_one_run_named_twice_on_a_side_is_not_two_runs() -> None:
    """A run's copy would make a spread of zero out of nothing."""
    with pytest.raises(InputError, match=r"run-00100"):
        compare_to_baseline([HEALTHY, HEALTHY], STORED)


def test_no_current_run_is_refused() -> None:
    with pytest.raises(InputError, match="no current run"):
        compare_to_baseline([], STORED)


def test_a_pair_whose_other_half_is_unusable_is_an_error() -> None:
    found = compare_to_baseline(
        [record(100), record(101)], [record(0), crashed(record(1))], paired=True
    )
    assert found.verdict == "error"
    assert "(baseline)" in found.first_line


def test_the_same_program_passes_although_its_clock_decides_nothing() -> None:
    before, now = record(1), record(2, 0.11)
    for run in (before, now):
        run.exact["code"] = {"noted": "lines", "files": {"train.py": code("a")}}
    same = compare_to_baseline(now, before)
    assert any(check.status == "inconclusive" for check in same.checks)
    assert same.verdict == "pass"
    assert "the program is the same" in same.first_line
    now.exact["code"] = {"noted": "lines", "files": {"train.py": code("b")}}
    assert compare_to_baseline(now, before).verdict == "inconclusive"


def code(digest: str) -> FileCode:
    return {"ran": {"loss": "5-6"}, "functions": {"loss": (4, 6, digest)}}


def test_a_regression_says_that_it_cannot_be_accepted() -> None:
    slow = [record(number, 0.2) for number in range(3)]
    found = compare_to_baseline(slow, [record(number) for number in range(10, 20)], accept="meant")
    assert (found.verdict, found.accepted) == ("regression", None)
    assert found.notes[0].startswith("the reason for acceptance does not count")


def test_a_count_that_falls_to_0_leads() -> None:
    """A user cares that no row ends with EOS any more, not how many labels that leaves."""
    whole = example("grpo")
    batches = [
        [m | {"label_tokens": m["label_tokens"] + 8, "eos_labels": 0, "sha256": "0"} for m in step]
        for step in plain(whole)["batches"]
    ]
    now = altered(altered(whole, "exact", "batches", to=batches), "run_id", to="now")
    found = compare_to_baseline(altered(now, "exact", "first_loss", "loss", to=0.5), [whole])
    assert found.first_line.startswith("Changed: batches differ from step 1 on: eos labels ")
    assert found.first_line.endswith(" -> 0.")
