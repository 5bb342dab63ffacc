"""The command line: its verbs and its entry point. A verb parses, calls one function and prints."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from canary import __version__
from canary.cli.advisories import advisories
from canary.cli.baseline import baseline_app
from canary.cli.campaign import ab, bisect, calibrate, demo, ladder
from canary.cli.check import check
from canary.cli.compare import compare, explain, profile
from canary.cli.gate import gate_app, publish_comparison
from canary.cli.golden import golden_app
from canary.cli.history import history
from canary.cli.imports import import_
from canary.cli.init import init
from canary.cli.matrix import matrix
from canary.cli.options import Config, Set, run_path
from canary.cli.report import report
from canary.cli.runs import clean, list_
from canary.cli.serve import serve
from canary.cli.terminal import (
    interrupted,
    leave_quietly,
    open_closed_streams,
    without_workflow_commands,
)
from canary.cli.train import exec_, run
from canary.config.trainers import DEFAULT_TRAINER, TRAINERS
from canary.errors import EXIT_ERROR, EXIT_OK, EXIT_USAGE, UNWRITABLE, CanaryError, printable

app = typer.Typer(
    name="canary",
    help="A short training run on every change, compared with the runs before it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(
    help="Show a resolved config, or the schema of configs.", no_args_is_help=True
)
app.add_typer(config_app, name="config")
app.add_typer(gate_app, name="gate")
app.add_typer(baseline_app, name="baseline")
app.add_typer(golden_app, name="golden")

IN_JOBS = ("gate", "publish")
"""Verbs that run in a job, which may hold a token: they must print no workflow commands."""
TYPER_INTERRUPTED = 130
"""Typer's exit code after Ctrl-C."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rlhf-canary {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


app.command()(run)
app.command(
    "exec", options_metavar="[OPTIONS] --", context_settings={"allow_interspersed_args": False}
)(exec_)
app.command()(check)
app.command()(advisories)
app.command("import")(import_)
app.command()(compare)
app.command()(explain)
app.command()(ab)
app.command()(bisect)
app.command()(calibrate)
app.command()(ladder)
app.command()(matrix)
app.command()(demo)


@app.command("save-baseline")
def save_baseline(
    source: Annotated[
        Path,
        typer.Argument(metavar="SRC", help="A run's folder, name or record.", parser=run_path),
    ],
    destination: Annotated[
        Path, typer.Argument(metavar="DST", help="A .json file, or the folder of a history.")
    ],
    accept: Annotated[
        str | None,
        typer.Option("--accept", metavar="REASON", help="Accept the change: begin a new period."),
    ] = None,
) -> None:
    """Save a completed run as a baseline."""
    from canary.baseline.verbs import save_baseline

    typer.echo(save_baseline(source, destination, accept))


@app.command()
def env() -> None:
    """Show this machine: its hardware, packages and variables."""
    from canary.advisories.advisory import advisories as known_faults
    from canary.advisories.condition import Known
    from canary.advisories.matching import matches
    from canary.machine.environment import environment_lines, fingerprint

    found = fingerprint()
    for name, value in environment_lines(found):
        typer.echo(f"{name:<18} {value}")
    faults = matches(known_faults(), Known(found["packages"]))
    for match in faults:
        if not match.unknown:
            typer.echo(f"{'known fault':<18} {match.advisory.id}, {match.advisory.link}")
    if conditional := sum(bool(match.unknown) for match in faults):
        sure = (len(faults) - conditional) or "none"
        words = f"{sure} for sure, {conditional} under a condition; canary advisories lists them"
        typer.echo(f"{'known faults':<18} {words}")


@app.command("init-config")
def init_config(
    path: Annotated[Path, typer.Argument(help="File to write.")],
    type_: Annotated[
        str,
        typer.Option("--type", help=f"{', '.join((*TRAINERS, 'exec'))}."),
    ] = DEFAULT_TRAINER,
    tier: Annotated[str, typer.Option(help="smoke, perf or nightly.")] = "smoke",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a commented config to start from."""
    from canary.config.samples import write_sample

    write_sample(path, type_, tier, force=force)
    typer.echo(f"wrote {path}; run it with: canary run {path}")


@config_app.command("show")
def config_show(config: Config = None, set_: Set = None) -> None:
    """Print every value and its origin."""
    from canary.config.load import load_config
    from canary.config.render import show_text

    typer.echo(show_text(load_config(config, set_ or [])).rstrip("\n"))


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema for editors."""
    from canary.config.render import json_schema

    typer.echo(json_schema().rstrip("\n"))


app.command()(profile)
app.command()(report)
app.command()(history)
app.command()(serve)
app.command("list")(list_)
app.command()(clean)
app.command("publish")(publish_comparison)
app.command()(init)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line. An error that users can cause becomes one line and an exit code."""
    open_closed_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] and arguments[0] in IN_JOBS:
        with without_workflow_commands():
            _main(arguments)
    else:
        _main(arguments)


def _main(arguments: list[str]) -> None:
    verbose = bool({"-v", "--verbose"} & set(arguments))
    try:
        code = app(args=arguments, standalone_mode=False)
        if code == TYPER_INTERRUPTED:
            interrupted()
        sys.exit(code if isinstance(code, int) else EXIT_OK)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        interrupted()
    except BrokenPipeError:
        # The reader closed standard output: it has what it wanted.
        sys.exit(EXIT_OK)
    except CanaryError as error:
        if verbose:
            _show_traceback()
        print(f"canary: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - the last resort
        if isinstance(error, OSError) and error.errno in UNWRITABLE:
            where = printable(error.filename or "a file")
            print(f"canary: cannot write {where}: {error.strerror}", file=sys.stderr)
            sys.exit(EXIT_ERROR)
        _show_usage_error(error)
        if verbose:
            _show_traceback()
        what = printable(f"unexpected {type(error).__name__}: {error}")
        print(f"canary: {what} (run again with -v and report it)", file=sys.stderr)
        sys.exit(EXIT_ERROR)
    finally:
        leave_quietly()


def _show_traceback() -> None:
    """Print the current exception; a stranger may have written its text, hence `printable`."""
    for line in traceback.format_exc().splitlines():
        print(f"  {printable(line)}", file=sys.stderr)


def _show_usage_error(error: Exception) -> None:
    """Print an error of the argument parser in one line and exit with 2."""
    message = getattr(error, "format_message", None)
    if message is not None:
        print(f"canary: {printable(message())}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
