"""`canary ladder --advise`: each switch alone on top of the user's own config, and which pay."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from canary.config.schema import CanaryConfig
from canary.errors import RunFailed, UsageError
from canary.ladder.busy import busy_notes
from canary.ladder.guard import Verdict
from canary.ladder.guarding import guarded
from canary.ladder.ladder import LadderRequest, Site, prepare, telling_where
from canary.ladder.launching import Launch, Ran
from canary.ladder.levels import (
    SWITCHES,
    Rounding,
    Settings,
    Switch,
    equal_lengths,
    switches_for,
)
from canary.ladder.results import Advice, Advised, Skipped
from canary.ladder.rounds import Arm, problem_of, ratio_of, time_rounds
from canary.ladder.suited import accepted_choices, in_force, left_out
from canary.ladder.trials import named
from canary.ladder.words import settings_words
from canary.runner.figures import headline

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


def run_advise(
    request: LadderRequest,
    say: Callable[[str], None],
    known: Sequence[Switch] = SWITCHES,
) -> Advice:
    """Measures and guards every switch that would change the config, then those that pay at once.

    Raises:
        UsageError: wrong request or config.
        RunFailed: the config itself does not run.
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
        RunFailed: the config itself does not run.
    """
    config = site.config
    own = equal_lengths(config)
    expected = _recorded(site.launch, own)
    base = Arm(OWN, functools.partial(site.launch.timed, "own", own))
    candidates, skipped = candidates_of(site, own, known)
    look = functools.partial(guarded, site.launch, expected, config.training_type, say)
    for one in candidates:
        rounding = _rounding(config, [one.switch])
        one.guard = look(one.arm.label, {**own, **one.settings}, rounding)
    safe = [one for one in candidates if one.guard is not None and one.guard.holds]
    time_rounds([base, *(one.arm for one in safe)], rounds, say)
    if base.failed:
        raise RunFailed(f"the config itself does not run: {base.failed}", "failed")
    advised = ranked([_advised(one, base) for one in candidates])
    best = best_choices(advised)
    chosen = {key: value for one in best for key, value in one.settings.items()}
    together = None
    if len(best) > 1:
        say(f"together: {settings_words(chosen)}")
        names = {one.switch for one in best}
        rounding = _rounding(config, [one.switch for one in candidates if one.switch.name in names])
        together = _together(site, own, chosen, rounding, look, rounds, say)
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


def _recorded(launch: Launch, own: Settings) -> Mapping[str, Any]:
    """The config's own first steps, whose completions the others train on."""
    ran = launch.guard("own", own, records=True)
    if ran.problem or ran.record is None:
        raise RunFailed(f"the config itself does not run: {ran.problem}", "failed")
    return ran.record.exact


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


def _rounding(config: CanaryConfig, switches: Sequence[Switch]) -> Rounding:
    """A config of lower precision than float32 rounds by itself."""
    leaves = config.dtype != "float32" or any(one.rounding != "float32" for one in switches)
    return "bfloat16" if leaves else "float32"


def _advised(one: Candidate, base: Arm) -> Advised:
    found = Advised(one.switch.name, one.settings, guard=one.guard)
    if not one.arm.ran:
        return replace(found, problem="its guard does not hold, so it was not timed")
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
    rounding: Rounding,
    look: Callable[[str, Settings, Rounding], Verdict],
    rounds: int,
    say: Callable[[str], None],
) -> Advised:
    """All that is advised at once, guarded and timed against the config itself."""
    settings = {**own, **chosen}
    guard = look(TOGETHER, settings, rounding)
    base = Arm(OWN, functools.partial(site.launch.timed, "own, again", own))
    arm = Arm(TOGETHER, functools.partial(site.launch.timed, "together", settings))
    time_rounds([base, arm], rounds, say)
    return Advised(
        TOGETHER, chosen, gain=ratio_of(arm, base), guard=guard, problem=problem_of(arm, base)
    )
