"""The verbs of the action: `canary gate ...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from canary.cli.options import Verbose
from canary.cli.terminal import DisarmedLog, stoppable
from canary.errors import CanaryError

if TYPE_CHECKING:
    from canary.gate.gathering import World
    from canary.gate.inputs import ReportSettings, TrainSettings
    from canary.github.workflow import Job

Environment = Mapping[str, str]

gate_app = typer.Typer(
    help="Run steps of the action's jobs. Inputs come from environment variables.",
    no_args_is_help=True,
)


def _say(line: str) -> None:
    """Log a line; text from a record cannot become a workflow command."""
    _job().line(line)


def _job() -> Job:
    from canary.github.workflow import Job

    def file(name: str) -> Path | None:
        return Path(os.environ[name]) if os.environ.get(name) else None

    stream = sys.stderr
    log = stream.to if isinstance(stream, DisarmedLog) else stream
    return Job(log, file("GITHUB_OUTPUT"), file("GITHUB_STEP_SUMMARY"))


def _train_half(step: Callable[[TrainSettings, Environment, Callable[[str], None]], int]) -> None:
    """Run a step of the job that trains, and end with its exit code."""
    from canary.gate.run_job import settings_of

    stoppable()
    raise typer.Exit(step(settings_of(os.environ), os.environ, _say))


def _report_half(step: Callable[[ReportSettings, World], int]) -> None:
    """Run a step of the job that reports, and end with its exit code. An error that ends the job is
    on the job's page too, not only in its log."""
    from canary.baseline.branch import Remote
    from canary.gate.gathering import World
    from canary.gate.inputs import ReportSettings
    from canary.github.client import connect

    stoppable()
    try:
        settings = ReportSettings.read(os.environ)
        hub = connect(settings.token, settings.api_url, settings.repository)
        remote = Remote(settings.remote_url, settings.baseline_branch, settings.token)
        code = step(settings, World(hub, remote, _job(), lambda: datetime.now(UTC)))
    except CanaryError as error:
        _job().say("error", str(error))
        raise
    raise typer.Exit(code)


@gate_app.command("setup")
def gate_setup(verbose: Verbose = False) -> None:
    """Run the repository's setup. It has network access."""
    from canary.gate.workspace import set_up

    _train_half(set_up)


@gate_app.command("run")
def gate_run(verbose: Verbose = False) -> None:
    """Train every config and write the records folder."""
    from canary.gate.run_job import train

    _train_half(train)


@gate_app.command("plan")
def gate_plan(verbose: Verbose = False) -> None:
    """Name the jobs that the event asks for, and set the pending status."""
    from canary.gate.report_job import plan

    _report_half(plan)


@gate_app.command("report")
def gate_report(verbose: Verbose = False) -> None:
    """Compare, comment, set the status, update the baseline."""
    from canary.gate.report_job import answer

    _report_half(answer)


@gate_app.command("prefetch")
def gate_prefetch(verbose: Verbose = False) -> None:
    """Fill the model cache without running code of a pull request."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        from canary.errors import UsageError

        raise UsageError(
            "huggingface_hub is not installed", 'pip install "rlhf-canary[train]"'
        ) from error

    from canary.gate.inputs import Inputs
    from canary.gate.prefetch import prefetch

    inputs = Inputs.read(os.environ)
    folder = Path(os.environ.get("CANARY_CHECKOUT") or ".") / inputs.folder
    prefetch(inputs.configs, folder, os.environ, snapshot_download, _say)
