"""`matrix`: many canaries at once."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from canary.cli.options import Form, NoProgress, OutputDir, Verbose
from canary.cli.terminal import sayer, stoppable


def matrix(
    file: Annotated[Path, typer.Argument(metavar="MATRIX", help="YAML file with the cells.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run, and start nothing.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="CELL", help="Run this cell alone; may be repeated."),
    ] = None,
    output_dir: OutputDir = None,
    form: Form = "text",
    quiet: NoProgress = False,
    verbose: Verbose = False,
) -> None:
    """Run many canaries, each compared with its own history."""
    from canary.matrix.answer import View, answer_of, answer_text, write_answer
    from canary.matrix.running import load, plan_lines, run
    from canary.report.lines import terminal_width
    from canary.report.render import check_format

    check_format(form)
    stoppable()
    loaded = load(file, output_dir, only or ())
    if dry_run:
        typer.echo("\n".join(plan_lines(loaded.cells)))
        return
    say = sayer(quiet)
    for line in (*plan_lines(loaded.cells), f"folder: {loaded.folder}"):
        say(line)
    try:
        entries = run(loaded, View(say, time.monotonic).told)
    except KeyboardInterrupt:
        say(f"to go on, start the same command again with -o {loaded.folder}")
        raise
    answer = answer_of(entries, loaded.document.name)
    if not only:
        write_answer(answer, loaded.folder)
    width = terminal_width(sys.stdout)
    typer.echo(answer_text(answer, form, loaded.folder, width), nl=False)
    raise typer.Exit(answer.exit_code)
