"""The verbs of the action: `canary gate run|setup|report|pending|prefetch`; `canary publish`."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from canary.cli.options import Verbose
from canary.cli.terminal import Uncommanding, stoppable
from canary.errors import CanaryError

if TYPE_CHECKING:
    from canary.gate.context import World
    from canary.gate.inputs import ReportSettings
    from canary.github.workflow import Job

gate_app = typer.Typer(
    help="The jobs of the action; their inputs are environment variables.", no_args_is_help=True
)


def _say(line: str) -> None:
    """The log of a job; what comes from a record cannot become a command of the workflow."""
    _job().line(line)


def _job() -> Job:
    from canary.github.workflow import Job

    def file(name: str) -> Path | None:
        return Path(os.environ[name]) if os.environ.get(name) else None

    stream = sys.stderr
    own = stream.to if isinstance(stream, Uncommanding) else stream
    return Job(own, file("GITHUB_OUTPUT"), file("GITHUB_STEP_SUMMARY"))


@contextlib.contextmanager
def _annotated() -> Iterator[None]:
    """An error that ends the job is on the job's page too, not only in its log."""
    try:
        yield
    except CanaryError as error:
        _job().say("error", str(error))
        raise


def _world(settings: ReportSettings) -> World:
    """The real clients."""
    from canary.baseline.branch import Remote
    from canary.gate.context import World
    from canary.github.client import connect

    hub = connect(settings.token, settings.api_url)
    remote = Remote(settings.remote_url, settings.baseline_branch, settings.token)
    return World(hub, remote, _job(), lambda: datetime.now(UTC))


@gate_app.command("setup")
def gate_setup(verbose: Verbose = False) -> None:
    """Run the repository's own setup, with network, before the canary."""
    from canary.gate.inputs import TrainSettings
    from canary.gate.run_job import told
    from canary.gate.workspace import set_up

    stoppable()
    with told(os.environ):
        settings = TrainSettings.read(os.environ)
    raise typer.Exit(set_up(settings, os.environ, _say))


@gate_app.command("run")
def gate_run(verbose: Verbose = False) -> None:
    """Train every config and leave the records folder."""
    from canary.gate.inputs import TrainSettings
    from canary.gate.run_job import told, train

    stoppable()
    with told(os.environ):
        settings = TrainSettings.read(os.environ)
    raise typer.Exit(train(settings, os.environ, _say))


@gate_app.command("all")
def gate_all(verbose: Verbose = False) -> None:
    """Pending status, training and report in one process, where all authors are trusted."""
    from canary.gate.inputs import ReportSettings, TrainSettings
    from canary.gate.single_job import whole

    stoppable()
    with _annotated():
        settings = ReportSettings.read(os.environ)
        read = functools.partial(TrainSettings.read, os.environ)
        code = whole(read, settings, _world(settings), os.environ, _say)
    raise typer.Exit(code)


@gate_app.command("pending")
def gate_pending(verbose: Verbose = False) -> None:
    """Set the pending status."""
    from canary.gate.inputs import ReportSettings
    from canary.gate.report_job import pending

    stoppable()
    with _annotated():
        settings = ReportSettings.read(os.environ)
        code = pending(settings, _world(settings))
    raise typer.Exit(code)


@gate_app.command("report")
def gate_report(verbose: Verbose = False) -> None:
    """Compare the records, comment, set the status, keep the baseline."""
    from canary.gate.inputs import ReportSettings
    from canary.gate.report_job import answer

    stoppable()
    with _annotated():
        settings = ReportSettings.read(os.environ)
        code = answer(settings, _world(settings))
    raise typer.Exit(code)


@gate_app.command("prefetch")
def gate_prefetch(verbose: Verbose = False) -> None:
    """Fill the model cache; runs no code of a pull request."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        from canary.errors import UsageError

        raise UsageError(
            "huggingface_hub is not installed", 'pip install "rlhf-canary[train]"'
        ) from error

    from canary.gate.inputs import configs_of
    from canary.gate.prefetch import prefetch

    folder = Path(os.environ.get("CANARY_CHECKOUT") or ".") / (
        os.environ.get("CANARY_WORKING_DIRECTORY") or "."
    )
    prefetch(configs_of(os.environ), folder, os.environ, snapshot_download, _say)


def publish_comparison(
    comparisons: Annotated[
        list[Path], typer.Argument(metavar="COMPARISON...", help="comparison.json, or its folder.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be posted, and post nothing.")
    ] = False,
    repository: Annotated[
        str | None, typer.Option("--repository", metavar="OWNER/NAME", help="Where to post.")
    ] = None,
    pull_request: Annotated[
        int | None, typer.Option("--pull-request", help="Number of the pull request.")
    ] = None,
    sha: Annotated[
        str | None, typer.Option("--sha", help="Head commit; the status goes there.")
    ] = None,
    status: Annotated[
        str, typer.Option("--status", help="commit-status, check-run, both or none.")
    ] = "commit-status",
    comment: Annotated[bool, typer.Option("--comment/--no-comment", help="Post it.")] = True,
    template: Annotated[
        Path | None, typer.Option("--template", help="Overrides blocks of the comment.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="An inconclusive verdict is posted as a failure.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Post saved comparisons: comment, status, check run. The token comes from GITHUB_TOKEN."""
    from canary.github.by_hand import Posting, post

    posting = Posting(
        tuple(comparisons),
        repository or os.environ.get("GITHUB_REPOSITORY", ""),
        pull_request,
        sha or "",
        status,
        comment,
        template,
        strict,
        dry_run,
    )
    raise typer.Exit(post(posting, os.environ, _job(), sys.stdout))
