"""The verb `import`: a record of a run that another program recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canary.cli.options import OutputDir
from canary.config.output import OUTPUT_DIR
from canary.errors import UsageError


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
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine", metavar="NAME", help="Machine type that trained; histories are per type."
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", help="Run of a source with several, by name, id or number."),
    ] = None,
    presets: Annotated[bool, typer.Option("--presets", help="List the presets.")] = False,
    show_preset: Annotated[
        str | None, typer.Option("--show-preset", metavar="NAME", help="Print a preset to copy.")
    ] = None,
) -> None:
    """Make a record of a run that another program recorded."""
    from canary.imports.reading import Asked
    from canary.imports.record import import_run
    from canary.imports.view import import_lines, preset_lines, preset_text

    if presets or show_preset is not None:
        typer.echo("\n".join(preset_lines()) if show_preset is None else preset_text(show_preset))
        return
    if source is None:
        raise UsageError("no source named", "canary import FOLDER")
    record, folder, imported = import_run(
        Asked(source, format_, preset, run), output_dir or Path(OUTPUT_DIR), name, machine
    )
    for line in import_lines(record, imported):
        typer.echo(line, err=True)
    typer.echo(str(folder))
