"""`canary ladder --advise`: each switch alone on top of the user's own config, and which pay."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from canary.config.schema import CanaryConfig
from canary.errors import RunFailed, UsageError
from canary.ladder.busy import busy_notes
from canary.ladder.guard.runs import Guards
from canary.ladder.guard.verdict import Verdict
from canary.ladder.labels import settings_words
from canary.ladder.ladder import LadderRequest, Site, prepare, telling_where
from canary.ladder.launching import Ran
from canary.ladder.levels import (
    SWITCHES,
    Settings,
    Switch,
    equal_lengths,
    switches_for,
)
from canary.ladder.results import Advice, Advised, Skipped
from canary.ladder.rounds import Arm, problem_of, ratio_of, time_rounds
from canary.ladder.suited import accepted_choices, in_force, left_out
from canary.ladder.trials import named
from canary.runner.display.figures import headline
from canary.runner.warm import warm_starts

OWN = "your config"
TOGETHER = "all of these"
FEWEST_ROUNDS = 2
"""That an interval takes."""


@dataclass
class Candidate:
    """One choice of a switch, as it is looked at."""

    switch: Switch
    settings: Settings
    arm: Arm
    guard: Verdict | None = None


@warm_starts()
def run_advise(
    request: LadderRequest,
    say: Callable[[str], None],
    known: Sequence[Switch] = SWITCHES,
) -> Advice:
    """Measures and guards every switch that would change the config, then those that pay at once.

    Raises:
        UsageError: wrong request or config.
        RunFailed: the config itself did not run.
        MachineError: a launch left no record.
    """
    if request.levels is not None:
        raise UsageError("--levels and --advise exclude each other", "--advise tries every switch")
    request.wanted()
    if request.rounds < FEWEST_ROUNDS:
        raise UsageError(
            f"--advise --rounds {request.rounds} can name nothing: a gain is named where its "
            f"interval lies above 1, and one takes {FEWEST_ROUNDS} rounds",
            "--rounds 3",
        )
    site = prepare(request, say, "advise")
    with telling_where(site):
        return advice_at(site, request.rounds, say, known)


def advice_at(
    site: Site,
    rounds: int,
    say: Callable[[str], None],
    known: Sequence[Switch] = SWITCHES,
) -> Advice:
    """The advice of a prepared site.

    Raises:
        RunFailed: the config itself did not run.
    """
    config = site.config
    own = equal_lengths(config)
    guards = AdviceGuards(site, own, say)
    base = Arm(OWN, functools.partial(site.launch.timed, "own", own))
    candidates, skipped = candidates_of(site, own, known)
    for one in candidates:
        one.guard = guards.of([one], one.arm.label)
    safe = [one for one in candidates if one.guard is not None and one.guard.holds]
    time_rounds([base, *(one.arm for one in safe)], rounds, say)
    if base.failed:
        raise RunFailed(f"the config itself did not run: {base.failed}", "failed")
    advised = ranked([_advised(one, base) for one in candidates])
    best = best_choices(advised)
    chosen = {key: value for one in best for key, value in one.settings.items()}
    together = None
    if len(best) > 1:
        say(f"together: {settings_words(chosen)}")
        named = [(one.switch, one.settings) for one in best]
        kept = [one for one in candidates if (one.switch.name, one.settings) in named]
        together = _together(site, own, chosen, guards.of(kept, TOGETHER), rounds, say)
    return Advice(
        name=config.name,
        headline=headline(config),
        training_type=config.training_type,
        machine=site.machine,
        created=site.created,
        rounds=rounds,
        candidates=tuple(advised),
        skipped=tuple(skipped),
        settings=chosen,
        together=together,
        base=base.figures,
        folder=site.folder,
        notes=tuple(busy_notes([base, *(one.arm for one in safe)])),
        launches=tuple(site.launch.launched),
    )


class AdviceGuards:
    """Guards of choices on top of the user's own config, with float32 put back where that leaves
    it: only so is a small fault told from rounding."""

    def __init__(self, site: Site, own: Settings, say: Callable[[str], None]) -> None:
        """Raises RunFailed where the config does not run, or is no measure."""
        self._own = own
        self._leaves = site.config.dtype != "float32"
        self._exact = {**own, **in_float32(site.config)}
        who = "the config itself"
        self._guards = Guards(site.launch, site.config, say, self._exact, who)
        self._guards.begin("own")

    def of(self, candidates: Sequence[Candidate], label: str) -> Verdict:
        """All of these at once: in float32 those that stay in it; where that holds and others are
        among them, or several are on at once in a config of less precision, as they are."""
        exact = [one for one in candidates if one.switch.rounding == "float32"]
        if exact:
            found = self._guards.verdict(label, _with(self._exact, exact), "float32")
            several = self._leaves and len(candidates) > 1
            if not found.holds or (len(exact) == len(candidates) and not several):
                return found
        return self._guards.verdict(label, _with(self._own, candidates), "bfloat16")


def in_float32(config: CanaryConfig) -> dict[str, Any]:
    """What puts float32 back; kernels that know half precision alone give way to SDPA."""
    if config.dtype == "float32":
        return {}
    kernel = config.attn_implementation
    exact = {} if kernel in (None, "eager", "sdpa") else {"attn_implementation": "sdpa"}
    return {"dtype": "float32", **exact}


def _with(base: Settings, candidates: Sequence[Candidate]) -> Settings:
    found = dict(base)
    for one in candidates:
        found |= one.settings
    return found


def candidates_of(
    site: Site, own: Settings, known: Sequence[Switch]
) -> tuple[list[Candidate], list[Skipped]]:
    """Every choice that would change what is in force; and what cannot be had, or is there."""
    config = site.config
    found, skipped = [], []
    for switch in switches_for(config, known):
        reason = left_out(switch, config, site.machine)
        choices = [] if reason else accepted_choices(switch, config, site.machine, own)
        there = [in_force(config, settings, site.machine) for settings in choices]
        changes = [one for one, why in zip(choices, there, strict=True) if not why]
        if not changes:
            why = reason or next(filter(None, there), "has no choice here")
            skipped.append(Skipped(switch.name, why))
        for settings, label in named(switch, changes):
            start: Callable[[], Ran] = functools.partial(
                site.launch.timed, label, {**own, **settings}
            )
            found.append(Candidate(switch, settings, Arm(label, start)))
    return found, skipped


def _advised(one: Candidate, base: Arm) -> Advised:
    found = Advised(one.switch.name, one.settings, guard=one.guard)
    if not one.arm.ran:
        held = one.guard is None or one.guard.ran
        reason = (
            "its guard does not hold, so it was not timed" if held else "not guarded, not timed"
        )
        return replace(found, problem=reason)
    problem = problem_of(one.arm, base)
    return replace(found, gain=ratio_of(one.arm, base), problem=problem)


def ranked(advised: Sequence[Advised]) -> list[Advised]:
    """By measured gain, the largest first; those without one last."""
    return sorted(advised, key=lambda one: -(one.gain.ratio if one.gain else 0.0))


def best_choices(advised: Sequence[Advised]) -> list[Advised]:
    """Of those that are worth it, the fastest choice of each switch; in order of gain."""
    best: dict[str, Advised] = {}
    keys: set[str] = set()
    for one in advised:
        if one.worth_it and one.switch not in best and not keys & set(one.settings):
            best[one.switch] = one
            keys |= set(one.settings)
    return list(best.values())


def _together(
    site: Site,
    own: Settings,
    chosen: Settings,
    guard: Verdict,
    rounds: int,
    say: Callable[[str], None],
) -> Advised:
    """All that is advised at once, timed against the config itself."""
    settings = {**own, **chosen}
    base = Arm(OWN, functools.partial(site.launch.timed, "own, again", own))
    arm = Arm(TOGETHER, functools.partial(site.launch.timed, "together", settings))
    time_rounds([base, arm], rounds, say)
    return Advised(
        TOGETHER, chosen, gain=ratio_of(arm, base), guard=guard, problem=problem_of(arm, base)
    )
