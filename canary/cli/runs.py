"""The verbs for an output folder: `list` and `clean`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canary.cli.options import Verbose
from canary.config.output import OUTPUT_DIR
from canary.errors import printable

OutputFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of runs.")]


def list_(
    folder: OutputFolder = Path(OUTPUT_DIR),
    verbose: Verbose = False,
) -> None:
    """List the runs of a folder, newest last."""
    from canary.record.runs import runs_in
    from canary.report.runs_table import runs_text

    typer.echo(runs_text(runs_in(folder), folder))


def clean(
    folder: OutputFolder = Path(OUTPUT_DIR),
    keep: Annotated[int, typer.Option("--keep", min=0, help="Newest runs to keep.")] = 20,
    verbose: Verbose = False,
) -> None:
    """Remove the oldest runs of a folder. A campaign counts as one run."""
    from canary.record.runs import clean

    removed = clean(folder, keep)
    for path in removed:
        typer.echo(printable(f"removed {path}"))
    typer.echo(f"removed {len(removed)}, kept the newest {keep}")
