"""How a launch of the ladder is started, what of its words is passed on, and whether its work is
equal: the tokens of a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from canary.campaign.side import Side, folder_left
from canary.errors import MachineError, UsageError
from canary.ladder.site import Site
from canary.ladder.switches import Job
from canary.ladder.timing import unequal_work
from canary.record.step_row import Row
from canary.record.types import RunRecord
from tests.unit.comparing import crashed, example
from tests.unit.laddering import CPU, config_of, silent


class Started:
    """Every `run_with` of a Side, without a process."""

    def __init__(self) -> None:
        self.sides: list[Side] = []
        self.settings: list[dict[str, Any]] = []
        self.answer: RunRecord | Exception = example()

    def run_with(self, side: Side, settings: list[str]) -> RunRecord:
        self.sides.append(side)
        pairs = (setting.partition("=") for setting in settings)
        self.settings.append(
            {key: value if key == "name" else json.loads(value) for key, _, value in pairs}
        )
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    found = Started()
    monkeypatch.setattr(
        Side, "run_with", lambda side, settings, *_: found.run_with(side, list(settings))
    )
    return found


def launcher(folder: Path, trainer: str = "ppo", **environ: str) -> Site:
    job = Job(config_of(trainer, max_steps=40), CPU)
    return Site(job, folder, silent, overrides=("max_steps=40",), environ=environ)


def test_a_guard_is_a_look_alone_on_recorded_completions(tmp_path: Path, started: Started) -> None:
    launch = launcher(tmp_path)
    launch.guard("baseline", {"fixed_length": True}, records=True)
    launch.guard("basic", {"speed.kv_cache": True, "fixed_length": True})
    recording, replaying = (side.environment for side in started.sides)
    file = str(tmp_path / "completions.jsonl")
    assert recording["CANARY_RECORD_COMPLETIONS"] == file
    assert replaying["CANARY_REPLAY_COMPLETIONS"] == file
    assert "CANARY_RECORD_COMPLETIONS" not in replaying
    assert started.settings[1]["exact"] is True
    assert started.settings[1]["look_steps"] == 5
    assert started.settings[1]["speed.kv_cache"] is True


def test_a_guard_sees_completions_of_the_lengths_that_they_have(
    tmp_path: Path, started: Started
) -> None:
    """What follows an end is guarded as well; only what is timed has one length."""
    launch = launcher(tmp_path)
    launch.guard("basic", {"fixed_length": True})
    launch.timed("basic", {"fixed_length": True})
    assert [one["fixed_length"] for one in started.settings] == [False, True]


def test_what_samples_nothing_records_nothing(tmp_path: Path, started: Started) -> None:
    launcher(tmp_path, "sft").guard("baseline", {}, records=True)
    assert not started.sides[0].environment


def test_a_timed_launch_has_no_look(tmp_path: Path, started: Started) -> None:
    launcher(tmp_path).timed("basic", {})
    assert started.settings[0]["exact"] is False
    assert started.settings[0]["look_steps"] == 0
    assert started.settings[0]["repeats"] == 1


def test_a_trial_is_short_and_no_tracker_hears_of_it(tmp_path: Path, started: Started) -> None:
    launcher(tmp_path).trial("advanced", {"dtype": "bfloat16"})
    assert started.settings[0]["max_steps"] == 9
    assert started.settings[0]["metrics_warmup_steps"] == 3
    assert started.settings[0]["report_to"] == []
    assert "timeout" not in started.settings[0]


@pytest.mark.parametrize(("limit", "given"), [(300.0, 300.0), (1e6, 1800.0)])
def test_a_trial_with_a_switch_is_not_waited_for_without_end(
    tmp_path: Path, started: Started, limit: float, given: float
) -> None:
    launcher(tmp_path).trial("optimal", {"speed.compile": True}, limit)
    assert started.settings[0]["timeout"] == given


def test_run_folders_tell_guards_trials_and_rounds_apart(tmp_path: Path, started: Started) -> None:
    launch = launcher(tmp_path)
    launch.guard("basic", {})
    launch.trial("advanced, bfloat16", {})
    for _ in range(2):
        launch.timed("basic", {})
    assert [one["name"] for one in started.settings] == [
        "job.guard-basic",
        "job.trial-advanced-bfloat16",
        "job.round1-basic",
        "job.round2-basic",
    ]


@pytest.mark.parametrize("error", [UsageError, MachineError])
def test_a_launch_that_cannot_run_says_why_and_is_no_exception(
    tmp_path: Path, started: Started, error: Any
) -> None:
    started.answer = error("no such kernel")
    found = launcher(tmp_path).trial("advanced", {})
    assert found.problem == "no such kernel"
    assert found.speed is None


def test_a_launch_that_failed_has_no_speed(tmp_path: Path, started: Started) -> None:
    started.answer = crashed(example(), "oom", "out of memory")
    found = launcher(tmp_path).timed("optimal", {})
    assert found.problem == "oom: out of memory"
    assert found.speed is None


def test_a_run_that_left_no_record_says_why_and_whose_it_was(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"^base \(x\): the run left no record: it broke$"):
        folder_left(4, "", "noise\ncanary: it broke\n", "base (x): ")
    with pytest.raises(UsageError, match=r"^no such key$"):
        folder_left(2, str(tmp_path), "canary: no such key")
    (tmp_path / "metrics.json").touch()
    assert folder_left(0, f"{tmp_path}\n", "") == tmp_path


def test_a_guard_trains_at_a_rate_though_the_warm_up_is_long(
    tmp_path: Path, started: Started
) -> None:
    """In the first steps of a long warm-up nothing that the optimizer does would show."""
    job = Job(config_of("sft", max_steps=200, warmup_steps=100), CPU)
    Site(job, tmp_path, silent).guard("basic", {})
    assert started.settings[0]["warmup_steps"] == 0


def rows(*tokens: int, **rest: Any) -> list[Any]:
    """Rows of a reward model's steps, which count no labels."""
    return [{"samples": 8, "input_tokens": count, "rl": {}, **rest} for count in tokens]


def test_a_row_that_is_dropped_is_missed_where_there_are_no_labels() -> None:
    """`samples` is a product of settings, and the same."""
    said = unequal_work(rows(300, 310), rows(300, 280))
    assert said == "280 tokens without padding in step 2 instead of 310"
    assert unequal_work(rows(300, 310), rows(300, 310)) == ""


def test_what_does_not_say_what_it_is_fed_is_judged_by_the_rest() -> None:
    silent: list[Row] = [{"samples": 8, "rl": {}}]
    assert unequal_work(rows(300), silent) == ""
    assert unequal_work(rows(300), [{"samples": 4, "rl": {}}]) != ""
