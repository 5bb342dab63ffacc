"""Settings, speed-ups and verdicts of the ladder in words."""

from __future__ import annotations

from typing import Any

from canary.ladder.guard.verdict import Verdict
from canary.ladder.levels import Settings
from canary.ladder.measure import SpeedUp
from canary.ladder.results import Ladder

_YAML = {True: "true", False: "false", None: "null"}


def value_words(value: Any) -> str:
    """Return a value as YAML writes it."""
    return _YAML[value] if value is None or isinstance(value, bool) else str(value)


def settings_words(settings: Settings) -> str:
    """`key: value, key: value`."""
    return ", ".join(f"{key}: {value_words(value)}" for key, value in settings.items())


def rounds_words(rounds: int) -> str:
    """`1 round`, `3 rounds`."""
    return f"{rounds} round{'' if rounds == 1 else 's'}"


def speed_words(speed: SpeedUp | None) -> str:
    """Return a ratio with its interval."""
    if speed is None:
        return "-"
    if speed.low is None or speed.high is None:
        return f"{speed.ratio:.2f}x"
    return f"{speed.ratio:.2f}x [{speed.low:.2f}, {speed.high:.2f}]"


def verdict_words(verdict: Verdict) -> str:
    """Return one line: what a guard compared, and what it could not check."""
    unchecked = "".join(f"; not checked: {what}" for what in verdict.unseen)
    return f"{_compared(verdict)}{unchecked}"


def state_word(verdict: Verdict) -> str:
    """Return `holds`, `UNSAFE` or `not run`."""
    if not verdict.ran:
        return "not run"
    return "holds" if verdict.holds else "UNSAFE"


def _compared(verdict: Verdict) -> str:
    if verdict.problem:
        return verdict.problem
    if first := verdict.first:
        tolerance = f"tolerance {first.tolerance:.0e} in {verdict.rounding}"
        return f"{first.words} (difference {first.relative:.1e}, {tolerance})"
    if verdict.worst is None:
        return "nothing to compare"
    signals = f"{verdict.signals} signals over {verdict.steps} steps"
    if verdict.worst.relative == 0:
        return f"{signals} are equal bit for bit"
    sizes = f"difference {verdict.worst.relative:.1e}, tolerance {verdict.worst.tolerance:.0e}"
    return f"{signals}; closest to its tolerance: {verdict.worst.signal} ({sizes})"


def answer(ladder: Ladder) -> str:
    """Return the headline: what is unsafe, and the speed-up of the highest safe level."""
    gain = _gain(ladder)
    unsafe = [one.level for one in ladder.levels if one.unsafe]
    if unsafe:
        learn = "does not learn" if len(unsafe) == 1 else "do not learn"
        return f"UNSAFE: {', '.join(unsafe)} {learn} the same as the baseline. {gain}"
    unguarded = [one.level for one in ladder.levels if one.unguarded]
    if unguarded:
        return f"Not guarded: {', '.join(unguarded)}. {gain}"
    unmeasured = [one.level for one in ladder.levels if one.problem]
    if unmeasured:
        return f"No speed-up measured: {', '.join(unmeasured)}. {gain}"
    return f"{gain} {_guards(ladder)}".strip()


def _gain(ladder: Ladder) -> str:
    top = ladder.top
    if top is None or top.cumulative is None:
        if any(one.cumulative and one.safe for one in ladder.levels):
            return "No level switches anything on here: all levels equal the baseline."
        safe = " safe" if any(one.cumulative and not one.safe for one in ladder.levels) else ""
        return f"No{safe} level has a measured speed-up."
    speed = top.cumulative
    gain = f"{top.level.capitalize()} runs {speed_words(speed)} as fast as the baseline"
    if speed.low is None:
        return f"{gain} (one launch each, no interval)."
    if speed.open:
        return f"{gain}: no sure gain, the interval includes 1."
    return f"{gain}."


def _guards(ladder: Ladder) -> str:
    """Return how many signals and steps every guard compared at least."""
    guards = [one.guarded for one in ladder.levels if one.guarded is not None]
    verdicts = [one for guard in guards for one in (guard.exact, guard.wide) if one is not None]
    if not verdicts:
        return ""
    signals, steps = min(one.signals for one in verdicts), min(one.steps for one in verdicts)
    holds = "guard holds" if len(guards) == 1 else "guards hold"
    return f"The {holds} over {signals} signals and {steps} steps."
