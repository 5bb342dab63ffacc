"""What a bisect follows: a crash, a check without noise, or a check with noise.

Each kind reads one record as an outcome or a value, against the records of the good end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from canary.baseline.comparability import ending
from canary.bisect.journal import Kind
from canary.bisect.model import Outcome
from canary.compare.checks import CHECKS
from canary.compare.report import Check, Comparison, Verdict
from canary.compare.verdict import leading_failure, ordered_failures
from canary.errors import UsageError, did_you_mean, nearest
from canary.record.types import RunRecord
from canary.report.numbers import amount

CRASH = "crash"
"""Name of the question that follows a crash."""
ON_LAUNCHES = ("alerts", "steps_trained")
"""Checks whose outcome does not vary although they are of the lane `trend`."""
SPREADS = ("step_time_spread", "repeatability")
"""Checks that one run cannot answer."""

Signal = Literal["exact", "noisy"]


@dataclass(frozen=True)
class Reading:
    """What one record shows."""

    words: str
    """For people: the value, or why it is skipped."""
    outcome: Outcome | None = None
    value: float | None = None


class Compare(Protocol):
    """Judges records of one state against some of the good end, with the good end's limits."""

    def __call__(
        self, current: Sequence[RunRecord], baseline: Sequence[RunRecord]
    ) -> Comparison: ...


class Question(Protocol):
    """What is followed."""

    @property
    def check(self) -> str:
        """Name of the check, or `CRASH`."""

    @property
    def signal(self) -> Signal:
        """Whether one run decides."""

    def kinds(self) -> tuple[Kind, ...]:
        """Return the runs that may answer, the cheapest first."""

    def read(self, record: RunRecord) -> Reading | None:
        """Return what a record shows; None if a run of the next kind may show it."""


@dataclass(frozen=True)
class CrashQuestion:
    """Does it end in the same way as the bad end?"""

    failure: str
    """The bad end's `failure_of`."""
    signal: Signal = "exact"
    check: str = CRASH

    def kinds(self) -> tuple[Kind, ...]:
        """Return the run that fails; see `Question`."""
        return ("whole",)

    def read(self, record: RunRecord) -> Reading | None:
        """Return `bad` for the same failure, `skip` for another one; see `Question`."""
        if record.status == "completed":
            return Reading("it completes", "good")
        words = ending(record)
        if failure_of(record) == self.failure:
            return Reading(words, "bad")
        return Reading(f"it fails in another way, {words}", "skip")


@dataclass(frozen=True)
class ExactQuestion:
    """Is a check without noise red against the good end?"""

    check: str
    good: tuple[RunRecord, ...]
    compare: Compare
    warns: bool = False
    """Whether the bad end is worse within the limit: then `warn` is bad too."""
    signal: Signal = "exact"

    def kinds(self) -> tuple[Kind, ...]:
        """Return the runs for this check; see `Question`."""
        return kinds_of(self.check)

    def read(self, record: RunRecord) -> Reading | None:
        """Return the check's status as an outcome; see `Question`."""
        found = self.compare([record], self.good)
        check = check_in(found, self.check)
        if record.status != "completed" or found.verdict == "error":
            return Reading(why_not(record, found), "skip")
        if check is None or check.status in ("skip", "inconclusive"):
            return None
        bad = check.failed or (self.warns and check.status == "warn")
        return Reading(words_of(check), "bad" if bad else "good")


@dataclass(frozen=True)
class NoisyQuestion:
    """How large is a check's number?"""

    check: str
    good: tuple[RunRecord, ...]
    compare: Compare
    worse: Literal[1, -1]
    """-1 if the number is smaller at the bad end."""
    size: float | None
    """What numbers are divided by; None: their logarithm is taken."""
    signal: Signal = "noisy"

    def kinds(self) -> tuple[Kind, ...]:
        """Return the run for this check: a whole training."""
        return ("whole",)

    def read(self, record: RunRecord) -> Reading | None:
        """Return the number; see `Question`."""
        found = self.compare([record], self.good[:1])
        check = check_in(found, self.check)
        if record.status != "completed" or found.verdict == "error":
            return Reading(why_not(record, found), "skip")
        value = None if check is None else self.value(check.current)
        if value is None or check is None:
            why = "it was not measured" if check is None else check.message
            return Reading(f"no value: {why}", "skip")
        return Reading(shown(check.current, check.unit), None, value)

    def value(self, shown: object) -> float | None:
        """Return a check's number so that more is worse; None without a number."""
        number = _number(shown)
        if number is None:
            return None
        if self.size is not None:
            return self.worse * number / self.size
        return self.worse * math.log(number) if number > 0 else None

    def read_good(self, record: RunRecord, other: RunRecord) -> Reading | None:
        """Return the number of a run of the good end. `other`: any run of the bad end."""
        check = check_in(self.compare([other], [record]), self.check)
        value = None if check is None else self.value(check.baseline)
        if value is None or check is None:
            return None
        return Reading(shown(check.baseline, check.unit), None, value)


def question_of(
    name: str,
    found: Comparison,
    head: Sequence[RunRecord],
    base: Sequence[RunRecord],
    compare: Compare,
) -> Question:
    """Return the question about a check, from the comparison of the ends.

    `head`: the bad end's records, failed ones if all failed. `base`: those of the good end.
    """
    if name == CRASH:
        return CrashQuestion(failure_of(head[-1]))
    good = tuple(base)
    check = found.check(name)
    was, now = _number(check.baseline), _number(check.current)
    if check.lane in ("exact", "rule") or name in ON_LAUNCHES or was is None or now is None:
        return ExactQuestion(name, good, compare, check.status == "warn")
    size = None if min(was, now) > 0 else max(abs(was), abs(now)) or 1.0
    return NoisyQuestion(name, good, compare, 1 if now >= was else -1, size)


def is_exact(name: str) -> bool:
    """Whether a look alone may answer a check."""
    return name in CHECKS and CHECKS[name].lane in ("exact", "rule")


def kinds_of(name: str) -> tuple[Kind, ...]:
    """Return the runs that may answer a check without noise, the cheapest first."""
    return ("look", "whole") if is_exact(name) else ("whole",)


def choose(found: Comparison, wanted: str | None) -> str:
    """Return the name of the check to follow: the wanted one, or the first red one.

    Raises:
        UsageError: the wanted one is unknown or not worse, or nothing is red.
    """
    if wanted is None:
        return _first_red(found)
    require_known(wanted, [check.name for check in found.checks])
    if wanted == CRASH:
        raise UsageError("--check crash: the bad end does not crash", _what_is_red(found))
    if wanted in SPREADS:
        raise UsageError(f"--check {wanted}: one run cannot show it", _what_is_red(found))
    check = check_in(found, wanted)
    if check is None:
        raise UsageError(f"--check {wanted} was not judged between the ends", _what_is_red(found))
    if check.failed or check.status == "warn":
        return wanted
    raise UsageError(f"{wanted} is not worse: {ends_words(check)}", _what_is_red(found))


def require_known(name: str, judged: Sequence[str] = ()) -> None:
    """Raise UsageError if a bisect follows no check of this name.

    `judged`: also the gates of `metrics:`.
    """
    known = [*CHECKS, CRASH, *judged]
    if name not in known and not (name.startswith("metrics.") and not judged):
        raise UsageError(
            f"unknown check {name!r}",
            did_you_mean(nearest(name, known), "docs/verdict.md lists the checks"),
        )


def _first_red(found: Comparison) -> str:
    able = [check for check in ordered_failures(found.checks) if check.name not in SPREADS]
    if not able:
        raise UsageError("nothing is worse between the ends", _what_is_red(found))
    return leading_failure(able).name


def _what_is_red(found: Comparison) -> str:
    red = [check.name for check in ordered_failures(found.checks)]
    if red:
        return f"worse are: {', '.join(red)}"
    warned = [check.name for check in found.checks if check.status == "warn"]
    if warned:
        return f"worse, but within the limits: {', '.join(warned)}; follow one with --check"
    return "compare the ends first: canary ab CONFIG --base GOOD --head BAD"


def check_in(found: Comparison, name: str) -> Check | None:
    """Return a check of a comparison, if it was made."""
    return next((check for check in found.checks if check.name == name), None)


def why_not(record: RunRecord, found: Comparison) -> str:
    """Return why a run cannot be judged."""
    if record.status != "completed":
        return ending(record)
    return found.first_line.removeprefix("Error: ").removesuffix(".")


def words_of(check: Check) -> str:
    """Return what a check shows, in one sentence without a full stop."""
    return f"{check.name}: {check.message}".rstrip(".")


def ends_words(check: Check) -> str:
    """Return a check's values at both ends, in words."""
    values = (
        f"{shown(check.baseline, check.unit)} at good, {shown(check.current, check.unit)} at bad"
    )
    if check.baseline is None or check.current is None:
        return check.message.rstrip(".")
    if check.status == "inconclusive":
        return f"{values}, too noisy to tell"
    return values


def shown(value: object, unit: str) -> str:
    """Return a check's value for people."""
    return amount(value, unit)


def failure_of(record: RunRecord) -> str:
    """Return what stays equal if two runs fail in the same way: without numbers and folders."""
    reason = re.sub(r"(/[^\s:'\",]+)+", "PATH", record.reason or "")
    reason = re.sub(r"0x[0-9a-fA-F]+|\d+", "N", reason)
    same = "" if record.status in ("oom", "timeout") else reason
    return f"{record.status}|{record.failure or ''}|{same}"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def only(found: Comparison, name: str) -> Comparison:
    """Return a comparison that judges one check alone, so that its pairs stop by that one."""
    check = check_in(found, name)
    if check is None or found.verdict == "error":
        return found
    verdicts: dict[str, Verdict] = {
        "fail": "regression",
        "changed": "changed",
        "inconclusive": "inconclusive",
    }
    return replace(found, verdict=verdicts.get(check.status, "pass"), checks=(check,))
