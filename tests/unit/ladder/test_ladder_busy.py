"""What the ladder says of a machine that does other work: notes, and trials that decide nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canary.errors import EXIT_ERROR, RunFailed
from canary.ladder import run
from canary.ladder.climb import tried_words
from canary.ladder.report import result_text
from canary.ladder.results import Ladder
from canary.ladder.run import LadderRequest, ladder_at
from canary.ladder.site import LaunchResult, Site
from canary.ladder.switches import LEVELS, Settings
from tests.unit.laddering import Workshop, config_of, record_at, silent, site

FORMS = ("text", "markdown", "json")
FAST: dict[tuple[str, Any], float] = {("batch_size", 8): 3.0, ("num_workers", 2): 1.1}


class Restless(Workshop):
    """The second of the two launches around the trials is 0.6 times as fast as the first."""

    def trial(self, label: str, settings: Settings, limit_s: float | None = None) -> LaunchResult:
        last = limit_s is None and bool(self.limits) and self.limits[-1] is not None
        ran = super().trial(label, settings, limit_s)
        assert ran.speed is not None
        return replace(ran, record=record_at(ran.speed * (0.6 if last else 1.0)))


def made(launch: Workshop) -> Ladder:
    return ladder_at(site(config_of("ppo"), launch), LEVELS)


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
        assert "the two launches around the trials differ by 67%" in result_text(found, form)


def test_on_a_steady_machine_every_trial_is_decided() -> None:
    found = made(Workshop(FAST))
    assert all(one.decided for level in found.levels for one in level.tried)
    assert not found.notes


def test_who_interrupts_hears_where_the_records_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(place: Site, *_: object) -> Ladder:
        (place.folder / "a-record").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "ladder_at", interrupted)
    with pytest.raises(RunFailed) as caught:
        run.run(LadderRequest(None, output_dir=tmp_path), silent)
    (folder,) = tmp_path.iterdir()
    assert caught.value.exit_code == EXIT_ERROR
    assert str(caught.value) == f"interrupted, no report; records so far: {folder}"
