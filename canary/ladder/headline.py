"""The first line of a ladder's report: how fast the highest level is that may be used, and no more
than was measured. Pure."""

from __future__ import annotations

from canary.ladder.labels import speed_words
from canary.ladder.results import Ladder


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
