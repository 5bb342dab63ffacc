"""`canary ladder`: time one job at every level of speed switches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from canary.campaign.side import claimed
from canary.config.load import load_config
from canary.config.schema import TRAINING_TYPES
from canary.errors import RunFailed, UsageError
from canary.ladder.climb import Climber
from canary.ladder.report import leave_unfinished
from canary.ladder.results import Ladder, LevelFound
from canary.ladder.site import Site
from canary.ladder.switches import LEVELS, SWITCHES, Job, Level, Switch, this_machine
from canary.ladder.timing import Arm, bottleneck_of, problem_of, ratio_of, time_rounds
from canary.runner.child_environment import require_training_stack
from canary.runner.display.figures import headline
from canary.runner.warm import warm_starts


@dataclass(frozen=True)
class LadderRequest:
    """The arguments of `canary ladder`."""

    config: Path | None
    levels: str | None = None
    """Comma-separated names; None: all levels."""
    rounds: int = 3
    settings: tuple[str, ...] = ()
    output_dir: Path | None = None

    def wanted(self) -> tuple[Level, ...]:
        """Return the levels in order.

        Raises:
            UsageError: a level is unknown, or there are too few rounds.
        """
        if self.rounds < 1:
            raise UsageError(f"--rounds must be 1 or more, got {self.rounds}")
        names = [name.strip() for name in (self.levels or "").split(",") if name.strip()]
        for name in names:
            if name not in LEVELS:
                raise UsageError(f"unknown level {name!r}", f"choose from {', '.join(LEVELS)}")
        if self.levels is not None and not set(names) - {"baseline"}:
            raise UsageError("--levels names no level above the baseline", "--levels basic")
        return tuple(one for one in LEVELS if one in {"baseline", *(names or LEVELS)})


@warm_starts()
def run(
    request: LadderRequest,
    say: Callable[[str], None],
    known: Sequence[Switch] = SWITCHES,
) -> Ladder:
    """Time each level of a config in rounds.

    Raises:
        UsageError: the request or config is invalid, or the ladder cannot change its speed.
        RunFailed: the baseline does not run; or Ctrl-C.
        MachineError: the folder cannot be made.
    """
    wanted = request.wanted()
    site = _prepared(request, say, known)
    try:
        return ladder_at(site, wanted, leave_unfinished)
    except KeyboardInterrupt as stop:
        some = f"records so far: {site.folder}"
        kept = some if any(site.folder.iterdir()) else "no records yet"
        raise RunFailed(f"interrupted, no report; {kept}", "interrupted") from stop


def _prepared(request: LadderRequest, say: Callable[[str], None], known: Sequence[Switch]) -> Site:
    """Load the config, inspect the machine, and make the folder of the launches."""
    require_training_stack()
    config = load_config(request.config, request.settings).config
    if config.training_type not in TRAINING_TYPES:
        raise UsageError(
            f"training_type {config.training_type} has no levels: its speed is that of its code",
            f"use a config of {', '.join(TRAINING_TYPES)}",
        )
    job = Job(config, this_machine(config), known)
    if refused := job.refusal(job.equal_lengths):
        raise UsageError(
            f"levels are timed on completions of equal length, but {refused}",
            "remove it from trainer_args",
        )
    if refused := job.refusal(job.baseline):
        raise UsageError(f"this config has no baseline level: {refused}")
    now = datetime.now(UTC)
    base = (request.output_dir or Path(config.output_dir)).absolute()
    claimed(folder := base / f"ladder-{now:%Y%m%d-%H%M%S}")
    say(f"{headline(config)}; {job.machine.words}")
    say(f"records: {folder}")
    created = now.isoformat(timespec="seconds")
    return Site(job, folder, say, request.rounds, created, request.config, request.settings)


def ladder_at(
    site: Site, wanted: Sequence[Level], seen: Callable[[Ladder, int], None] = lambda *_: None
) -> Ladder:
    """Climb the ladder of a prepared site. Raises RunFailed if the baseline does not run.

    `seen`: is told after each round but the last what is known, and how many rounds there will be.
    """
    levels = Climber(site).climb(wanted)
    arms = [Arm(one.level, partial(site.timed, one.level, one.settings)) for one in levels]

    def ended(rounds: int) -> None:
        if rounds < site.rounds and not arms[0].failed:
            seen(replace(_result(site, levels, arms), rounds=rounds), site.rounds)

    time_rounds(arms, site.rounds, site.say, ended)
    if arms[0].failed:
        raise RunFailed(f"the baseline level did not run: {arms[0].failed}", "failed")
    return _result(site, levels, arms)


def _result(site: Site, levels: Sequence[LevelFound], arms: Sequence[Arm]) -> Ladder:
    ended = ((arm.label, one.record) for arm in arms for one in arm.ran if one.record)
    said = dict.fromkeys(f"{label}: {note}" for label, record in ended for note in record.notes)
    config = site.job.config
    return Ladder(
        name=config.name,
        headline=headline(config),
        training_type=config.training_type,
        machine=site.job.machine,
        created=site.created,
        rounds=site.rounds,
        folder=site.folder,
        levels=_measured(levels, arms),
        notes=tuple(said),
    )


def _measured(levels: Sequence[LevelFound], arms: Sequence[Arm]) -> tuple[LevelFound, ...]:
    """Add the results of the launches to the levels. Each level steps up from the last safe level
    below it that has a ratio."""
    found: list[LevelFound] = []
    baseline = below = arms[0]
    for level, arm in zip(levels, arms, strict=True):
        problem, first = problem_of(arm, baseline), arm is baseline
        found.append(
            replace(
                level,
                speeds=tuple(arm.speeds),
                figures=arm.figures,
                bottleneck=bottleneck_of(arm.records) if arm.records else "",
                problem=problem,
                cumulative=None if first else ratio_of(arm, baseline),
                step_up=None if first or problem else ratio_of(arm, below),
                step_over="" if first else below.label,
            )
        )
        if level.safe and not problem:
            below = arm
    return tuple(found)
