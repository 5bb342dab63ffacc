"""`matrix`: many canaries at once."""

from __future__ import annotations

import sys
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
    output_dir: OutputDir = None,
    form: Form = "text",
    quiet: NoProgress = False,
    verbose: Verbose = False,
) -> None:
    """Run many canaries, each compared with its own history."""
    from canary.matrix.matrix import MatrixRequest, load, run
    from canary.matrix.plan import plan_lines
    from canary.matrix.running import Matrix
    from canary.matrix.summary import document, exit_code, markdown, text, write
    from canary.record import jsonio
    from canary.report.lines import terminal_width
    from canary.report.render import check_format

    check_format(form)
    stoppable()
    loaded = load(MatrixRequest(file, output_dir))
    lines = plan_lines(loaded.plan, loaded.document.budget)
    if dry_run:
        typer.echo("\n".join(lines))
        return
    say = sayer(quiet)
    for line in lines:
        say(line)
    shown: set[str] = set()

    def told(going: Matrix) -> None:
        for one in going.entries:
            if one.state == "done" and one.outcome is not None and one.cell.name not in shown:
                shown.add(one.cell.name)
                say(f"{len(shown)}/{len(going.entries)} {one.cell.name}: {one.outcome.words}")

    entries = run(loaded, told)
    write(entries, loaded.document.name, loaded.folder)
    if form == "json":
        typer.echo(jsonio.dumps(document(entries, loaded.document.name), indent=1))
    elif form == "markdown":
        typer.echo(markdown(entries, loaded.folder), nl=False)
    else:
        typer.echo(text(entries, loaded.folder, terminal_width(sys.stdout)), nl=False)
    raise typer.Exit(exit_code(entries))
