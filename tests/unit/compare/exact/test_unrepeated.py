"""A training that is not reproducible is called so before anybody is blamed: repeated looks at the
baseline show it."""

from __future__ import annotations

from typing import Any

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.timing.lane import decided_by_exact
from canary.record.types import RunRecord
from tests.unit.comparing import altered, committed, plain, record

FIRST = float(plain(record())["first_loss"]["loss"])
Path = tuple[str | int, ...]
BATCH: Path = ("exact", "batches", 0, 0, "sha256")


def run(number: int, off: float, *more: tuple[Path, Any]) -> RunRecord:
    """A run of one commit whose first loss is off by such a share."""
    first = FIRST * (1 + off)
    whole = altered(committed(record(number)), "exact", "first_loss", "loss", to=first)
    whole = altered(whole, "exact", "trajectory", "losses", 0, to=first)
    for path, value in more:
        whole = altered(whole, *path, to=value)
    return whole


def unseeded(number: int, off: float, batch: str) -> RunRecord:
    return run(number, off, (BATCH, batch * 64))


def again(one: RunRecord, *others: RunRecord) -> RunRecord:
    """One record of several launches: the further looks are those of the others."""
    return altered(one, "further_looks", to=[other.exact for other in others])


def compared(now: RunRecord, *baseline: RunRecord, paired: bool = False) -> Comparison:
    return compare_to_baseline(now, baseline, paired=paired)


def blames_nobody(found: Comparison) -> bool:
    assert found.verdict == "inconclusive"
    assert found.first_line.startswith("Inconclusive: the training is not reproducible")
    assert {found.check(name).status for name in ("first_loss", "batches")} <= {
        "inconclusive",
        "skip",
    }
    assert found.check("repeatability").status == "inconclusive"
    assert not found.diagnosis.suspects
    return not found.passed


def test_an_unseeded_split_is_undecided_and_nobody_is_blamed() -> None:
    found = compared(unseeded(9, -0.04, "a"), unseeded(0, 0.05, "b"), unseeded(1, 0.01, "c"))
    assert blames_nobody(found)
    assert "seed the split, the shuffle and the sampler" in found.first_line


def test_further_looks_of_one_record_and_sides_of_pairs_show_it_too() -> None:
    before = again(unseeded(0, 0.05, "b"), unseeded(1, 0.01, "c"))
    assert blames_nobody(compared(unseeded(9, -0.04, "a"), before))
    loose = [one.model_copy(update={"git": {}}) for one in (unseeded(0, 0.05, "b"), run(1, 0.0))]
    assert compared(unseeded(9, -0.04, "a"), *loose).verdict == "changed"
    found = compare_to_baseline([run(8, 0.0), unseeded(9, -0.04, "a")], loose, paired=True)
    assert blames_nobody(found)


def test_the_first_thing_that_repeated_runs_do_not_share_names_the_missing_seed() -> None:
    rows: Path = ("exact", "data", "dataset_sha256")
    model: Path = ("exact", "model", "parameters_sha256")
    for path, said in (
        (rows, "the rows differ: seed how the rows are chosen"),
        (model, "the initial parameters differ: set the seed before the model is created"),
    ):
        sides = [run(number, number / 100, (path, f"{number}" * 64)) for number in (0, 1, 9)]
        found = compared(sides[-1], *sides[:-1])
        assert f"in repeated runs of the baseline {said}" in found.check("repeatability").message


def test_what_no_seed_moves_still_needs_acceptance() -> None:
    rates = [2 * rate for rate in plain(record())["trajectory"]["learning_rates"]]
    now = altered(unseeded(9, -0.04, "a"), "exact", "trajectory", "learning_rates", to=rates)
    found = compared(now, unseeded(0, 0.05, "b"), unseeded(1, 0.01, "c"))
    assert found.verdict == "changed"
    assert found.first_difference is not None
    assert found.first_difference.signal == "learning_rate"


def test_a_single_look_at_the_baseline_does_not_excuse_a_difference() -> None:
    before = unseeded(0, 0.05, "b")
    found = compared(unseeded(9, -0.04, "a"), before)
    assert found.verdict == "changed"
    assert not decided_by_exact(found, [before]), "a second look at the base decides"
    assert decided_by_exact(found, [again(before, before)])


def test_a_baseline_whose_looks_agree_repeats_itself() -> None:
    found = compared(run(9, -0.04), run(0, 0.05), run(1, 0.05))
    assert found.check("first_loss").status == "changed"
    later = altered(run(9, 0.05), "exact", "trajectory", "losses", 1, to=99.0)
    before = again(run(0, 0.05), run(1, 0.05))
    assert compared(later, before).check("trajectory").status == "changed"


def test_signals_that_differ_between_looks_leave_the_lane_and_no_others() -> None:
    """The batches are the same, so no seed is missing: arithmetic in another order."""
    found = compared(run(9, 2e-4), run(0, 0.0), run(1, 4e-4))
    assert "repeatability" not in {check.name for check in found.checks}
    assert found.check("first_loss").status == "skip"
    assert "differs between repeated runs" in found.check("first_loss").message
    assert found.check("first_gradient").status == "pass"
    assert found.verdict != "regression"


def test_a_change_that_takes_the_seed_away_needs_acceptance_and_says_so() -> None:
    now = again(unseeded(9, -0.04, "a"), unseeded(8, 0.02, "b"))
    found = compared(now, run(0, 0.0), run(1, 0.0))
    assert found.verdict == "changed"
    check = found.check("repeatability")
    assert check.status == "warn"
    assert "those of the baseline do not" in check.message
