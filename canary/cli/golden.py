"""The verbs of `canary golden`: files with the values that a training must give again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canary.cli.options import Form, Output, Verbose, run_path

golden_app = typer.Typer(
    help="Golden files: write the values of a run, check later runs against them, refresh them.",
    no_args_is_help=True,
)

Run = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="A run's folder, name or metrics.json.", parser=run_path),
]
GoldenFile = Annotated[Path, typer.Argument(metavar="FILE", help="The golden file.")]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Only this metric; NAME=TAG if the file calls it TAG; may be repeated.",
    ),
]
Tolerances = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerance",
        metavar="NAME=SIZE",
        help="exact, 3ulp, 1e-3 or 5%; may be repeated.",
    ),
]


@golden_app.command("write")
def golden_write(
    run: Run,
    file: GoldenFile,
    form: Annotated[
        str,
        typer.Option("--format", help="Schema: canary, megatron, torchtitan, nemo or trl."),
    ] = "canary",
    metrics: Metrics = None,
    tolerances: Tolerances = None,
    verbose: Verbose = False,
) -> None:
    """Write a new golden file with the values of a completed run."""
    from canary.errors import printable
    from canary.golden.tolerance import tolerances_of
    from canary.golden.write import write

    typer.echo(printable(write(run, file, form, metrics or [], tolerances_of(tolerances or []))))


@golden_app.command("check")
def golden_check(
    run: Run,
    file: GoldenFile,
    metrics: Metrics = None,
    tolerances: Tolerances = None,
    form: Form = "text",
    output: Output = None,
    verbose: Verbose = False,
) -> None:
    """Say whether a run gives the values of a golden file; exit with 1 if not."""
    from canary.golden.check import check
    from canary.golden.measured import measured_run
    from canary.golden.schemas import read_golden
    from canary.golden.tolerance import tolerances_of
    from canary.golden.view import check_text
    from canary.report.render import check_format, printed

    check_format(form)
    found = check(
        measured_run(run), read_golden(file), file, metrics or [], tolerances_of(tolerances or [])
    )
    printed(check_text(found, form), found.first_line, output)
    raise typer.Exit(found.exit_code)
