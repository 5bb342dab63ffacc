"""The verb `profile`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from canary.cli.options import Form, Output, Verbose


def profile(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder or metrics.json.")],
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="BASE", help="Also show differences from this run."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Operators per table.")] = 15,
    form: Form = "text",
    output: Output = None,
    verbose: Verbose = False,
) -> None:
    """Show what the profiled steps of a run spent their time on."""
    from canary.report.lines import terminal_width
    from canary.report.profile import profile_text
    from canary.report.render import write_text

    width = None if output else terminal_width(sys.stdout)
    text = profile_text(run, against, form, top, width)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_text(output, text)
