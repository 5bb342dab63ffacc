"""Rules as checks of a comparison: broken now, and not on the baseline, is worse for sure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from canary.compare.checks import check_of
from canary.compare.exact.lane import newest_looked
from canary.compare.report import Check, CheckStatus, Records
from canary.compare.rules import DISABLED, RULES, disabled
from canary.compare.rules.rule import Answer, Rule, not_asked

SAME_SIZE = 0.01
"""Two answers whose sizes differ by at most this share find the same."""
BOTH = "(the same on the baseline)"
NO_BASELINE = not_asked("there is no baseline")


def rule_checks(current: Records, baseline: Records = ()) -> Iterator[Check]:
    """Yield the check of every rule that was asked of a side, over all current records that have a
    look."""
    looked = [record for record in current if record.exact]
    if not looked:
        return
    before = newest_looked(baseline) if baseline else None
    # Those that both sides disable: a change cannot switch off what judges it.
    off = frozenset.intersection(*map(disabled, looked if before is None else [*looked, before]))
    for rule in RULES:
        asks = rule.judge if rule.id not in off else lambda record: DISABLED
        known = asks(before) if before is not None and before.exact else NO_BASELINE
        now = [_against(asks(record), known) for record in looked]
        if any(found.status != "not asked" for found in (*now, known)):
            yield _check(rule, now, known)


def _against(found: Answer, before: Answer) -> Answer:
    """Return the answer of a comparison: what the baseline held may be lost."""
    if not found.lost or before.status != "holds":
        return found
    return replace(found, status="broken", words=found.lost, size=1.0)


def _check(rule: Rule, current: Sequence[Answer], before: Answer) -> Check:
    """Return the check of a side with at least one record: the first that fails, else the first
    that warns, else the last."""
    judged = [(_status(found, before), found) for found in current]
    status, found = next(
        (one for wanted in ("fail", "warn") for one in judged if one[0] == wanted), judged[-1]
    )
    return check_of(
        rule.id,
        status,
        _message(found, before),
        current=found.value,
        delta=None if found.status == "not asked" else found.size,
        unjudged="inapplicable" if found.inapplicable else None,
    )


def _status(found: Answer, before: Answer) -> CheckStatus:
    if not found.is_against:
        return "pass" if found.status == "holds" else "skip"
    unjudged = found.status == "note" and before.status == "not asked"
    return "warn" if unjudged or _same(found, before) else "fail"


def _same(found: Answer, before: Answer) -> bool:
    """Whether the baseline breaks the same items, by as much and in the same direction."""
    if not before.is_against:
        return False
    if found.items or before.items:
        return found.items <= before.items
    now, was = found.size, before.size
    if math.isnan(now) or math.isnan(was):
        return math.isnan(now) and math.isnan(was)
    return now * was >= 0 and abs(now) <= (1 + SAME_SIZE) * abs(was)


def _message(found: Answer, before: Answer) -> str:
    if not found.is_against:
        return found.words
    if _same(found, before):
        return f"{found.words} {BOTH}"
    if found.doubt and before.status == "not asked":
        return f"{found.words}; {found.doubt}"
    more = sorted(found.items - before.items) if before.is_against else []
    new = f"; not on the baseline: {', '.join(more[:3])}" if more else ""
    return f"{found.words}{new}"
