"""What the ladder says of a machine that does other work: notes, and trials that decide nothing."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canary.errors import EXIT_ERROR, RunFailed
from canary.ladder.busy import busy_notes
from canary.ladder.climb import tried_words
from canary.ladder.ladder import ladder_at, no_trl, reporting_interrupts
from canary.ladder.launching import LaunchProgress, LaunchResult
from canary.ladder.levels import LEVELS, Settings
from canary.ladder.results import Ladder
from canary.ladder.rounds import Arm
from canary.ladder.view import ladder_text
from tests.unit.comparing import altered
from tests.unit.laddering import CPU, Workshop, config_of, record_at, silent, site

FORMS = ("text", "markdown", "json")
FAST: dict[tuple[str, Any], float] = {("batch_size", 8): 3.0, ("num_workers", 2): 1.1}


class Restless(Workshop):
    """The second of the two launches around the trials is 0.6 times as fast as the first."""

    def trial(self, label: str, settings: Settings, limit_s: float | None = None) -> LaunchResult:
        last = limit_s is None and bool(self.limits) and self.limits[-1] is not None
        ran = super().trial(label, settings, limit_s)
        assert ran.speed is not None
        return replace(ran, record=record_at(ran.speed * (0.6 if last else 1.0)))


def made(launch: Workshop, rounds: int = 2, trl: str | None = None) -> Ladder:
    packages = {**(CPU.packages or {}), **({"trl": trl} if trl else {})}
    place = site(config_of("ppo"), launch, replace(CPU, packages=packages))
    return ladder_at(place, LEVELS, rounds, silent)


def waiting(share: float) -> Arm:
    record = altered(record_at(10.0), "host", "run_delay", to=share)
    return Arm("basic", lambda: LaunchResult(record), [LaunchResult(record)])


def test_a_launch_that_waited_for_a_core_is_named_and_one_that_hardly_did_is_not() -> None:
    assert busy_notes([waiting(0.34), waiting(0.1)]) == [
        "the machine was busy: a timed launch of basic waited for a core 34% of the time; "
        "the real uncertainty is larger than the intervals show"
    ]
    assert busy_notes([waiting(0.1)]) == []


def test_a_trial_within_the_disagreement_around_it_is_not_decided() -> None:
    found = made(Restless(FAST))
    tried = {
        (one.switch, one.settings.get("batch_size")): one
        for one in next(one for one in found.levels if one.level == "advanced").tried
    }
    within, beyond = tried["data workers with prefetch", None], tried["micro-batch", 8]
    assert within.apart == pytest.approx(1 / 0.6 - 1)
    assert within.ratio is not None
    assert abs(math.log(within.ratio)) < math.log1p(within.apart)
    assert not within.decided
    assert not within.kept
    assert beyond.kept
    assert tried_words(within).endswith(
        "undecided, left out: the two launches around the trials differ by 67%"
    )
    for form in FORMS:
        assert "the two launches around the trials for advanced differ by 67%" in ladder_text(
            found, form
        )


def test_on_a_steady_machine_every_trial_is_decided() -> None:
    found = made(Workshop(FAST))
    assert all(one.decided for level in found.levels for one in level.tried)
    assert not found.notes


def test_trl_that_is_slower_has_no_share_in_text_and_json_alike() -> None:
    found = made(Workshop(FAST, trl=0.8))
    assert json.loads(ladder_text(found, "json"))["trl"]["share"] == 0
    assert "they have none of the top level's gain (0%)" in ladder_text(found, "text")


def test_trl_that_is_known_to_have_no_ppo_is_not_started() -> None:
    launch = Workshop(FAST)
    found = made(launch, trl="1.16.0")
    assert "trl" not in launch.labels("timed")
    assert "trl's defaults were skipped: trl 1.16.0 has no PPO" in ladder_text(found, "text")


@pytest.mark.parametrize(("trainer", "version"), [("ppo", "1.12.0"), ("sft", "1.16.0")])
def test_trl_that_has_the_trainer_is_started(trainer: str, version: str) -> None:
    assert no_trl(config_of(trainer), replace(CPU, packages={"trl": version})) == ""


def test_who_interrupts_hears_where_the_records_are(tmp_path: Path) -> None:
    (tmp_path / "a-record").mkdir()
    place = site(config_of("ppo"), Workshop(), folder=tmp_path)
    with pytest.raises(RunFailed) as caught, reporting_interrupts(place):
        raise KeyboardInterrupt
    assert caught.value.exit_code == EXIT_ERROR
    assert str(caught.value) == f"interrupted, no report; records so far: {tmp_path}"


def test_a_launch_that_tells_no_step_is_said_to_be_at_it_still() -> None:
    said: list[str] = []
    end = time.monotonic() + 60
    with LaunchProgress("optimal, trial", said.append, 0.05):
        while not said and time.monotonic() < end:
            time.sleep(0.01)
    assert said[0].startswith("  optimal, trial: still compiling or loading for ")
    quick: list[str] = []
    with LaunchProgress("optimal, trial", quick.append):
        time.sleep(0.05)
    assert not quick
