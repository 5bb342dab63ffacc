"""`canary ab`: compare two commits or two configs by alternating their runs on one machine."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from canary.campaign.environments import (
    config_in,
    existing_environment,
    folder_in,
    own_environment,
    own_python,
    refuse_foreign_code,
)
from canary.campaign.judging import Judge, Measured
from canary.campaign.pairs import PairProgress, Plan, Runs, RunSide, run_pairs
from canary.campaign.side import Side, at_once, claimed
from canary.campaign.worktrees import (
    add_worktree,
    checked_out,
    commit_of,
    repository_of,
    uncommitted,
    working_tree,
)
from canary.compare.report import Comparison
from canary.config.load import LoadedConfig, load_config
from canary.config.output import OUTPUT_DIR
from canary.config.samples import shipped
from canary.config.source import no_config
from canary.errors import ConfigError, UsageError, counted
from canary.runner.warm import warm_starts

AUTO = "auto"
ONLY_LOOK = "exact=true"
LEFT_OUT = 3
"""Names of files that are said to be left out."""


@dataclass(frozen=True)
class AbRequest:
    """The arguments of `canary ab`."""

    config: Path | None
    """Of both sides, or of the base alone if `head_config` is given."""
    base: str | None = None
    head: str | None = None
    head_config: Path | None = None
    pairs: str = AUTO
    budget_minutes: float | None = None
    setup: str | None = None
    trusts_folder: bool = False
    """Nobody but the user writes to the working directory. Then a noise model is looked for there,
    and a side whose commit lacks the config uses the user's file."""
    exact: bool = False
    """End each training after its look: compare the exact signals and do not measure speed."""
    output_dir: Path | None = None
    settings: tuple[str, ...] = ()
    accept: str | None = None
    prepared: Path | None = None
    """Folder where `prepare_sides` has already checked out and set up both commits."""

    def plan(self) -> Plan:
        """Return how many pairs to run, and within what time.

        Raises:
            UsageError: `pairs` or the budget is invalid, or another option contradicts them.
        """
        for key, _, value in (setting.partition("=") for setting in self.settings):
            if key.strip() == "repeats":
                hint = "--pairs N sets the number of runs; --exact runs only the looks"
                raise UsageError(f"--set repeats={value.strip()} has no effect in ab", hint)
        budget = None if self.budget_minutes is None else 60 * self.budget_minutes
        if budget is not None and budget <= 0:
            raise UsageError(f"--budget must be more than 0 minutes, got {self.budget_minutes:g}")
        if self.exact:
            if self.pairs != AUTO:
                raise UsageError("--exact runs one look per side, not pairs", "leave --pairs out")
            return Plan(1, budget)
        if self.pairs == AUTO:
            return Plan(None, budget)
        if not self.pairs.isdigit() or int(self.pairs) < 1:
            raise UsageError(f"--pairs must be auto or a whole number above 0, got {self.pairs!r}")
        return Plan(int(self.pairs), budget)


@warm_starts()
def run_ab(
    request: AbRequest,
    say: Callable[[str], None],
    decided: Callable[[], None] = lambda: None,
) -> tuple[Comparison, Path]:
    """Run both sides in alternation; return their comparison and the folder with all runs.
    `decided` is called once the verdict is known.

    Raises:
        UsageError: the request, a config or an input is invalid.
        MachineError: a commit cannot be checked out or set up, or a run leaves no record.
    """
    plan = request.plan()
    if request.accept is not None and not request.accept.strip():
        raise UsageError("--accept needs a reason", "it is shown with the verdict")
    folder = Path.cwd() if request.trusts_folder and not request.exact else None
    judge = Judge(Path.cwd(), Measured(say, folder=folder), request.accept)
    with _sides(request, say) as (sides, folder):
        progress = PairProgress(
            say,
            plan,
            only_looks=request.exact,
            decided=(lambda: None) if request.exact else decided,  # a look may follow
        )

        progress.started(sides["base"], sides["head"], folder)
        if request.exact:
            with at_once(sides, ["repeats=1", ONLY_LOOK]) as run_look:
                found, runs = run_pairs(plan, run_look, judge.pairs, progress, time.monotonic)
                found = with_setup_hint(found, request, runs)
                found = _exact_answer(found, runs, run_look, judge, say)
                decided()
                return found, folder
        found, runs = run_pairs(
            plan, lambda role: sides[role].run_with(), judge.pairs, progress, time.monotonic
        )
        decided()
    note = f"{counted(len(runs.head), 'pair')} in alternation, each run in a separate process"
    return _with_note(with_setup_hint(found, request, runs), note), folder


def with_setup_hint(found: Comparison, request: AbRequest, runs: Runs) -> Comparison:
    """Add a hint about the folder, or ignored and untracked files, if a run did not find a file."""
    missing = any(record.failure == "not found" for record in runs.failed)
    if request.base is None or found.verdict != "error" or not missing:
        return found
    note = (
        "each side is a fresh checkout without ignored or untracked files; make or link them in "
        "both, such as with: --setup 'ln -s /path/of/data data'"
    )
    if request.config and ".." in request.config.parts:
        above = shlex.quote(str(request.config.parent))
        note = f"the command ran in this folder; run it in that of the config: cd {above}"
    return replace(found, notes=(*found.notes, note))


def _exact_answer(
    found: Comparison, runs: Runs, launch: RunSide, judge: Judge, say: Callable[[str], None]
) -> Comparison:
    """If the looks differ, run that of the base again, to see what differs between equal runs."""
    if found.failed_checks and runs.head:
        say("The looks differ. Running the base again to see whether it repeats itself.")
        again = launch("base")
        if again.status == "completed":
            found = judge.pairs(runs.head, [*runs.base, again])
    return _with_note(found, "each training ended after its look: the speed was not measured")


def _with_note(found: Comparison, note: str) -> Comparison:
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
    if request.trusts_folder and request.head is None:
        here_now = working_tree(repository)
        if here_now.commit != commits["head"]:
            refs["head"] = f"working tree on {commits['head'][:9]}"
            commits["head"] = here_now.commit
        config = (here / (request.head_config or request.config or "")).resolve()
        if left := [one for one in here_now.left_out if repository / one != config]:
            first = ", ".join(left[:LEFT_OUT])
            say(
                f"note: not part of the comparison, because git does not hold it: {first}"
                + (f" and {len(left) - LEFT_OUT} more" if len(left) > LEFT_OUT else "")
            )
    elif commits["head"] == commit_of(repository, "HEAD") and (changed := uncommitted(repository)):
        files = "file in the working tree is" if changed == 1 else "files in the working tree are"
        say(f"note: {changed} uncommitted {files} not part of the comparison")
    if len(set(commits.values())) == 1 and request.head_config is None:
        noise = "" if request.exact else "; this measures the noise of the machine"
        say(f"note: both sides are the same commit{noise}")
    ready: contextlib.AbstractContextManager[dict[str, Path]]
    if request.prepared is None:
        ready = checked_out(repository, commits)
    else:
        ready = contextlib.nullcontext({role: request.prepared / role for role in commits})
    with ready as trees:
        sides = {}
        folder = _folder(request, here)
        for role, ref in refs.items():
            short = commits[role][:9]
            label = ref if " " in ref else short if ref in commits[role] else f"{ref} {short}"
            sides[role] = _commit_side(
                request, role, label, repository, trees[role], here, folder, say
            )
            _check_config(sides[role], request)
        claimed(folder)
        yield sides, folder


def _check_config(side: Side, request: AbRequest) -> None:
    """Raise ConfigError or UsageError if a side cannot run. The error names the side."""
    loaded = _loaded(side, request.settings)
    if not request.exact:
        return
    if loaded.config.imports:
        raise UsageError(
            f"--exact does not work with `import` in {side.role}: no look collects exact signals",
            "leave --exact out: pairs compare its curves and speed",
        )
    _loaded(side, (*request.settings, ONLY_LOOK))


def _loaded(side: Side, settings: Sequence[str]) -> LoadedConfig:
    try:
        return load_config(side.config, settings)
    except ConfigError as error:
        more = "give both sides a config: canary ab BASE.yaml HEAD.yaml"
        hint = f"{error.hint}; or {more}" if error.hint else more
        raise ConfigError(f"{side.role} ({side.label}): {error.message}", hint) from error


def prepare_sides(
    folder: Path,
    commits: Mapping[str, str],
    setup: str,
    into: Path,
    environ: Mapping[str, str],
    log: Path,
) -> None:
    """Check out both commits and run `setup` in each, for later runs that have no network.

    Args:
        folder: working directory in the repository.
        commits: base and head.
        setup: shell command.
        into: folder of the worktrees and environments; it is kept.
        environ: environment variables.
        log: folder for `setup-<role>.log`.

    Raises:
        UsageError: a commit does not exist.
        MachineError: a commit cannot be checked out or set up.
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
    say: Callable[[str], None],
) -> Side:
    given = (here / _config_of(request, role, here)).resolve()
    config, folder = config_in(tree, repository, given), folder_in(tree, repository, here)
    if config != given and not config.exists():
        name = config.relative_to(tree)
        if not request.trusts_folder:
            raise UsageError(
                f"{name} is not in {role} ({label})",
                "commit it there first, or keep the config outside the repository",
            )
        if not given.is_file():
            raise no_config(name)
        say(f"note: {name} is not in {role} ({label}), so it uses your file")
        config = given
    if request.prepared is None:
        log = output / f"setup-{role}.log"
        python, environment = own_python(
            role, tree, repository, folder, request.setup, os.environ, log
        )
    else:
        python, environment = existing_environment(role, request.prepared, os.environ)
        refuse_foreign_code(role, python, folder, environment, repository)
    return Side(
        *(role, label, config, folder, python, environment, output / role, request.settings),
        shows=True,
    )


def _two_configs(request: AbRequest, here: Path) -> tuple[dict[str, Side], Path]:
    """Return both sides of an A/B of configs; both run in the working directory."""
    if request.head is not None:
        raise UsageError("--head needs --base", "--base names the commit to compare with")
    configs = {role: _config_of(request, role, here) for role in ("base", "head")}
    if configs["base"] == configs["head"]:
        raise UsageError(
            "nothing to compare: both sides have the same config and commit",
            "name a commit with --base REF, or a second config",
        )
    if request.setup:
        raise UsageError("--setup needs --base", "without it both configs run in this environment")
    folder = _folder(request, here)
    sides = {
        role: Side(
            *(role, str(config), here / config if (here / config).exists() else config, here),
            *(Path(sys.executable), dict(os.environ), folder / role, request.settings),
            shows=True,
        )
        for role, config in configs.items()
    }
    for side in sides.values():
        _check_config(side, request)
    return sides, folder


def _config_of(request: AbRequest, role: str, here: Path) -> Path:
    config = (request.head_config if role == "head" else None) or request.config
    if config is None:
        raise UsageError(f"no config for {role}", "canary ab CONFIG --base REF")
    missing = not (here / config).exists() and shipped(config) is None
    if missing and (request.base is None or request.head_config is not None):
        raise no_config(config)
    return config


def _folder(request: AbRequest, here: Path) -> Path:
    """Return the folder for the runs of both sides."""
    base = request.output_dir or Path(OUTPUT_DIR)
    return (here / base / f"ab-{datetime.now(UTC):%Y%m%d-%H%M%S}").absolute()
