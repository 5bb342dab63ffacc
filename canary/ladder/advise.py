"""`canary ladder --advise`: measure each switch alone in the user's config, recommend what pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from canary.config.schema import CanaryConfig
from canary.errors import RunFailed
from canary.ladder.guard import Guards, Verdict
from canary.ladder.results import Advice, Advised, Skipped
from canary.ladder.site import Site
from canary.ladder.switches import Choice, named, settings_of, settings_words
from canary.ladder.timing import Arm, busy_note, problem_of, ratio_of, time_rounds, waits_of

CONFIG = "your config"
TOGETHER = "all of these"


@dataclass
class Candidate:
    """One choice of a switch while it is examined."""

    choice: Choice
    guard: Verdict
    arm: Arm


def advice_at(site: Site) -> Advice:
    """Return the advice of a prepared site. Raises RunFailed if the config itself does not run."""
    unchanged = site.job.equal_lengths
    exact = {**unchanged, **in_float32(site.job.config)}
    guards = Guards(site, unchanged, exact, "the config itself")
    guards.begin("config")
    base = Arm(CONFIG, partial(site.timed, "config", unchanged))
    choices, skipped = choices_of(site)
    candidates = []
    for one, label in choices:
        guard = guards.of(label, [one]).verdicts[-1]
        start = partial(site.timed, label, {**unchanged, **one.settings})
        candidates.append(Candidate(one, guard, Arm(label, start)))
    timed = [base, *(one.arm for one in candidates if one.guard.holds)]
    time_rounds(timed, site.rounds, site.say)
    if base.failed:
        raise RunFailed(f"the config itself did not run: {base.failed}", "failed")
    advised = [(one.choice, _advised(one, base)) for one in candidates]
    # Switches without a gain come last.
    advised.sort(key=lambda pair: -(pair[1].gain.ratio if pair[1].gain else 0.0))
    best = _best_of(advised)
    chosen = settings_of(best)
    together = None
    if len(best) > 1:
        site.say(f"together: {settings_words(chosen)}")
        guard = guards.of(TOGETHER, best).verdicts[-1]
        again = Arm(CONFIG, partial(site.timed, "config, again", unchanged))
        arm = Arm(TOGETHER, partial(site.timed, "together", {**unchanged, **chosen}))
        time_rounds([again, arm], site.rounds, site.say)
        gain, problem = ratio_of(arm, again), problem_of(arm, again)
        together = Advised(TOGETHER, TOGETHER, chosen, gain, guard, problem)
    return Advice(
        **site.facts(),
        candidates=tuple(one for _, one in advised),
        skipped=tuple(skipped),
        settings=chosen,
        together=together,
        base=base.figures,
        notes=tuple(busy_note(waits_of(timed))),
    )


def in_float32(config: CanaryConfig) -> dict[str, Any]:
    """Return the settings that restore float32; SDPA replaces kernels for half precision."""
    if config.dtype == "float32":
        return {}
    kernel = config.attn_implementation
    exact = {} if kernel in (None, "eager", "sdpa") else {"attn_implementation": "sdpa"}
    return {"dtype": "float32", **exact}


def choices_of(site: Site) -> tuple[list[tuple[Choice, str]], list[Skipped]]:
    """Return every choice that would change the config, with its name; and the switches that change
    nothing."""
    job, found, skipped = site.job, [], []
    for switch in job.switches:
        reason = job.left_out(switch)
        choices = [] if reason else job.choices(switch, job.equal_lengths)
        already = [job.in_force(settings) for settings in choices]
        changes = [one for one, why in zip(choices, already, strict=True) if not why]
        if changes:
            found += named(switch, changes)
        else:
            why = reason or next(filter(None, already), "no setting fits this job")
            skipped.append(Skipped(switch.name, why))
    return found, skipped


def _advised(one: Candidate, base: Arm) -> Advised:
    what = one.choice.switch.name, one.arm.label, one.choice.settings
    if not one.guard.holds:
        failed = "does not hold" if one.guard.ran else "did not run"
        return Advised(*what, None, one.guard, f"not timed: its guard {failed}")
    return Advised(*what, ratio_of(one.arm, base), one.guard, problem_of(one.arm, base))


def _best_of(advised: Sequence[tuple[Choice, Advised]]) -> list[Choice]:
    """Return the fastest choice of each switch that pays, in order of gain; none sets a key that
    another sets."""
    best: list[Choice] = []
    for choice, one in advised:
        if one.worth_it and not settings_of(best).keys() & choice.settings.keys():
            best.append(choice)
    return best
