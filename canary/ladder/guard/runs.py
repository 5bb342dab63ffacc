"""Run guards: looks that train on the completions of the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable

from canary.config.schema import CanaryConfig
from canary.errors import RunFailed
from canary.ladder.guard.verdict import Verdict, compare
from canary.ladder.labels import state_word, verdict_words
from canary.ladder.launching import LadderRuns
from canary.ladder.levels import Rounding, Settings
from canary.ladder.rounds import other_rows
from canary.record.exact import Exact

NUDGE = 1e-6
"""Relative change of the control's learning rate, as small as the rounding of an update."""


class Guards:
    """Runs the guards of one config; `baseline` is their reference, `who` its name in messages.

    After the first broken guard a control runs: the baseline with a learning rate that is larger by
    a rounding error. If that breaks too, the training amplifies rounding and no guard can judge it.
    """

    def __init__(
        self,
        launch: LadderRuns,
        config: CanaryConfig,
        say: Callable[[str], None],
        baseline: Settings,
        who: str,
    ) -> None:
        self._launch = launch
        self._config = config
        self._say = say
        self._baseline = baseline
        self._who = who
        self._expected: Exact = {}
        self._steady = False

    def begin(self, label: str) -> None:
        """Run the first steps of the baseline; the others train on its completions.

        Raises:
            RunFailed: it does not run, or a loss is not finite.
        """
        launch = self._launch.guard(label, self._baseline, records=True)
        if launch.problem or launch.record is None:
            status = launch.record.status if launch.record else "failed"
            raise RunFailed(f"{self._who} did not run: {launch.problem}", status)
        self._expected = launch.record.exact
        losses = self._expected.get("trajectory", {}).get("losses", [])
        for step, loss in enumerate(losses, start=1):
            if loss is not None and not math.isfinite(loss):
                raise self._unsteady(f"its loss is {loss} at step {step}")

    def verdict(self, label: str, settings: Settings, rounding: Rounding) -> Verdict:
        """Run the guard of `settings` and return its verdict.

        Raises:
            RunFailed: the baseline amplifies rounding, so that no guard can judge it.
        """
        found = self._verdict(label, settings, rounding)
        if found.broken and not self._steady:
            self._control(label)
        return found

    def _control(self, label: str) -> None:
        rate = self._config.learning_rate
        nudged = {**self._baseline, "learning_rate": None if rate is None else rate * (1 + NUDGE)}
        found = self._verdict(f"{label}, control", nudged, "float32")
        if found.broken:
            raise self._unsteady(
                f"a learning rate larger by a millionth changes it: {verdict_words(found)}"
            )
        self._steady = True

    def _verdict(self, label: str, settings: Settings, rounding: Rounding) -> Verdict:
        self._say(f"{label}: guard in {rounding}")
        launch = self._launch.guard(label, settings)
        if launch.problem or launch.record is None:
            problem = f"not guarded: its look did not run: {launch.problem}"
            found = Verdict(rounding, 0, 0, problem=problem, ran=False)
        else:
            exact = launch.record.exact
            # With several ranks a look has only the rows of its rank.
            others = "" if settings.get("nproc") else other_rows(self._expected, exact)
            found = (
                Verdict(rounding, 0, 0, problem=f"unequal work: {others}")
                if others
                else compare(self._expected, exact, self._config.training_type, rounding)
            )
        self._say(f"{label}: guard {state_word(found)}: {verdict_words(found)}")
        return found

    def _unsteady(self, why: str) -> RunFailed:
        return RunFailed(
            f"{self._who} does not train steadily: {why}; no guard can judge it",
            "failed",
            f"use a learning_rate below {self._config.learning_rate:g}"
            if self._config.learning_rate
            else None,
        )
