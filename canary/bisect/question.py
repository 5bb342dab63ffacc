"""What a bisect follows: a crash, a check without noise, or a check with noise."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeGuard

from canary.baseline.comparability import ending
from canary.bisect.search import Seen
from canary.campaign.judging import Judge
from canary.compare.checks import CHECKS
from canary.compare.report import Check, Comparison, Verdict
from canary.compare.verdict import leading_failure, ordered_failures
from canary.errors import UsageError, did_you_mean, nearest
from canary.record.types import RunRecord
from canary.report.numbers import amount

CRASH = "crash"
"""The check that follows a crash."""
ON_LAUNCHES = ("alerts", "steps_trained")
"""Checks without noise although their lane has some."""

Kind = Literal["look", "whole"]
"""A training that ends after its look, or a whole one."""


@dataclass(frozen=True)
class Question:
    """What is followed, and how a record answers it."""

    check: str
    """A check's name, or `CRASH`."""
    noisy: bool
    good: tuple[RunRecord, ...]
    bad: RunRecord
    judge: Judge
    warns: bool = False
    """The bad end is worse within the limit, so `warn` is bad too."""
    worse: Literal[1, -1] = 1
    """-1 if the number is smaller at the bad end."""
    size: float | None = None
    """What numbers are divided by; None: their logarithm is taken."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The runs that may answer, the cheapest first."""
        return ("look", "whole") if look_answers(self.check) else ("whole",)

    def read(self, record: RunRecord) -> Seen | None:
        """Return what a record shows of its state; None if a run of the next kind may show it."""
        if self.check == CRASH:
            return self.crashed(record)
        itself = self.noisy and record.run_id == self.good[0].run_id
        against = (self.bad,) if itself else self.good[:1] if self.noisy else self.good
        found = self.judge([record], against)
        check = found.find_check(self.check)
        if record.status != "completed":
            return Seen(outcome="skip", words=ending(record))
        if found.verdict == "error":
            return Seen(outcome="skip", words=error_words(found))
        if self.noisy:
            value = None if check is None else self.value(check.current)
            if check is None or value is None:
                return Seen(outcome="skip", words="it has no value")
            return Seen(value=value, words=amount(check.current, check.unit))
        if not is_judged(check):
            return None
        bad = check.failed or (self.warns and check.status == "warn")
        words = f"{check.name}: {check.message}".rstrip(".")
        return Seen(outcome="bad" if bad else "good", words=words)

    def value(self, shown: object) -> float | None:
        """Return a check's number so that more is worse; None without a number."""
        number = _number(shown)
        if number is None:
            return None
        if self.size is not None:
            return self.worse * number / self.size
        return self.worse * math.log(number) if number > 0 else None

    def crashed(self, record: RunRecord) -> Seen:
        """Return whether a run fails as the bad end does."""
        if record.status == "completed":
            return Seen(outcome="good", words="it completes")
        if _failure(record) == _failure(self.bad):
            return Seen(outcome="bad", words=ending(record))
        return Seen(outcome="skip", words=f"it fails in another way, {ending(record)}")


def question_of(
    name: str, found: Comparison, head: Sequence[RunRecord], base: Sequence[RunRecord], judge: Judge
) -> Question:
    """Return the question about a check, from the comparison of the ends.

    `head`: the bad end's records, failed ones if all failed. `base`: those of the good end.
    """
    exact = Question(name, False, tuple(base), head[-1], judge)
    if name == CRASH:
        return exact
    check = found.check(name)
    was, now = _number(check.baseline), _number(check.current)
    if check.lane in ("exact", "rule") or name in ON_LAUNCHES or was is None or now is None:
        return replace(exact, warns=check.status == "warn")
    size = None if min(was, now) > 0 else max(abs(was), abs(now)) or 1.0
    return replace(exact, noisy=True, worse=1 if now >= was else -1, size=size)


def look_answers(name: str) -> bool:
    """Return whether a look alone may answer a check."""
    return name in CHECKS and CHECKS[name].lane in ("exact", "rule")


def is_judged(check: Check | None) -> TypeGuard[Check]:
    """Return whether a comparison decided a check."""
    return check is not None and check.status not in ("skip", "inconclusive")


def choose(found: Comparison, wanted: str | None) -> str:
    """Return the check to follow: the wanted one, or the first red one.

    Raises:
        UsageError: the wanted one is unknown or not worse, or nothing is red.
    """
    red = [check.name for check in ordered_failures(found.checks)]
    warned = [check.name for check in found.checks if check.status == "warn"]
    hint = "compare the ends first: canary ab CONFIG --base GOOD --head BAD"
    if red or warned:
        within = f"within their limits, so name one with --check: {', '.join(warned)}"
        hint = f"worse are: {', '.join(red)}" if red else within
    if wanted is None:
        able = [check for check in found.failed_checks if check.name != "repeatability"]
        if not able:
            raise UsageError("nothing is worse between the ends", hint)
        return leading_failure(able).name
    require_known(wanted, [check.name for check in found.checks])
    check = found.find_check(wanted)
    if wanted == CRASH:
        raise UsageError("--check crash: the bad end does not crash", hint)
    if check is None or wanted == "repeatability":
        raise UsageError(f"--check {wanted} was not judged between the ends", hint)
    if not (check.failed or check.status == "warn"):
        raise UsageError(f"{wanted} is not worse: {ends_words(check)}", hint)
    return wanted


def require_known(name: str, judged: Sequence[str] = ()) -> None:
    """Raise UsageError if a bisect follows no check of this name. `judged`: also the gates of
    `metrics:`, which are known once the ends ran."""
    known = [*CHECKS, CRASH, *judged]
    if name not in known and not (name.startswith("metrics.") and not judged):
        raise UsageError(
            f"unknown check {name!r}",
            did_you_mean(nearest(name, known), "docs/verdict.md lists the checks"),
        )


def ends_words(check: Check) -> str:
    """Return a check's values at both ends, in words."""
    if check.baseline is None or check.current is None:
        return check.message.rstrip(".")
    good, bad = (amount(value, check.unit) for value in (check.baseline, check.current))
    noise = ", too noisy to tell" if check.status == "inconclusive" else ""
    return f"{good} at good, {bad} at bad{noise}"


def only(found: Comparison, name: str) -> Comparison:
    """Return a comparison that judges one check alone, so that its pairs stop by that one."""
    check = found.find_check(name)
    if check is None or found.verdict == "error":
        return found
    verdict: Verdict = "regression" if check.failed else "pass"
    if check.status == "inconclusive":
        verdict = "inconclusive"
    return replace(found, verdict=verdict, checks=(check,))


def error_words(found: Comparison) -> str:
    """Return why records cannot be compared."""
    return found.first_line.removeprefix("Error: ").removesuffix(".")


def _failure(record: RunRecord) -> tuple[str, str, str]:
    """Return what is equal if two runs fail in the same way: without numbers and folders."""
    reason = re.sub(r"(/[^\s:'\",]+)+", "PATH", record.reason or "")
    reason = re.sub(r"0x[0-9a-fA-F]+|\d+", "N", reason)
    alike = record.status in ("oom", "timeout")
    return record.status, record.failure or "", "" if alike else reason


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
