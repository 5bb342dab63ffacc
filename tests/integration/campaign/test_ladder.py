"""The ladder for real, at small scale: levels are faster, guards are in force, and an optimisation
that learns something else is caught."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canary.ladder.report import result_text
from canary.ladder.results import Ladder, LevelFound
from canary.ladder.run import LadderRequest, run
from canary.ladder.switches import SWITCHES, Switch
from canary.record.jsonio import read_rows
from tests.integration.conftest import settings, write_config

pytestmark = [pytest.mark.train, pytest.mark.slow]

UNSAFE = Switch("no KL penalty", "advanced", {"ppo.init_kl_coef": (..., 0.0)})
"""Drops a term of the rewards: faster by a reference's forward, had one left that out too."""


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Ladder:
    """Of PPO, up to the level with the unsafe switch in it and nothing else."""
    folder = tmp_path_factory.mktemp("ladder")
    job = settings("ppo", max_steps=6, max_new_tokens=64, learning_rate=1e-3)
    config = write_config(folder, job)
    known = (*(switch for switch in SWITCHES if switch.level == "basic"), UNSAFE)
    request = LadderRequest(config, "baseline,basic,advanced", rounds=1, output_dir=folder / "out")
    return run(request, print, known=known)


def of(ladder: Ladder, level: str) -> LevelFound:
    return next(one for one in ladder.levels if one.level == level)


def processor_seconds(ladder: Ladder, level: str) -> float:
    """Of the timed launch of a level, after its first step."""
    (folder,) = ladder.folder.glob(f"*-ppo.round1-{level}-*")
    rows = rows_of(folder)
    return sum(sum(row["phases_cpu"].values()) for row in rows[1:])


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Of the timed launch, if the folder holds one."""
    return list(read_rows(folder / "steps.jsonl"))


def test_basic_is_faster_than_the_baseline(ladder: Ladder) -> None:
    basic = of(ladder, "basic")
    assert basic.problem == ""
    assert basic.cumulative is not None
    ((speed,), (reference,)) = basic.speeds, of(ladder, "baseline").speeds
    assert basic.cumulative.ratio == pytest.approx(speed / reference)
    # One launch each: on a busy machine the clock may say anything, and the processor's does not.
    assert 1.2 * processor_seconds(ladder, "basic") < processor_seconds(ladder, "baseline")
    assert of(ladder, "baseline").bottleneck


def test_what_basic_does_is_what_the_baseline_learns(ladder: Ladder) -> None:
    guarded = of(ladder, "basic").guarded
    assert guarded is not None
    assert guarded.holds
    assert guarded.exact is not None
    assert guarded.exact.steps == 5
    assert guarded.exact.signals >= 6


def test_an_unsafe_optimisation_is_caught_and_named(ladder: Ladder) -> None:
    advanced = of(ladder, "advanced")
    assert advanced.unsafe
    assert advanced.guarded is not None
    assert advanced.guarded.blamed == ("no KL penalty",)
    assert advanced.guarded.broken is not None
    assert advanced.guarded.broken.first is not None
    assert not ladder.passed
    assert "UNSAFE: advanced" in result_text(ladder, "text")


def test_every_level_did_the_same_work(ladder: Ladder) -> None:
    """The rows on the disk say so, not the ladder."""
    runs = {}
    for folder in sorted(ladder.folder.glob("*-ppo.*")):
        rows = rows_of(folder)
        if len(rows) == 6:  # A guard's look is shorter.
            runs[folder.name] = [
                (row["samples"], row["completion_tokens"], row["rl"]["updates"]) for row in rows
            ]
    assert len(runs) >= 3
    assert set(map(tuple, runs.values())) == {((4, 4 * 64, 4.0),) * 6}


def test_the_levels_records_lie_in_one_folder(ladder: Ladder, tmp_path: Path) -> None:
    assert (ladder.folder / "completions.jsonl").exists()
    assert list(ladder.folder.glob("*-ppo.guard-basic-*/metrics.json"))
    assert list(ladder.folder.glob("*-ppo.round1-basic-*/metrics.json"))
    there = {path.parent.name for path in ladder.folder.glob("*/metrics.json")}
    assert {one.run_id for one in ladder.launches} == there
