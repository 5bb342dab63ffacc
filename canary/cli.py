"""The command line: verbs only. Each parses, calls one function and prints."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from canary import __version__
from canary.errors import EXIT_ERROR, EXIT_OK, EXIT_USAGE, CanaryError

app = typer.Typer(
    name="canary",
    help="A short training run on every change, compared with the runs before it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(
    help="Show a resolved config, or the schema of all of them.", no_args_is_help=True
)
app.add_typer(config_app, name="config")

Config = Annotated[Path | None, typer.Argument(help="YAML file; without one, the embedded DPO.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value over the file, may be repeated."),
]
Verbose = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="Tracebacks and the end of the log on errors."),
]


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


@app.command()
def run(
    config: Config = None,
    output_dir: Annotated[
        Path | None, typer.Option("-o", "--output-dir", help="Folder of run folders.")
    ] = None,
    set_: Set = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only the record's path.")] = False,
    verbose: Verbose = False,
) -> None:
    """Train a canary and leave a record of it."""
    from canary.config.load import load_config
    from canary.runner.outcome import exit_code, failure_text, outcome_text
    from canary.runner.progress import listener_for
    from canary.runner.session import run_canary

    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    loaded = load_config(config, set_ or [])
    record, run_dir, result = run_canary(loaded, listener_for(sys.stderr, quiet), output_dir)
    with contextlib.suppress(BrokenPipeError):
        if result.status != "completed":
            typer.echo(failure_text(result, run_dir, verbose), err=True)
        elif not quiet:
            typer.echo(outcome_text(record), err=True)
    with contextlib.suppress(BrokenPipeError):
        typer.echo(str(run_dir))
    raise typer.Exit(exit_code(result))


@app.command()
def env() -> None:
    """Show what the exact lane knows of this machine: packages, devices, threads."""
    from canary.collect.environment import environment_lines, fingerprint

    for name, value in environment_lines(fingerprint()):
        typer.echo(f"{name:<18} {value}")


@app.command("init-config")
def init_config(
    path: Annotated[Path, typer.Argument(help="File to write.")],
    type_: Annotated[str, typer.Option("--type", help="sft, dpo or grpo.")] = "dpo",
    tier: Annotated[str, typer.Option(help="smoke, perf or nightly.")] = "smoke",
    force: Annotated[bool, typer.Option("--force", help="Overwrite.")] = False,
) -> None:
    """Write a commented config to start from."""
    from canary.config.samples import write_sample

    write_sample(path, type_, tier, force=force)
    typer.echo(f"wrote {path}; run it with: canary run {path}")


@config_app.command("show")
def config_show(config: Config = None, set_: Set = None) -> None:
    """Print every value and where it came from."""
    from canary.config.load import load_config
    from canary.config.render import show_text

    typer.echo(show_text(load_config(config, set_ or [])).rstrip("\n"))


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema, for editors."""
    from canary.config.render import json_schema

    typer.echo(json_schema().rstrip("\n"))


def main(arguments: list[str] | None = None) -> Any:
    """Entry point. Errors that users can cause become one line and the right exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    verbose = bool({"-v", "--verbose"} & set(arguments))
    try:
        code = app(args=arguments, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else EXIT_OK)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        print("canary: interrupted", file=sys.stderr)
        sys.exit(EXIT_ERROR)
    except BrokenPipeError:
        # The reader of standard output has gone: what it wanted, it has.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_OK)
    except CanaryError as error:
        if verbose:
            traceback.print_exc()
        print(f"canary: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - the one place that meets what nobody foresaw
        _show_usage_error(error)
        if verbose:
            traceback.print_exc()
        print(
            f"canary: unexpected {type(error).__name__}: {error} (run again with -v and report it)",
            file=sys.stderr,
        )
        sys.exit(EXIT_ERROR)


def _show_usage_error(error: Exception) -> None:
    """The argument parser's own errors, in one line, exit code 2."""
    message = getattr(error, "format_message", None)
    if message is not None:
        print(f"canary: {message()}", file=sys.stderr)
        sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
