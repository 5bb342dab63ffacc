"""`matrix`: many canaries at once."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from canary.cli.options import Form, NoProgress, OutputDir, Verbose
from canary.cli.terminal import sayer, stoppable

if TYPE_CHECKING:
    from canary.matrix.matrix import Loaded


Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="CELL", help="Run this cell alone; may be repeated."),
]


def matrix(
    file: Annotated[Path, typer.Argument(metavar="MATRIX", help="YAML file with the cells.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run, and start nothing.")
    ] = False,
    only: Only = None,
    collect: Annotated[
        bool,
        typer.Option(
            "--collect",
            help="Start nothing; judge the cells that other machines ran (launcher external).",
        ),
    ] = False,
    output_dir: OutputDir = None,
    form: Form = "text",
    quiet: NoProgress = False,
    verbose: Verbose = False,
) -> None:
    """Run many canaries, each compared with its own history."""
    from canary.errors import UsageError
    from canary.matrix.matrix import MatrixRequest, commands, foreseen, load
    from canary.matrix.plan import plan_document, plan_lines
    from canary.record import jsonio
    from canary.report.render import check_format

    check_format(form)
    stoppable()
    if collect and output_dir is None:
        raise UsageError("--collect needs the folder of the matrix", "add -o FOLDER")
    loaded = load(MatrixRequest(file, output_dir, tuple(only or ()), collect))
    name, budget = loaded.document.name, loaded.document.budget
    if dry_run:
        plan = foreseen(loaded)
        document = plan_document(name, plan, budget)
        as_json = form == "json"
        typer.echo(
            jsonio.dumps(document, indent=1) if as_json else "\n".join(plan_lines(plan, budget))
        )
        return
    lines = plan_lines(loaded.plan, budget)
    if loaded.is_external and output_dir is None:
        raise UsageError("launcher.kind: external needs the folder of the matrix", "add -o FOLDER")
    if loaded.is_external and not (collect or only):
        typer.echo(_commands(commands(loaded), form))
        return
    _run(loaded, [] if collect else lines, form, quiet)


def _commands(found: list[tuple[str, str]], form: str) -> str:
    """Return the commands that something else starts."""
    from canary.record import jsonio

    if form == "json":
        listed = [{"cell": cell, "command": command} for cell, command in found]
        return jsonio.dumps(listed, indent=1)
    return "\n".join(command for _, command in found)


def _run(loaded: Loaded, lines: list[str], form: str, quiet: bool) -> NoReturn:
    """Run or collect, print the answer and end."""
    from canary.matrix.matrix import run
    from canary.matrix.stored import left_page
    from canary.matrix.summary import document, exit_code, markdown, text, write
    from canary.matrix.view import View
    from canary.record import jsonio
    from canary.report.lines import terminal_width

    say = sayer(quiet)
    for line in (*lines, f"folder: {loaded.folder}"):
        say(line)
    terminal = sys.stderr if sys.stderr.isatty() and not quiet else None
    try:
        entries = run(loaded, View(say, terminal, time.monotonic).told)
    except KeyboardInterrupt:
        say(f"to go on, start the same command again with -o {loaded.folder}")
        raise
    if loaded.is_whole:
        write(entries, loaded.document.name, loaded.folder)
        say(left_page(loaded.folder, Path.cwd(), loaded.history))
    if form == "json":
        typer.echo(jsonio.dumps(document(entries, loaded.document.name), indent=1))
    elif form == "markdown":
        typer.echo(markdown(entries, loaded.folder), nl=False)
    else:
        typer.echo(text(entries, loaded.folder, terminal_width(sys.stdout)), nl=False)
    raise typer.Exit(exit_code(entries))
