"""What tests call: train, compare, and fail or warn. Imports little before a method is called."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from canary.compare.report import Comparison
    from canary.pytest_plugin.answers import Answer
    from canary.pytest_plugin.trainings import Trainings
    from canary.record.types import RunRecord

Place = str | os.PathLike[str]


class CanaryWarning(UserWarning):
    """A test passed, and its canary decided nothing: `inconclusive` or `no-baseline`."""


@dataclass(frozen=True)
class Policy:
    """The options of the session, for a test."""

    test: str
    """As pytest names it."""
    history: Path
    save: bool
    accept: str | None
    strict: bool
    started_in: Path
    """Where the user started pytest; shown paths are relative to it."""
    width: int | None = None
    """Columns of the terminal."""


class Canary:
    """Trains canaries, and fails a test if one got worse.

    Paths are relative to the folder of pytest's config file; without one, to the folder in which
    pytest was started. A training runs there too, once per session.

    Each method returns the comparison, for further assertions. Its arguments, beside what to train:

    - `history`: folder of the stored runs to compare with, instead of the session's.
    - `baseline`: one or more runs (a folder or a `metrics.json`) or a folder of runs, instead of a
      history.
    - `set`: `key=value` settings that override the config.
    - `tier`: limits: default, smoke, perf or nightly.
    - `strict`: whether an inconclusive comparison fails; None: as the session's option says.
    """

    def __init__(self, trainings: Trainings, policy: Policy, item: pytest.Item) -> None:
        self._trainings = trainings
        self._policy = policy
        self._item = item

    def assert_no_regression(
        self,
        config: Place,
        *,
        history: Place | None = None,
        baseline: Place | Iterable[Place] | None = None,
        set: str | Sequence[str] = (),
        tier: str | None = None,
        strict: bool | None = None,
    ) -> Comparison:
        """Train the canary of a config, as `canary run` does, and compare the run."""
        __tracebackhide__ = True

        def train() -> Path:
            return self._trainings.of_config(os.fspath(config), _settings(set))

        return self._checked(train, history, baseline, tier, strict)

    def assert_no_regression_of_command(
        self,
        command: Sequence[Place],
        *,
        name: str | None = None,
        max_steps: int | None = None,
        config: Place | None = None,
        history: Place | None = None,
        baseline: Place | Iterable[Place] | None = None,
        set: str | Sequence[str] = (),
        tier: str | None = None,
        strict: bool | None = None,
    ) -> Comparison:
        """Run a training command, as `canary exec -- COMMAND` does, and compare the run.

        `name`, `max_steps`, `config`: as the options of `canary exec`.
        """
        __tracebackhide__ = True

        def train() -> Path:
            from canary.runner.exec.entry import ExecRequest

            words = tuple(os.fspath(word) for word in command)
            file = None if config is None else Path(config)
            settings = tuple(_settings(set))
            asked = ExecRequest(words, name, max_steps, file, settings=settings)
            return self._trainings.of_command(asked)

        return self._checked(train, history, baseline, tier, strict)

    def assert_no_regression_of_run(
        self,
        run: Place,
        *,
        history: Place | None = None,
        baseline: Place | Iterable[Place] | None = None,
        tier: str | None = None,
        strict: bool | None = None,
    ) -> Comparison:
        """Compare a run that ended before: its folder or its `metrics.json`."""
        __tracebackhide__ = True
        return self._checked(lambda: self._trainings.root / run, history, baseline, tier, strict)

    def _checked(
        self,
        train: Callable[[], Path],
        history: Place | None,
        baseline: Place | Iterable[Place] | None,
        tier: str | None,
        strict: bool | None,
    ) -> Comparison:
        __tracebackhide__ = True
        from canary.errors import CanaryError, printable
        from canary.pytest_plugin.answers import Against, judged

        problem = None
        try:
            against = Against.of(self._trainings.root, self._policy, history, baseline, tier)
            answer = judged(train(), against, self._policy, self._trainings, strict)
        except CanaryError as error:
            problem = printable(f"canary: {error}")
        if problem is not None:
            pytest.fail(problem, pytrace=False)
        return self._told(answer)

    def _told(self, answer: Answer) -> Comparison:
        """Fail, warn or pass, and leave the answer in the report of the test. A worker of xdist
        sends all texts; it cannot send half a character of a stranger's record."""
        __tracebackhide__ = True
        from canary.errors import printable

        found = answer.compared.found
        self._item.user_properties += [
            ("canary", printable(f"{found.verdict}: {found.first_line}")),
            ("canary_run", printable(str(answer.run))),
        ]
        if answer.log:
            self._item.add_report_section("call", "canary log", answer.log)
        if answer.failed:
            pytest.fail(answer.text, pytrace=False)
        self._item.add_report_section("call", "canary", answer.text)
        if answer.warning:
            warnings.warn(CanaryWarning(printable(answer.warning)), stacklevel=4)
        return found


def _settings(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else [*given]


def record_of(trainings: Trainings) -> Callable[..., RunRecord]:
    """Return the function of the fixture `canary_record`."""

    def canary_record(config: Place, *, set: str | Sequence[str] = ()) -> RunRecord:
        """Return the record of a run of the config; fail if the run did not complete."""
        __tracebackhide__ = True
        from canary.errors import CanaryError, printable
        from canary.pytest_plugin.answers import completed

        problem = None
        try:
            return completed(trainings.of_config(os.fspath(config), _settings(set)))
        except CanaryError as error:
            problem = printable(f"canary: {error}")
        pytest.fail(problem, pytrace=False)

    return canary_record
