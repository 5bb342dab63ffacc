"""A training that is not reproducible is called so before anybody is blamed."""

from __future__ import annotations

from typing import Any

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.unit.comparing import altered, plain, record

FIRST = float(plain(record())["first_loss"]["loss"])
Path = tuple[str | int, ...]
BATCH: Path = ("exact", "batches", 0, 0, "sha256")


def run(
    number: int, probed: float, *more: tuple[Path, Any], launched: float | None = None
) -> RunRecord:
    """A run whose first loss is off by such shares in its probe and in its launch."""
    first = FIRST * (1 + probed)
    launched = number / 100 if launched is None else launched
    whole = altered(record(number), "exact", "first_loss", "loss", to=first)
    whole = altered(whole, "exact", "trajectory", "losses", 0, to=first)
    whole = altered(whole, "stability", "loss_values", 0, to=FIRST * (1 + launched))
    for path, value in more:
        whole = altered(whole, *path, to=value)
    return whole


def unseeded(number: int, probed: float, batch: str) -> RunRecord:
    return run(number, probed, (BATCH, batch * 64))


def compared(now: RunRecord, *baseline: RunRecord) -> Comparison:
    return compare_to_baseline(now, baseline)


def test_an_unseeded_split_is_undecided_and_nobody_is_blamed() -> None:
    found = compared(unseeded(9, -0.04, "a"), unseeded(0, 0.05, "b"))
    assert found.verdict == "inconclusive"
    assert found.first_line.startswith("Inconclusive: the training is not reproducible")
    assert f"{FIRST:.6g} in the baseline's measured launch and {FIRST * 1.05:.6g} in its probe" in (
        found.first_line
    )
    assert "seed the split, the shuffle and the sampler" in found.first_line
    assert {found.check(name).status for name in ("first_loss", "batches")} <= {
        "inconclusive",
        "skip",
    }
    assert found.check("repeatability").status == "inconclusive"
    assert not found.diagnosis.suspects
    assert not found.passed


def test_an_unseeded_order_shows_in_tokens_where_losses_are_alike() -> None:
    """At the beginning every row may have about the same loss: not the same length."""
    counts = [sum(m["input_tokens"] for m in step) for step in record().exact["batches"]]
    length = counts[0] + 3

    def unseeded(number: int, batch: str, launched: int, probed: int) -> RunRecord:
        tokens = (("exact", "batches", 0, 0, "input_tokens"), probed)
        found = run(number, number / 1e6, (BATCH, batch * 64), tokens, launched=1e-5)
        found.first_step_tokens = [launched, *counts[1:]]
        return found

    baseline = unseeded(0, "a", length, length + 4)
    found = compared(unseeded(9, "b", length + 1, length + 2), baseline)
    assert found.verdict == "inconclusive"
    words = f"the training is not reproducible: the number of tokens in step 1 is {length}"
    assert found.first_line.startswith(f"Inconclusive: {words}")
    assert not found.diagnosis.suspects
    # Where another run has the same tokens, the seed is there and something else was in the way.
    same = unseeded(1, "c", length, length + 7)
    assert (
        compared(unseeded(9, "b", length + 1, length + 2), baseline, same).verdict == "regression"
    )


def test_what_no_seed_moves_is_still_red() -> None:
    rates = [2 * rate for rate in plain(record())["trajectory"]["learning_rates"]]
    now = altered(unseeded(9, -0.04, "a"), "exact", "trajectory", "learning_rates", to=rates)
    found = compared(now, unseeded(0, 0.05, "b"))
    assert found.verdict == "regression"
    assert found.first_difference is not None
    assert found.first_difference.signal == "learning_rate"


def test_other_kernels_in_the_probe_are_no_lack_of_a_seed() -> None:
    gpu = (("env", "device", "type"), "cuda")
    found = compared(run(9, 0.05, gpu, launched=0.05), run(0, 5e-4, gpu))
    assert found.verdict == "regression"
    narrow = [
        altered(one, "config", "dtype", to="bfloat16")
        for one in (run(9, 0.05, launched=0.05), run(0, 8e-3))
    ]
    assert compared(*narrow).verdict == "regression"


def test_on_a_cpu_both_launches_run_the_same_kernels() -> None:
    """Where classes are not learned yet, every loss is about ln 2: a seed may be missing all the
    same."""
    found = compared(run(9, 0.05, launched=0.05), run(0, 5e-4))
    assert found.check("repeatability").status == "inconclusive"


def test_a_baseline_whose_probes_agree_repeats_itself_whatever_its_launch_says() -> None:
    found = compared(run(9, -0.04), run(0, 0.05), run(1, 0.05), run(2, 0.05))
    assert found.check("first_loss").status == "fail"
    later = run(9, 0.05)
    later = altered(later, "exact", "trajectory", "losses", 1, to=99.0)
    assert compared(later, run(0, 0.05)).check("trajectory").status == "fail"


def test_launches_that_agree_repeat_whatever_the_probes_say() -> None:
    found = compared(run(9, -0.04, launched=0.0), run(0, 0.05, launched=0.0))
    assert found.check("first_loss").status == "fail"


def test_a_change_that_takes_the_seed_away_is_red_and_says_so() -> None:
    found = compared(unseeded(9, -0.04, "a"), record(0))
    assert found.verdict == "regression"
    check = found.check("repeatability")
    assert check.status == "warn"
    assert "the baseline is reproducible" in check.message
