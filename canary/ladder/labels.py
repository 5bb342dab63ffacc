"""Settings and verdicts of the ladder in words."""

from __future__ import annotations

from typing import Any

from canary.ladder.guard.verdict import Verdict
from canary.ladder.levels import Settings
from canary.ladder.measure import SpeedUp
from canary.ladder.results import Ladder

_YAML = {True: "true", False: "false", None: "null"}


def value_words(value: Any) -> str:
    """A value as YAML has it."""
    return _YAML[value] if value is None or isinstance(value, bool) else str(value)


def settings_words(settings: Settings) -> str:
    """`key: value, key: value`."""
    return ", ".join(f"{key}: {value_words(value)}" for key, value in settings.items())


def rounds_words(rounds: int) -> str:
    """`1 round`, `3 rounds`."""
    return f"{rounds} round{'' if rounds == 1 else 's'}"


def speed_words(speed: SpeedUp | None) -> str:
    """A ratio with its interval."""
    if speed is None:
        return "-"
    if speed.low is None or speed.high is None:
        return f"{speed.ratio:.2f}x"
    return f"{speed.ratio:.2f}x [{speed.low:.2f}, {speed.high:.2f}]"


def verdict_words(verdict: Verdict) -> str:
    """What a guard saw, in a line, and what it did not."""
    unseen = "".join(f"; not seen: {what}" for what in verdict.unseen)
    return f"{_seen(verdict)}{unseen}"


def state_word(verdict: Verdict) -> str:
    """What a guard came to: `holds`, `BROKEN` or `not run`."""
    if not verdict.ran:
        return "not run"
    return "holds" if verdict.holds else "BROKEN"


def _seen(verdict: Verdict) -> str:
    if verdict.problem:
        return verdict.problem
    if verdict.first is not None:
        allowed = f"allowed {verdict.first.tolerance:.0e} in {verdict.rounding}"
        return f"{verdict.first.words}, {verdict.first.relative:.1e} apart, {allowed}"
    if verdict.worst is None:
        return "nothing to compare"
    seen = f"{verdict.signals} signals over {verdict.steps} steps"
    if verdict.worst.relative == 0:
        return f"{seen}, equal to the last bit"
    return (
        f"{seen}, {verdict.worst.signal} up to {verdict.worst.relative:.1e} apart, "
        f"{verdict.worst.tolerance:.0e} allowed"
    )


def answer(ladder: Ladder) -> str:
    """The highest safe level's speed-up, and what is not safe."""
    said = _said(ladder)
    unsafe = [one.level for one in ladder.levels if one.unsafe]
    if unsafe:
        is_ = "is" if len(unsafe) == 1 else "are"
        return f"UNSAFE: {', '.join(unsafe)} {is_} not what the baseline learns. {said}"
    unguarded = [one.level for one in ladder.levels if one.unguarded]
    if unguarded:
        return f"Not guarded: {', '.join(unguarded)}. {said}"
    without = [one.level for one in ladder.levels if one.problem]
    if without:
        return f"Without a ratio: {', '.join(without)}. {said}"
    return f"{said} {_guards(ladder)}".strip()


def _said(ladder: Ladder) -> str:
    top = ladder.top
    if top is None or top.cumulative is None:
        if any(one.cumulative and one.safe for one in ladder.levels):
            return "No level switches anything on here: all of them are the baseline."
        safe = " safe" if any(one.cumulative and not one.safe for one in ladder.levels) else ""
        return f"No{safe} level has a ratio over the baseline."
    found = top.cumulative
    said = f"{top.level.capitalize()} is {speed_words(found)} the baseline"
    if found.low is None:
        return f"{said} (one launch each, no interval)."
    if found.open:
        return f"{said}: no sure gain, the interval includes 1."
    return f"{said}."


def _guards(ladder: Ladder) -> str:
    """Over what the guards of all levels hold: the least of them."""
    guards = [one.guarded for one in ladder.levels if one.guarded is not None]
    seen = [one for guard in guards for one in (guard.exact, guard.wide) if one is not None]
    if not seen:
        return ""
    signals, steps = min(one.signals for one in seen), min(one.steps for one in seen)
    holds = "guard holds" if len(guards) == 1 else "guards hold"
    return f"The {holds} over {signals} signals and {steps} steps."
