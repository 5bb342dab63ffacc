"""`canary ladder --advise`: measure each switch alone in the user's config, recommend what pays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from canary.config.schema import CanaryConfig
from canary.errors import RunFailed, UsageError
from canary.ladder.busy import busy_notes
from canary.ladder.climb import named
from canary.ladder.guard.runs import Guards
from canary.ladder.guard.verdict import Verdict
from canary.ladder.labels import settings_words
from canary.ladder.ladder import LadderRequest, Site, prepare, reporting_interrupts
from canary.ladder.launching import LaunchResult
from canary.ladder.levels import SWITCHES, Settings, Switch, equal_lengths, switches_for
from canary.ladder.results import Advice, Advised, Skipped
from canary.ladder.rounds import Arm, problem_of, ratio_of, time_rounds
from canary.ladder.suited import accepted_choices, in_force, left_out
from canary.runner.display.figures import headline
from canary.runner.warm import warm_starts

CONFIG = "your config"
TOGETHER = "all of these"
FEWEST_ROUNDS = 2
"""An interval needs two."""


@dataclass
class Candidate:
    """One choice of a switch while it is examined."""

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
    """Guard and time every switch that would change the config, then all that pay together.

    Raises:
        UsageError: the request or config is invalid.
        RunFailed: the config itself did not run.
        MachineError: a launch left no record.
    """
    if request.levels is not None:
        raise UsageError("--levels and --advise exclude each other", "--advise tries every switch")
    request.wanted()
    if request.rounds < FEWEST_ROUNDS:
        raise UsageError(
            f"--advise --rounds {request.rounds} cannot recommend anything: "
            f"a sure gain needs an interval, and an interval needs {FEWEST_ROUNDS} rounds",
            "--rounds 3",
        )
    site = prepare(request, say, "advise")
    with reporting_interrupts(site):
        return advice_at(site, request.rounds, say, known)


def advice_at(
    site: Site,
    rounds: int,
    say: Callable[[str], None],
    known: Sequence[Switch] = SWITCHES,
) -> Advice:
    """Return the advice of a prepared site.

    Raises:
        RunFailed: the config itself did not run.
    """
    config = site.config
    unchanged = equal_lengths(config)
    guards = AdviceGuards(site, unchanged, say)
    base = Arm(CONFIG, functools.partial(site.launch.timed, "config", unchanged))
    candidates, skipped = candidates_of(site, unchanged, known)
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
        names = [(one.switch, one.settings) for one in best]
        kept = [one for one in candidates if (one.switch.name, one.settings) in names]
        together = _together(site, unchanged, chosen, guards.of(kept, TOGETHER), rounds, say)
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
    """Guards switches in the user's config. A config in lower precision is also guarded in float32,
    because only there a small fault differs from rounding."""

    def __init__(self, site: Site, unchanged: Settings, say: Callable[[str], None]) -> None:
        """Raises RunFailed if the config does not run or its loss is not finite."""
        self._unchanged = unchanged
        self._lower_precision = site.config.dtype != "float32"
        self._exact = {**unchanged, **in_float32(site.config)}
        who = "the config itself"
        self._guards = Guards(site.launch, site.config, say, self._exact, who)
        self._guards.begin("config")

    def of(self, candidates: Sequence[Candidate], label: str) -> Verdict:
        """Guard candidates together. First come those that stay in float32, in float32. If that
        holds, all run as they are, if some leave float32 or several change a config in lower
        precision."""
        exact = [one for one in candidates if one.switch.rounding == "float32"]
        if exact:
            found = self._guards.verdict(label, _with(self._exact, exact), "float32")
            several = self._lower_precision and len(candidates) > 1
            if not found.holds or (len(exact) == len(candidates) and not several):
                return found
        return self._guards.verdict(label, _with(self._unchanged, candidates), "bfloat16")


def in_float32(config: CanaryConfig) -> dict[str, Any]:
    """Return the settings that restore float32; SDPA replaces kernels for half precision."""
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
    site: Site, unchanged: Settings, known: Sequence[Switch]
) -> tuple[list[Candidate], list[Skipped]]:
    """Return every choice that would change the config, and the switches that change nothing."""
    config = site.config
    found, skipped = [], []
    for switch in switches_for(config, known):
        reason = left_out(switch, config, site.machine)
        choices = [] if reason else accepted_choices(switch, config, site.machine, unchanged)
        already = [in_force(config, settings, site.machine) for settings in choices]
        changes = [one for one, why in zip(choices, already, strict=True) if not why]
        if not changes:
            why = reason or next(filter(None, already), "no setting fits this job")
            skipped.append(Skipped(switch.name, why))
        for settings, label in named(switch, changes):
            start: Callable[[], LaunchResult] = functools.partial(
                site.launch.timed, label, {**unchanged, **settings}
            )
            found.append(Candidate(switch, settings, Arm(label, start)))
    return found, skipped


def _advised(one: Candidate, base: Arm) -> Advised:
    found = Advised(one.switch.name, one.settings, guard=one.guard)
    if not one.arm.ran:
        failed = "did not run" if one.guard is not None and not one.guard.ran else "does not hold"
        return replace(found, problem=f"not timed: its guard {failed}")
    problem = problem_of(one.arm, base)
    return replace(found, gain=ratio_of(one.arm, base), problem=problem)


def ranked(advised: Sequence[Advised]) -> list[Advised]:
    """Sort by measured gain, largest first; switches without a gain come last."""
    return sorted(advised, key=lambda one: -(one.gain.ratio if one.gain else 0.0))


def best_choices(advised: Sequence[Advised]) -> list[Advised]:
    """Return the fastest choice of each switch that pays, in order of gain."""
    best: dict[str, Advised] = {}
    keys: set[str] = set()
    for one in advised:
        if one.worth_it and one.switch not in best and not keys & set(one.settings):
            best[one.switch] = one
            keys |= set(one.settings)
    return list(best.values())


def _together(
    site: Site,
    unchanged: Settings,
    chosen: Settings,
    guard: Verdict,
    rounds: int,
    say: Callable[[str], None],
) -> Advised:
    """Time all recommended settings together against the config itself."""
    settings = {**unchanged, **chosen}
    base = Arm(CONFIG, functools.partial(site.launch.timed, "config, again", unchanged))
    arm = Arm(TOGETHER, functools.partial(site.launch.timed, "together", settings))
    time_rounds([base, arm], rounds, say)
    return Advised(
        TOGETHER, chosen, gain=ratio_of(arm, base), guard=guard, problem=problem_of(arm, base)
    )
