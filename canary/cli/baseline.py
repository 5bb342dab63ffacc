"""The verbs for a history in a folder or on the baseline branch: `canary baseline`, `history`,
`save-baseline`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from canary.cli.options import (
    BRANCH,
    AcceptPeriod,
    Branch,
    Config,
    Form,
    NoProgress,
    Output,
    OutputDir,
    RemoteName,
    Set,
    Verbose,
    run_path,
)
from canary.cli.terminal import sayer, stoppable

if TYPE_CHECKING:
    from canary.baseline.branch import Remote
    from canary.baseline.origin import Surroundings

baseline_app = typer.Typer(
    help="Manage baseline runs in a folder or on the baseline branch. The token comes from "
    "CANARY_TOKEN or GITHUB_TOKEN.",
    no_args_is_help=True,
)

History = Annotated[
    Path | None, typer.Argument(help="Folder of the history; default: the baseline branch.")
]
Canary = Annotated[str | None, typer.Option("--canary", help="Only this canary.")]
Keep = Annotated[int, typer.Option("--keep", min=1, help="Newest runs to keep per canary.")]
KEEP = 50
KEEP_IN_FOLDER = 100


def _place(remote: str | None, branch: str) -> tuple[Remote, Surroundings]:
    from canary.baseline.origin import Surroundings, remote_of

    here = Surroundings.real()
    return remote_of(here, remote, branch), here


@contextlib.contextmanager
def history_at(folder: Path | None, remote: str | None, branch: str) -> Iterator[tuple[Path, str]]:
    """Yield a history's folder and its name; a branch is copied to a temporary folder."""
    from canary.baseline.verbs import pulled
    from canary.errors import UsageError

    if folder is not None and remote is not None:
        raise UsageError("a folder and --remote name two histories", "give only one of them")
    if folder is not None:
        yield folder, str(folder)
        return
    found, here = _place(remote, branch)
    with pulled(found, here) as (sha, history):
        yield history, f"{found}" if sha else f"{found} does not exist yet: it"


@baseline_app.command("history")
def baseline_history(
    folder: History = None,
    remote: RemoteName = None,
    branch: Branch = BRANCH,
    canary: Canary = None,
) -> None:
    """List every run: commit, verdict, step time, memory, period."""
    from canary.baseline.verbs import show_text
    from canary.report.lines import terminal_width, wrapped

    with history_at(folder, remote, branch) as (root, shown):
        typer.echo(wrapped(show_text(root, canary, shown), terminal_width(sys.stdout)))


@baseline_app.command("prune")
def baseline_prune(
    folder: History = None,
    remote: RemoteName = None,
    branch: Branch = BRANCH,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            min=1,
            help="Newest runs to keep per canary [50 on the branch, 100 in a folder].",
        ),
    ] = None,
) -> None:
    """Remove the oldest runs. The first three of the current period stay, to measure drift."""
    from canary.baseline.verbs import prune_branch_text, prune_text
    from canary.errors import UsageError

    if (folder is None) == (remote is None):
        raise UsageError("prune needs a folder or --remote", "give one of them")
    if folder is not None:
        text = prune_text(folder, keep or KEEP_IN_FOLDER)
    else:
        text = prune_branch_text(*_place(remote, branch), keep or KEEP)
    typer.echo(f"{text}; the first three of the current period stay too")


@baseline_app.command("push")
def baseline_push(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Run folders, names or metrics.json files.", parser=run_path
        ),
    ],
    remote: RemoteName = None,
    branch: Branch = BRANCH,
    keep: Keep = KEEP,
    accept: AcceptPeriod = None,
    verbose: Verbose = False,
) -> None:
    """Add completed runs to the baseline branch, in one commit."""
    from canary.baseline.verbs import push_runs
    from canary.record.folder import load_record

    records = [load_record(path) for path in runs]
    typer.echo(push_runs(*_place(remote, branch), records, keep=keep, accept=accept))


@baseline_app.command("pull")
def baseline_pull(
    folder: Annotated[Path, typer.Argument(help="New folder for the history.")],
    remote: RemoteName = None,
    branch: Branch = BRANCH,
    verbose: Verbose = False,
) -> None:
    """Copy the history of the baseline branch to a new folder."""
    from canary.baseline.verbs import pull_text

    typer.echo(pull_text(*_place(remote, branch), folder))


@baseline_app.command("bootstrap")
def baseline_bootstrap(
    config: Config = None,
    runs: Annotated[int, typer.Option("-n", "--runs", min=1, help="Number of runs.")] = 3,
    remote: RemoteName = None,
    branch: Branch = BRANCH,
    keep: Keep = KEEP,
    output_dir: OutputDir = None,
    set_: Set = None,
    quiet: NoProgress = False,
    verbose: Verbose = False,
) -> None:
    """Run the canary several times and push all runs to the branch."""
    from canary.campaign.calibrate import bootstrap
    from canary.config.load import load_config

    stoppable()
    place = _place(remote, branch)
    loaded = load_config(config, set_ or [])
    typer.echo(bootstrap(*place, loaded, sayer(quiet), runs=runs, keep=keep, output_dir=output_dir))


def history(
    folder: History = None,
    remote: RemoteName = None,
    branch: Branch = BRANCH,
    canary: Canary = None,
    form: Form = "text",
    output: Output = None,
    verbose: Verbose = False,
) -> None:
    """Say which metrics got worse, and since which commit."""
    from functools import partial

    from canary.baseline.ancestry import commits_between
    from canary.report.history_view import history_text
    from canary.report.lines import terminal_width
    from canary.report.render import printed
    from canary.trends.history import require_history, trends_in

    require_history()
    with history_at(folder, remote, branch) as (root, shown):
        found = trends_in(root, shown, canary)
    width = None if output else terminal_width(sys.stdout)
    text = history_text(found, form, width, shown, partial(commits_between, Path.cwd()))
    first = text.split("\n", 1)[0] if form == "text" else f"the trends of {shown}"
    printed(text, first, output)


def save_baseline(
    source: Annotated[
        Path,
        typer.Argument(metavar="SRC", help="A run's folder, name or record.", parser=run_path),
    ],
    destination: Annotated[
        Path, typer.Argument(metavar="DST", help="A .json file, or the folder of a history.")
    ],
    accept: AcceptPeriod = None,
) -> None:
    """Save a completed run as a baseline."""
    from canary.baseline.verbs import save_baseline

    typer.echo(save_baseline(source, destination, accept))
