"""What was found in a history, in words: the same in text, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Sequence

from canary.report.numbers import amount, signed
from canary.trends.model import ChangePoint, Series, StoredPoint

SHOWN_DIGITS = 9
MOST_FACTS = 3
"""Facts of the machine that a sentence names."""
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
LARGEST_PERCENT = 1000.0
"""A larger change is from nearly 0, and its percentage means nothing."""
HELD = ("confirmed", "accepted")
"""Standings of changes whose level may still hold."""
DERIVED = {"tokens_per_sec": "step_time_median"}
"""Metrics that follow from another one, so that the command for a change of both stands once."""


def point_words(point: StoredPoint) -> str:
    """Return the commit of a run, or the run."""
    return f"commit {point.commit[:SHOWN_DIGITS]}" if point.commit else f"run {point.run_id}"


def place_words(series: Series, change: ChangePoint) -> str:
    """Return the first commit of a new level; without one, the number of its first run."""
    point = series.points[change.place]
    return point.commit[:SHOWN_DIGITS] if point.commit else f"run {change.place + 1}"


def change_words(series: Series, change: ChangePoint) -> str:
    """Return where a series began a new level: `step time +6.1% [4.0, 8.2] since commit 1a2b3c4d5,
    where the driver changed (1 -> 2), confirmed by five runs`."""
    facts = [
        f"where the {fact.name} changed ({fact.before} -> {fact.now})" for fact in change.machine
    ]
    more = f" and {len(facts) - MOST_FACTS} more" if len(facts) > MOST_FACTS else ""
    parts = [
        f"{series.title} {_size(series, change)} {_since(series, change)}",
        f"{', '.join(facts[:MOST_FACTS])}{more}",
        _evidence(change),
    ]
    return ", ".join(filter(None, parts))


def _since(series: Series, change: ChangePoint) -> str:
    begin = series.points[change.place]
    if in_one_commit(series, change):
        run = f"run {change.place + 1}, within {point_words(begin)}"
        return f"since {run}: the code did not change"
    where = point_words(begin)
    return f"at {where}" if change.standing == "returned" else f"since {where}"


def in_one_commit(series: Series, change: ChangePoint) -> bool:
    """Whether runs of one commit lie on both sides of a change."""
    first, last = change.within
    old, new = series.points[max(0, first - 1)], series.points[last]
    return bool(old.commit) and old.commit == new.commit


def _size(series: Series, change: ChangePoint) -> str:
    """Return the change, such as `+6.1% [4.0, 8.2]`; from where to where if that says nothing."""
    before = [level for level in series.levels if level.last < change.place]
    after = [level for level in series.levels if level.first >= change.place]
    if abs(change.percent) < LARGEST_PERCENT or not before or not after:
        low, high = (signed(end).removesuffix("%").removeprefix("+") for end in change.interval)
        return f"{signed(change.percent)} [{low}, {high}]"
    ends = (amount(level.center, series.unit) for level in (before[-1], after[0]))
    return "went from {} to {}".format(*ends)


def _evidence(change: ChangePoint) -> str:
    if change.standing == "accepted":
        return "accepted by a person"
    if change.standing == "returned":
        return "and the level returned later"
    return f"confirmed by {spelled(change.runs_after, 'run')}"


def spelled(count: int, what: str) -> str:
    """Return `three runs`; numbers above ten as digits."""
    number = NUMBERS[count] if 0 <= count < len(NUMBERS) else str(count)
    return f"{number} {what}{'' if count == 1 else 's'}"


def sentence(text: str) -> str:
    """Return words as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def findings(series: Series) -> Sequence[str]:
    """Return every change that may still hold, the newest first."""
    held = (change for change in reversed(series.changes) if change.standing in HELD)
    return [change_words(series, change) for change in held]


def series_sentence(series: Series, machine_changes: int) -> str:
    """Return the newest value and what was found, with red runs, periods and machine changes."""
    values = [point.value for point in series.points if point.value is not None]
    newest = f"the newest of {len(values)} runs" if len(values) > 1 else "the only run"
    found = findings(series)
    periods = {point.period for point in series.points} - {None}
    red = sum(point.period is None for point in series.points)
    times = {1: "once", 2: "twice"}.get(machine_changes, f"{machine_changes} times")
    rest = (
        f"{spelled(red, 'run')} with a red verdict" if red else "",
        f"{spelled(len(periods), 'period')}" if len(periods) > 1 else "",
        f"the machine changed {times}" if machine_changes else "",
    )
    value = amount(values[-1], series.unit) if values else "-"
    none = ", and no change holds" if series.changes else ", and no change was found"
    if not series.levels:
        none = ", and too few runs to judge"
    texts = (
        f"{newest}: {value}{'' if found else none}",
        *found,
        "; ".join(filter(None, rest)),
    )
    return " ".join(sentence(text) for text in texts if text)
