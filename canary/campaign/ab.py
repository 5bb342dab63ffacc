"""`canary ab`: two commits, or two configs, in alternation on one machine."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from canary.campaign.environments import (
    existing_environment,
    own_code_first,
    own_environment,
    refuse_foreign_code,
)
from canary.campaign.noise_model import Measured
from canary.campaign.pairs import Judge, Plan, Role, Runs, RunSide, run_pairs
from canary.campaign.probes import at_once
from canary.campaign.progress import Teller, pairs_of
from canary.campaign.side import Side
from canary.campaign.worktrees import (
    add_worktree,
    checked_out,
    commit_of,
    repository_of,
    uncommitted,
)
from canary.compare.diagnosis.source_changes import source_between
from canary.compare.paths import Request, thresholds_for
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.timing.lane import FAMILY_BUDGET
from canary.config.load import load_config
from canary.config.samples import shipped
from canary.errors import UsageError
from canary.record.types import RunRecord
from canary.runner.child_environment import require_training_stack
from canary.runner.warm import warm_starts

AUTO = "auto"
PROBE_ALONE = "repeats=0"


@dataclass(frozen=True)
class AbRequest:
    """What `canary ab` was asked."""

    config: Path | None
    base: str | None = None
    head: str | None = None
    base_config: Path | None = None
    head_config: Path | None = None
    pairs: str = AUTO
    budget_minutes: float | None = None
    setup: str | None = None
    noise_file: Path | None = None
    """Of a noise model, or the folder of a history that holds one."""
    find_noise: bool = False
    """Whether to look for a noise model in the working directory if none is named: only where
    nobody but the user writes it."""
    exact: bool = False
    """Probes alone: what differs without noise, and nothing of the speed."""
    output_dir: Path | None = None
    tier: str | None = None
    threshold_file: Path | None = None
    settings: tuple[str, ...] = ()
    accept: str | None = None
    prepared: Path | None = None
    """Folder in which `prepare_sides` has checked out and set up both commits already."""

    def plan(self) -> Plan:
        """How many pairs.

        Raises:
            UsageError: neither `auto` nor a count, or settings that pairs leave no room for.
        """
        self._refuse_repeats()
        budget = None if self.budget_minutes is None else 60 * self.budget_minutes
        if budget is not None and budget <= 0:
            raise UsageError(f"--budget must be more than 0 minutes, got {self.budget_minutes:g}")
        if self.exact:
            if self.pairs != AUTO:
                raise UsageError("--exact runs one probe per side, not pairs", "leave --pairs out")
            return Plan(1, budget)
        if self.pairs == AUTO:
            return Plan(None, budget)
        if not self.pairs.isdigit() or int(self.pairs) < 1:
            raise UsageError(f"--pairs must be auto or a number from 1 on, got {self.pairs!r}")
        return Plan(int(self.pairs), budget)

    def _refuse_repeats(self) -> None:
        """UsageError where `--set` names the launches of a run: here they are the pairs."""
        for key, _, value in (setting.partition("=") for setting in self.settings):
            if key.strip() == "repeats":
                hint = "--exact runs the probes alone, --pairs N says how many runs"
                raise UsageError(f"--set repeats={value.strip()} has no effect in ab", hint)

    @property
    def all_settings(self) -> tuple[str, ...]:
        """`--set` values, with what `exact` adds."""
        return (*self.settings, PROBE_ALONE) if self.exact else self.settings


@warm_starts()
def run_ab(request: AbRequest, say: Callable[[str], None]) -> tuple[Comparison, Path]:
    """Runs both sides in alternation and compares them; returns the comparison and the folder
    that holds the runs of both.

    Raises:
        UsageError: wrong request, config or input.
        MachineError: a commit cannot be checked out or set up, or a run left no record.
    """
    require_training_stack()
    plan = request.plan()
    if request.accept is not None and not request.accept.strip():
        raise UsageError("--accept needs a reason", "it is shown with the verdict")
    folder = Path.cwd() if request.find_noise else None
    measured = Measured(say, request.noise_file, folder)
    asked = Request((), (), request.tier, request.threshold_file)
    if request.tier or request.threshold_file:
        thresholds_for(asked, ())  # A wrong threshold is told before anything runs.
    with _sides(request, say) as (sides, folder):

        def judge(head: list[RunRecord], base: list[RunRecord], budget: float) -> Comparison:
            """With the thresholds of the base's config, unless others were asked for."""
            thresholds, tier = thresholds_for(asked, (*base, *head))
            found = compare_to_baseline(
                head,
                base,
                thresholds,
                paired=len(head) == len(base),
                noise=None if request.exact else measured.of((*base, *head)[0]),
                budget=budget,
                accept=request.accept,
                source=source_between(Path.cwd(), base[-1], head[-1]) if base and head else None,
            )
            return replace(found, tier=tier)

        def launch(role: Role, *, probe: bool) -> RunRecord:
            return sides[role].run(probe=probe)

        teller = Teller(say, plan, probes_alone=request.exact)
        teller.begins(sides["base"], sides["head"], folder)
        if request.exact:
            with at_once(sides, [PROBE_ALONE]) as probe_of:
                found, runs = run_pairs(plan, probe_of, judge, teller, time.monotonic)
                return _exact(_hinted(found, request, runs), runs, probe_of, judge, say), folder
        found, runs = run_pairs(plan, launch, judge, teller, time.monotonic)
    return _told(_hinted(found, request, runs), runs), folder


def _hinted(found: Comparison, request: AbRequest, runs: Runs) -> Comparison:
    """What a checkout lacks, where a file was not found in it."""
    missing = any(record.failure == "not found" for record in runs.failed)
    if request.base is None or found.verdict != "error" or not missing:
        return found
    note = (
        "each side is a fresh checkout, without files that git ignores or does not track: "
        '--setup "COMMAND" makes them in both'
    )
    return replace(found, notes=(*found.notes, note))


def _exact(
    found: Comparison, runs: Runs, launch: RunSide, judge: Judge, say: Callable[[str], None]
) -> Comparison:
    """Where the probes differ, a second one of the base tells what differs between equal runs."""
    note = "probes alone: the speed was not measured"
    if found.failed_checks and runs.head:
        say("they differ: a second probe of the base shows what differs between equal runs")
        again = launch("base", probe=True)
        if again.status == "completed":
            found = judge(runs.head, [*runs.base, again], FAMILY_BUDGET)
    return replace(found, notes=(note, *found.notes))


def _told(found: Comparison, runs: Runs) -> Comparison:
    note = f"{pairs_of(len(runs.head))} in alternation, each run a process of its own"
    return replace(found, notes=(note, *found.notes))


@contextlib.contextmanager
def _sides(
    request: AbRequest, say: Callable[[str], None]
) -> Iterator[tuple[dict[str, Side], Path]]:
    here = Path.cwd().resolve()
    if request.base is None:
        yield _two_configs(request, here)
        return
    repository = repository_of(here)
    refs = {"base": request.base, "head": request.head or "HEAD"}
    commits = {role: commit_of(repository, ref) for role, ref in refs.items()}
    changed = uncommitted(repository)
    if changed and commits["head"] == commit_of(repository, "HEAD"):
        say(
            f"note: {changed} changed file{'s' if changed > 1 else ''} in the working tree "
            "not committed, not part of the comparison"
        )
    if len(set(commits.values())) == 1 and request.head_config is None:
        say("note: both sides are the same commit; this measures the noise of the machine")
    with _trees(request, repository, commits) as trees:
        sides = {}
        folder = _folder(request, _config_of(request, "base", here), here)
        for role, ref in refs.items():
            label = f"{ref} {commits[role][:9]}" if ref not in commits[role] else commits[role][:9]
            sides[role] = _commit_side(request, role, label, repository, trees[role], here, folder)
            load_config(sides[role].config, request.all_settings)
        yield sides, folder


def _trees(
    request: AbRequest, repository: Path, commits: Mapping[str, str]
) -> contextlib.AbstractContextManager[dict[str, Path]]:
    if request.prepared is None:
        return checked_out(repository, commits)
    return contextlib.nullcontext({role: request.prepared / role for role in commits})


def prepare_sides(
    folder: Path,
    commits: Mapping[str, str],
    setup: str,
    into: Path,
    environ: Mapping[str, str],
    log: Path,
) -> None:
    """Checks out both commits into a folder that stays, and runs `setup` in each, for runs that
    have no network any more.

    Args:
        folder: working directory in the repository.
        commits: base and head.
        setup: shell command.
        into: folder of the worktrees and environments.
        environ: environment variables.
        log: folder for `setup-<role>.log`.

    Raises:
        UsageError: a commit that is not there.
        MachineError: it cannot be checked out or set up.
    """
    repository = repository_of(folder)
    inside = folder.resolve().relative_to(repository)
    for role, ref in commits.items():
        tree = add_worktree(repository, into / role, commit_of(repository, ref))
        own_environment(role, into, tree / inside, setup, environ, log / f"setup-{role}.log")


def _commit_side(
    request: AbRequest,
    role: str,
    label: str,
    repository: Path,
    tree: Path,
    here: Path,
    output: Path,
) -> Side:
    given = (here / _config_of(request, role, here)).resolve()
    config = given
    if given.is_relative_to(repository):
        config = tree / given.relative_to(repository)
        if not config.exists():
            raise UsageError(
                f"{given.relative_to(repository)} is not in {role} ({label})",
                f"commit it there, or name a config outside the repository with --{role}-config",
            )
    folder = tree / here.relative_to(repository)
    folder = folder if folder.is_dir() else tree
    environment = dict(os.environ)
    python = Path(sys.executable)
    if request.prepared is not None:
        python, environment = existing_environment(role, request.prepared, environment)
    elif request.setup:
        log = output / f"setup-{role}.log"
        python, environment = own_environment(
            role, tree.parent, folder, request.setup, environment, log
        )
    else:
        environment = own_code_first(repository, tree, environment)
    refuse_foreign_code(role, python, folder, environment, repository)
    return Side(role, label, config, folder, python, environment, output / role, request.settings)


def _two_configs(request: AbRequest, here: Path) -> tuple[dict[str, Side], Path]:
    """Both sides in the working directory as it is."""
    if request.head is not None:
        raise UsageError("--head needs --base", "name the commit to compare it with")
    configs = {role: _config_of(request, role, here) for role in ("base", "head")}
    if configs["base"] == configs["head"]:
        raise UsageError(
            "nothing to compare: one config and one commit",
            "name a commit with --base REF, or a second config with --head-config",
        )
    if request.setup:
        raise UsageError("--setup needs --base", "two configs run in this environment as it is")
    folder = _folder(request, configs["base"], here)
    sides = {
        role: Side(
            role,
            str(config),
            here / config if (here / config).exists() else config,
            here,
            Path(sys.executable),
            dict(os.environ),
            folder / role,
            request.settings,
        )
        for role, config in configs.items()
    }
    for side in sides.values():
        load_config(side.config, request.all_settings)
    return sides, folder


def _config_of(request: AbRequest, role: str, here: Path) -> Path:
    own = request.base_config if role == "base" else request.head_config
    config = own or request.config
    if config is None:
        raise UsageError(f"no config for {role}", "canary ab CONFIG --base REF")
    missing = not (here / config).exists() and shipped(config) is None
    if missing and (request.base is None or own is not None):
        raise UsageError(f"no config at {config}", "write one with: canary init-config")
    return config


def _folder(request: AbRequest, config: Path, here: Path) -> Path:
    """The folder of both sides' runs."""
    base = request.output_dir
    if base is None:
        base = Path("canary_output")
    stamp = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    return (here / base / f"ab-{stamp}").absolute()
