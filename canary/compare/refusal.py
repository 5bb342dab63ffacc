"""Why runs cannot be compared, or need no comparison: a crash, another machine, several commits."""

from __future__ import annotations

from collections.abc import Sequence

from canary.baseline.comparability import how_it_ended, judgeable, mismatch, named_twice, same_runs
from canary.compare.exact.changes import config_changes
from canary.compare.report import Comparison
from canary.compare.verdict import LONGEST, cut_to_fit
from canary.errors import InputError
from canary.protocol.failure import named_error, split_place
from canary.record.types import RunRecord

CRASHED = ("failed", "oom", "timeout")


def require_distinct(now: Sequence[RunRecord], before: Sequence[RunRecord]) -> None:
    """Raise InputError if there is no current run, or a run is named twice."""
    if not now:
        raise InputError("no current run to compare")
    copies = [*named_twice(now), *named_twice(before)]
    if copies:
        raise InputError(
            f"run {copies[0]} is named twice on one side: it counts as one run", "name it once"
        )
    twice = same_runs(now, before)
    if twice:
        raise InputError(
            f"run {twice[0]} is on both sides: comparing a run with itself proves nothing",
            "name two different runs",
        )


def refusal(
    now: Sequence[RunRecord], before: Sequence[RunRecord], good: Sequence[RunRecord], paired: bool
) -> Comparison | None:
    """Return the answer if nothing can be judged: a crash, or runs that cannot be compared."""
    crash = _crashed(now, good)
    if crash:
        other = mismatch(good[-1], now[-1])
        if other:
            return Comparison("error", f"Error: not comparable, {other}.")
        return Comparison("regression", crash)
    problem = next(filter(None, map(judgeable, now)), "")
    if not problem and before and not good:
        problem = f"{judgeable(before[-1])} (baseline)"
    if not problem and paired and len(good) != len(before):
        unusable = next(record for record in before if record not in good)
        problem = f"{judgeable(unusable)} (baseline)"
    problem = problem or _not_one_thing(now)
    if not problem:
        problem = next(filter(None, (mismatch(record, now[-1]) for record in (*good, *now))), "")
        problem = problem and f"not comparable, {problem}"
    return Comparison("error", f"Error: {problem}.") if problem else None


def _not_one_thing(now: Sequence[RunRecord]) -> str:
    """Return why the current runs are not repeats of one commit and config; empty if they are."""
    commits = {str(record.git["sha"])[:9] for record in now if record.git.get("sha")}
    if len(commits) > 1:
        found = ", ".join(sorted(commits))
        return f"the current runs are of several commits ({found}); name runs of one commit"
    for record in now[:-1]:
        for change in config_changes(record, now[-1]):
            if not change.cosmetic:
                return f"the configs of the current runs differ in {change.key}; name one run"
    return ""


def comparable(now: Sequence[RunRecord], before: Sequence[RunRecord]) -> bool:
    """Return whether all runs have one trainer, model family and machine type: otherwise everything
    differs, and no difference is a cause."""
    return not any(mismatch(record, now[-1]) for record in (*before, *now))


def _crashed(current: Sequence[RunRecord], good_baseline: Sequence[RunRecord]) -> str:
    """Return the first line if all current runs (at least two) crash and the baseline completes."""
    crashed = [record for record in current if record.status in CRASHED]
    if len(crashed) < 2 or len(crashed) < len(current) or not good_baseline:
        return ""
    reason = current[-1].reason or how_it_ended(current[-1])
    start, end = "Regression: ", f", in the {len(current)} current runs only."
    # The second line names the place, with the whole error.
    words = named_error(reason) or split_place(reason)[0]
    return f"{start}{cut_to_fit(words.rstrip('.'), LONGEST - len(start) - len(end))}{end}"
