"""Compares an invariant with the baseline's: broken in the same way is no regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

from canary.compare.invariants.parts import Invariant
from canary.compare.report import Check, CheckStatus

SAME_SIZE = 0.01
"""Two broken invariants whose sizes differ by at most this share count as equal."""
BOTH = "(the same on the baseline)"


def of_the_side(current: Sequence[Invariant], before: Invariant | None) -> Check:
    """Return the check of a side with at least one record: the first that fails, else the first
    that warns, else the last. `before` is the baseline's invariant."""
    judged = [(_status(found, before), found) for found in current]
    status, found = next(
        (one for wanted in ("fail", "warn") for one in judged if one[0] == wanted), judged[-1]
    )
    return _plain(found, status, _message(found, status, before))


def _status(found: Invariant, before: Invariant | None) -> CheckStatus:
    if found.status != "fail":
        return found.status
    if found.guessed:
        return "fail" if before is not None and before.status == "pass" else "skip"
    if before is not None and _same(found, before):
        return "warn"
    judged = before is not None and before.status in ("pass", "fail")
    return "warn" if found.doubt and not judged else "fail"


def _same(found: Invariant, before: Invariant) -> bool:
    """Whether the baseline breaks the same items, by as much and in the same direction."""
    if before.status != "fail":
        return False
    if found.items or before.items:
        return found.items <= before.items
    now, was = found.delta or 0.0, before.delta or 0.0
    if math.isnan(now) or math.isnan(was):
        return math.isnan(now) and math.isnan(was)
    return now * was >= 0 and abs(now) <= (1 + SAME_SIZE) * abs(was)


def _message(found: Invariant, status: CheckStatus, before: Invariant | None) -> str:
    if found.status != "fail":
        return found.message
    if status == "skip":
        return f"{found.message}; {found.doubt}"
    if before is not None and _same(found, before):
        return f"{found.message} {BOTH}"
    if status == "warn":
        return f"{found.message}; {found.doubt}"
    more = sorted(found.items - before.items) if before is not None else []
    if before is None or before.status != "fail" or not more:
        return found.message
    return f"{found.message}; not on the baseline: {', '.join(more[:3])}"


def _plain(found: Invariant, status: CheckStatus, message: str) -> Check:
    values = {field.name: getattr(found, field.name) for field in fields(Check)}
    return Check(**values | {"status": status, "message": message})
