"""The verbs for an output folder: `list` and `serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canary.cli.options import Verbose
from canary.config.output import OUTPUT_DIR

OutputFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of runs.")]


def list_(
    folder: OutputFolder = Path(OUTPUT_DIR),
    verbose: Verbose = False,
) -> None:
    """List the runs of a folder, newest last."""
    from canary.record.runs import runs_in
    from canary.report.runs_table import runs_text

    typer.echo(runs_text(runs_in(folder), folder))


def serve(
    folder: OutputFolder = Path(OUTPUT_DIR),
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")
    ] = 8642,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    verbose: Verbose = False,
) -> None:
    """Show the runs of a folder in the browser while they go on."""
    from canary.serve.server import serve as serve_until_stopped

    def ready(address: str) -> None:
        typer.echo(f"{address}  (Ctrl-C ends it)")
        if open_:
            typer.launch(address)

    serve_until_stopped(folder, port, ready)
