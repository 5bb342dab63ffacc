"""Runs a guard, a probe on the baseline's completions, and says what it saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from canary.ladder.guard import Verdict, compare
from canary.ladder.launching import Launch
from canary.ladder.levels import Rounding, Settings
from canary.ladder.words import verdict_words


def guarded(
    launch: Launch,
    expected: Mapping[str, Any],
    trainer: str,
    say: Callable[[str], None],
    label: str,
    settings: Settings,
    rounding: Rounding,
) -> Verdict:
    """The verdict on `settings`, whose probe is held against `expected`, the baseline's `exact`."""
    say(f"{label}: guard in {rounding}")
    ran = launch.guard(label, settings)
    if ran.problem or ran.record is None:
        found = Verdict(rounding, 0, 0, problem=f"the guard did not run: {ran.problem}")
    else:
        found = compare(expected, ran.record.exact, trainer, rounding)
    say(f"{label}: guard {'holds' if found.holds else 'BROKEN'}: {verdict_words(found)}")
    return found
