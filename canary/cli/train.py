"""The verbs that make a record: `run`, `exec`, and `import` of what another program recorded."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from canary.cli.options import Config, OutputDir, Set, StopOn, Verbose
from canary.cli.terminal import stoppable
from canary.config.output import OUTPUT_DIR
from canary.errors import EXIT_OK, UsageError


def run(
    config: Config = None,
    output_dir: OutputDir = None,
    set_: Set = None,
    nproc: Annotated[
        int | None, typer.Option("--nproc", help="Ranks on this machine, started by torchrun.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="End the training after the look; measure no speed.")
    ] = False,
    stop_on: StopOn = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "-q", "--quiet", help="Show no progress; print only the run folder and errors."
        ),
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Train a canary and write its record."""
    from canary.compare.rules import answers
    from canary.config.load import load_config
    from canary.record.runs import next_command
    from canary.report.lines import terminal_width, wrapped
    from canary.report.rules import answer_lines, refuse_unknown
    from canary.runner.display.progress import listener_for
    from canary.runner.outcome import exit_code, failure_text, outcome_text
    from canary.runner.run import run_canary

    stoppable()
    ranks = [] if nproc is None else [f"nproc={nproc}"]
    stop = [] if stop_on is None else [f"stop_on={stop_on}"]
    ends = ["exact=true"] if exact else []
    loaded = load_config(config, [*(set_ or []), *ranks, *stop, *ends])
    refuse_unknown(loaded)
    record, run_dir, result = run_canary(loaded, listener_for(sys.stderr, quiet), output_dir)
    with contextlib.suppress(BrokenPipeError):
        if result.status != "completed":
            typer.echo(failure_text(result, run_dir, verbose), err=True)
        elif not quiet:
            lines = "\n".join([outcome_text(record), *answer_lines(answers(record))])
            typer.echo(wrapped(lines, terminal_width(sys.stderr)), err=True)
            typer.echo(next_command(run_dir), err=True)
    with contextlib.suppress(BrokenPipeError):
        typer.echo(str(run_dir))
    raise typer.Exit(exit_code(result))


def exec_(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="Your training command.")],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the canary and of its run folders.")
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(
            "--max-steps",
            metavar="N",
            help="End the training process after N optimizer steps.",
        ),
    ] = None,
    output_dir: OutputDir = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="YAML with thresholds, timeout, look_steps and so on."),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="End the command after the look; measure no speed.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", help="CPU threads of torch [the command decides].")
    ] = None,
    set_: Set = None,
    stop_on: StopOn = None,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Show no progress; print only errors.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Run your training command, unmodified, and record it."""
    from canary.compare.rules import answers
    from canary.record.runs import next_command
    from canary.report.lines import terminal_width, wrapped
    from canary.report.rules import answer_lines
    from canary.runner.display.progress import listener_for
    from canary.runner.exec.entry import ExecRequest, run_command

    stoppable()
    request = ExecRequest(
        tuple(command), name, max_steps, config, exact, stop_on, threads, tuple(set_ or ())
    )
    record, run_dir, code, message = run_command(
        request, listener_for(sys.stderr, quiet, moves=False), output_dir, verbose
    )
    with contextlib.suppress(BrokenPipeError):
        if message and not (quiet and code == EXIT_OK):
            lines = answer_lines(answers(record)) if code == EXIT_OK else []
            text = "\n".join([message, *lines])
            typer.echo(wrapped(text, terminal_width(sys.stderr)), err=True)
        if not quiet and run_dir.is_dir():
            typer.echo(f"record: {run_dir}", err=True)
            if code == EXIT_OK:
                typer.echo(next_command(run_dir), err=True)
    sys.exit(code)  # a command may end with 130, which typer's own Exit uses for Ctrl-C


MachineType = Annotated[
    str | None,
    typer.Option(
        "--machine", metavar="NAME", help="Machine type that trained; histories are per type."
    ),
]


def import_(
    source: Annotated[
        Path | None, typer.Argument(metavar="SOURCE", help="What the training left.")
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Format of the source [found from the files].")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="NAME|FILE",
            help="Names of the metrics: a framework, a YAML file, or `none` [the best fit].",
        ),
    ] = None,
    output_dir: OutputDir = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the canary [the framework's].")
    ] = None,
    machine: MachineType = None,
    presets: Annotated[bool, typer.Option("--presets", help="List the presets.")] = False,
    show_preset: Annotated[
        str | None, typer.Option("--show-preset", metavar="NAME", help="Print a preset to copy.")
    ] = None,
) -> None:
    """Make a record of a run that another program recorded."""
    from canary.compare.rules import answers
    from canary.imports.preset import preset_file, preset_lines
    from canary.imports.reading import Asked
    from canary.imports.record import import_lines, import_run
    from canary.report.rules import answer_lines

    if presets:
        typer.echo("\n".join(preset_lines()))
        return
    if show_preset is not None:
        typer.echo(preset_file(show_preset).read_text(encoding="utf-8").rstrip("\n"))
        return
    if source is None:
        raise UsageError("no source named", "canary import FOLDER")
    record, folder, imported = import_run(
        Asked(source, format_, preset), output_dir or Path(OUTPUT_DIR), name, machine
    )
    for line in [*import_lines(record, imported), *answer_lines(answers(record))]:
        typer.echo(line, err=True)
    typer.echo(str(folder))
