"""Runs guards, probes on the baseline's completions, and says what they saw."""

from __future__ import annotations

import math
from collections.abc import Callable

from canary.config.schema import CanaryConfig
from canary.errors import RunFailed
from canary.ladder.guard.verdict import Verdict, compare
from canary.ladder.labels import state_word, verdict_words
from canary.ladder.launching import LadderRuns
from canary.ladder.levels import Rounding, Settings
from canary.ladder.same_work import other_rows
from canary.record.exact import Exact

NUDGE = 1e-6
"""Share by which the control's learning rate is moved: no more than rounding moves an update."""


class Guards:
    """Guards of one config; `baseline` is what they are held against, and `who` what it is called.

    The first guard that breaks is followed by a control: the baseline with a learning rate that is
    a rounding larger. Where that breaks as well, the training multiplies every rounding, and no
    guard says anything.
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
        """The baseline's own first steps, whose completions the others train on.

        Raises:
            RunFailed: it does not run, or its losses are no numbers.
        """
        ran = self._launch.guard(label, self._baseline, records=True)
        if ran.problem or ran.record is None:
            status = ran.record.status if ran.record else "failed"
            raise RunFailed(f"{self._who} did not run: {ran.problem}", status)
        self._expected = ran.record.exact
        losses = self._expected.get("trajectory", {}).get("losses", [])
        for step, loss in enumerate(losses, start=1):
            if loss is not None and not math.isfinite(loss):
                raise self._says_nothing(f"its loss is {loss} at step {step}")

    def verdict(self, label: str, settings: Settings, rounding: Rounding) -> Verdict:
        """What a guard of `settings` saw.

        Raises:
            RunFailed: the baseline is no measure: it does not repeat itself within rounding.
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
            raise self._says_nothing(
                f"moved by a millionth, its learning rate gives another one: {verdict_words(found)}"
            )
        self._steady = True

    def _verdict(self, label: str, settings: Settings, rounding: Rounding) -> Verdict:
        self._say(f"{label}: guard in {rounding}")
        ran = self._launch.guard(label, settings)
        if ran.problem or ran.record is None:
            problem = f"not guarded: its probe did not run: {ran.problem}"
            found = Verdict(rounding, 0, 0, problem=problem, ran=False)
        else:
            # One rank of several tells of its own rows alone.
            others = "" if settings.get("nproc") else other_rows(self._expected, ran.record.exact)
            found = (
                Verdict(rounding, 0, 0, problem=f"unequal work: {others}")
                if others
                else compare(self._expected, ran.record.exact, self._config.training_type, rounding)
            )
        self._say(f"{label}: guard {state_word(found)}: {verdict_words(found)}")
        return found

    def _says_nothing(self, why: str) -> RunFailed:
        return RunFailed(
            f"{self._who} is not a steady training: {why}; no guard can judge it",
            "failed",
            f"a lower learning_rate than {self._config.learning_rate:g}"
            if self._config.learning_rate
            else None,
        )
