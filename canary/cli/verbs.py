"""The command line: its verbs and its entry point. A verb parses, calls one function and prints."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, Any

import typer
import typer.core

from canary import __version__
from canary.cli.baseline import baseline_app, history, save_baseline
from canary.cli.campaign import ab, bisect, calibrate, demo, ladder, matrix
from canary.cli.check import check
from canary.cli.compare import compare, list_, profile, report, serve
from canary.cli.gate import gate_app
from canary.cli.init import init
from canary.cli.options import Config, Set
from canary.cli.terminal import (
    interrupted,
    leave_quietly,
    open_closed_streams,
    without_workflow_commands,
)
from canary.cli.train import exec_, import_, run
from canary.errors import (
    EXIT_ERROR,
    EXIT_OK,
    EXIT_USAGE,
    UNWRITABLE,
    CanaryError,
    printable,
    replaced,
)

BEGIN = "Begin"
TRAIN = "Train and record"
COMPARE = "Compare and understand"
BASELINE = "Keep a baseline, know the noise"
SEARCH = "Search, and many at once"


class _Verbs(typer.core.TyperGroup):
    """Verbs in `--help` under their `rich_help_panel`; hidden ones have none."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb whose help names values as docs/cli.md does, not by types of Python."""
        verb: Any = super().get_command(ctx, cmd_name)
        for one in verb.params if verb else ():
            if one.param_type_name == "argument":
                one.display_type_rich = lambda ctx: ""
            if not getattr(one, "is_flag", False):
                one.metavar = one.metavar or one.name.rstrip("_").upper()
        return verb

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per group, in the order in which the groups are first used."""
        groups: dict[str, list[tuple[str, str]]] = {}
        shown = [(name, verb) for name, verb in self.commands.items() if not verb.hidden]
        limit = formatter.width - 6 - max(len(name) for name, _ in shown)
        for name, verb in shown:
            row = (name, verb.get_short_help_str(limit))
            groups.setdefault(getattr(verb, "rich_help_panel", ""), []).append(row)
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=20)


app = typer.Typer(
    name="canary",
    cls=_Verbs,
    help="A short training run on every change, compared with the runs before it.",
    epilog="More: list, config and env, each with --help.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(
    help="Show a resolved config, or the schema of configs.", no_args_is_help=True
)
IN_JOBS = ("gate",)
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


def env() -> None:
    """Show this machine: its hardware, packages and variables."""
    from canary.machine.environment import environment_lines, fingerprint

    for name, value in environment_lines(fingerprint()):
        typer.echo(f"{name:<18} {value}")


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


app.command(rich_help_panel=BEGIN)(demo)
app.command(rich_help_panel=BEGIN)(init)
app.command(rich_help_panel=TRAIN)(run)
app.command(
    "exec",
    rich_help_panel=TRAIN,
    options_metavar="[OPTIONS] --",
    context_settings={"allow_interspersed_args": False},
)(exec_)
app.command(rich_help_panel=TRAIN)(check)
app.command("import", rich_help_panel=TRAIN)(import_)
app.command(rich_help_panel=TRAIN)(serve)
app.command(rich_help_panel=COMPARE)(ab)
app.command(rich_help_panel=COMPARE)(compare)
app.command(rich_help_panel=COMPARE)(report)
app.command(rich_help_panel=COMPARE)(profile)
app.command(rich_help_panel=COMPARE)(history)
app.command("save-baseline", rich_help_panel=BASELINE)(save_baseline)
app.add_typer(baseline_app, name="baseline", rich_help_panel=BASELINE)
app.command(rich_help_panel=BASELINE)(calibrate)
app.command(rich_help_panel=SEARCH)(bisect)
app.command(rich_help_panel=SEARCH)(ladder)
app.command(rich_help_panel=SEARCH)(matrix)
app.command("list", hidden=True)(list_)
app.command(hidden=True)(env)
app.add_typer(config_app, name="config", hidden=True)
app.add_typer(gate_app, name="gate", hidden=True)


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
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    verbose = bool({"-v", "--verbose"} & set(own))
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
    """Print an error of the argument parser in one line and exit with 2. A group without a verb is
    no error: print its help."""
    message = getattr(error, "format_message", None)
    if type(error).__name__ == "NoArgsIsHelpError" and message is not None:
        print(message())
        sys.exit(EXIT_OK)
    if message is not None:
        now = replaced(getattr(error, "option_name", ""))
        print(f"canary: {printable(message())}{f' ({now})' if now else ''}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
