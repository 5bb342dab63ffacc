"""`canary ladder`: time one job at every level of speed switches."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from canary.campaign.side import claimed
from canary.config.load import load_config
from canary.config.schema import TRAINING_TYPES, CanaryConfig
from canary.errors import RunFailed, UsageError
from canary.ladder.busy import busy_notes
from canary.ladder.climb import Climber
from canary.ladder.launching import LadderRuns, LaunchResult, RunProcesses
from canary.ladder.levels import (
    LEVELS,
    SWITCHES,
    Level,
    Settings,
    Switch,
    equal_lengths,
    switches_for,
)
from canary.ladder.machine import Machine, this_machine
from canary.ladder.measure import bottleneck_of, share_of_gain
from canary.ladder.results import Ladder, LevelFound, TrlFound, top_of
from canary.ladder.rounds import Arm, problem_of, ratio_of, time_rounds
from canary.ladder.suited import require_baseline, require_equal_work
from canary.runner.child_environment import require_training_stack
from canary.runner.display.figures import headline
from canary.runner.warm import warm_starts

ROUNDS = 3
TRL = "trl's defaults"


@dataclass(frozen=True)
class LadderRequest:
    """The arguments of `canary ladder`."""

    config: Path | None
    levels: str | None = None
    """Comma-separated names; None: all levels."""
    rounds: int = ROUNDS
    settings: tuple[str, ...] = ()
    output_dir: Path | None = None

    def wanted(self) -> tuple[Level, ...]:
        """Return the levels in order.

        Raises:
            UsageError: a level is unknown, or there are no rounds.
        """
        if self.rounds < 1:
            raise UsageError(f"--rounds must be 1 or more, got {self.rounds}")
        if self.levels is None:
            return LEVELS
        names = [name.strip() for name in self.levels.split(",") if name.strip()]
        for name in names:
            if name not in LEVELS:
                raise UsageError(f"unknown level {name!r}", f"choose from {', '.join(LEVELS)}")
        if not set(names) - {"baseline"}:
            raise UsageError("--levels names no level above the baseline", "--levels basic")
        return tuple(level for level in LEVELS if level in {"baseline", *names})


@dataclass(frozen=True)
class Site:
    """One config on one machine, and the folder of its launches."""

    config: CanaryConfig
    machine: Machine
    folder: Path
    launch: LadderRuns
    created: str


def prepare(
    request: LadderRequest,
    say: Callable[[str], None],
    kind: str,
    known: Sequence[Switch] = SWITCHES,
) -> Site:
    """Load the config, inspect the machine, and make the folder of the launches.

    Raises:
        UsageError: the config cannot be used, or the ladder cannot change its speed.
        MachineError: the folder cannot be made.
    """
    require_training_stack()
    config = load_config(request.config, request.settings).config
    if config.training_type not in TRAINING_TYPES:
        raise UsageError(
            f"training_type {config.training_type} has no levels: its speed is up to its code",
            f"use a config of {', '.join(TRAINING_TYPES)}",
        )
    now = datetime.now(UTC)
    base = request.output_dir or Path(config.output_dir)
    folder = (base / f"{kind}-{now:%Y%m%d-%H%M%S}").absolute()
    machine = this_machine(config)
    require_equal_work(config)
    if kind == "ladder":
        require_baseline(config, switches_for(config, known), machine)
    claimed(folder)
    launch = RunProcesses(request.config, request.settings, config, folder, os.environ, say)
    say(f"{headline(config)}; {machine.words}")
    say(f"records: {folder}")
    return Site(config, machine, folder, launch, now.isoformat(timespec="seconds"))


@warm_starts()
def run_ladder(
    request: LadderRequest,
    say: Callable[[str], None],
    known: Sequence[Switch] = SWITCHES,
) -> Ladder:
    """Build the levels of a config and time each level in rounds.

    Raises:
        UsageError: the request or config is invalid.
        RunFailed: the baseline does not run.
        MachineError: a launch left no record.
    """
    wanted = request.wanted()
    site = prepare(request, say, "ladder", known)
    with reporting_interrupts(site):
        return ladder_at(site, wanted, request.rounds, say, known)


@contextmanager
def reporting_interrupts(site: Site) -> Iterator[None]:
    """Turn Ctrl-C into a RunFailed that names the folder of the launches that have ended."""
    try:
        yield
    except KeyboardInterrupt as stop:
        kept = f"records so far: {site.folder}" if any(site.folder.iterdir()) else "no records yet"
        raise RunFailed(f"interrupted, no report; {kept}", "interrupted") from stop


def ladder_at(
    site: Site,
    wanted: Sequence[Level],
    rounds: int,
    say: Callable[[str], None],
    known: Sequence[Switch] = SWITCHES,
) -> Ladder:
    """Climb the ladder of a prepared site.

    Raises:
        RunFailed: the baseline does not run.
    """
    config = site.config
    levels = Climber(config, site.machine, site.launch, say, known).climb(wanted)
    arms = [Arm(one.level, functools.partial(_timed, site, one)) for one in levels]
    trl = Arm(TRL, functools.partial(_trl, site.launch, equal_lengths(config)))
    missing = no_trl(config, site.machine)
    if missing:
        say(f"{TRL}: skipped: {missing}")
    time_rounds(arms if missing else [*arms, trl], rounds, say)
    if arms[0].failed:
        raise RunFailed(f"the baseline level did not run: {arms[0].failed}", "failed")
    found = measured(levels, arms)
    return Ladder(
        name=config.name,
        headline=headline(config),
        training_type=config.training_type,
        machine=site.machine,
        created=site.created,
        rounds=rounds,
        levels=found,
        trl=TrlFound(problem=missing, skipped=True) if missing else trl_found(trl, arms[0], found),
        folder=site.folder,
        notes=(*busy_notes([*arms, trl], found), *notes_of([*arms, trl])),
        launches=tuple(site.launch.launched),
    )


def no_trl(config: CanaryConfig, machine: Machine) -> str:
    """Return why the version of the installed trl cannot do the job; empty if it can."""
    version = (machine.packages or {}).get("trl") or ""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    row = config.trainer
    if row.gone_from_trl is None or numbers is None:
        return ""
    gone = tuple(map(int, numbers.groups())) >= row.gone_from_trl
    return f"trl {version} has no {row.title}" if gone else ""


def _timed(site: Site, level: LevelFound) -> LaunchResult:
    return site.launch.timed(level.level, level.settings)


def _trl(launch: LadderRuns, settings: Settings) -> LaunchResult:
    return launch.timed("trl", settings, trl_defaults=True)


def measured(levels: Sequence[LevelFound], arms: Sequence[Arm]) -> tuple[LevelFound, ...]:
    """Add the results of the launches to the levels. Each level steps up from the last safe level
    below it that has a ratio."""
    found: list[LevelFound] = []
    below = arms[0]
    for level, arm in zip(levels, arms, strict=True):
        problem = problem_of(arm, arms[0])
        records = arm.records
        level = replace(
            level,
            speeds=tuple(arm.speeds),
            figures=arm.figures,
            bottleneck=bottleneck_of(records) if records else "",
            problem=problem,
        )
        if arm is not arms[0]:
            level = replace(level, step_over=below.label)
        if arm is not arms[0] and not problem:
            level = replace(level, cumulative=ratio_of(arm, arms[0]), step_up=ratio_of(arm, below))
            below = arm if level.safe else below
        found.append(level)
    return tuple(found)


def trl_found(trl: Arm, baseline: Arm, levels: Sequence[LevelFound]) -> TrlFound:
    """Compare trl's defaults with the baseline, and compute their share of the top level's gain."""
    problem = problem_of(trl, baseline)
    if problem:
        return TrlFound(trl.figures, problem=problem)
    ratio = ratio_of(trl, baseline)
    assert ratio is not None
    level = top_of(levels)
    top = None if level is None else level.cumulative
    if top is None:
        return TrlFound(trl.figures, ratio)
    if ratio.open or top.open:
        open_one = "trl's ratio" if ratio.open else "the top level's ratio"
        return TrlFound(trl.figures, ratio, undecided=f"the interval of {open_one} includes 1")
    share = share_of_gain(ratio.ratio, top.ratio)
    return TrlFound(trl.figures, ratio, None if share is None else max(0.0, share))


def notes_of(arms: Sequence[Arm]) -> tuple[str, ...]:
    """Return the notes of the launches' records, without duplicates."""
    records = [(arm.label, one.record) for arm in arms for one in arm.ran if one.record is not None]
    return tuple(
        dict.fromkeys(f"{label}: {note}" for label, record in records for note in record.notes)
    )
