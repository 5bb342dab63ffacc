"""The verbs of `canary golden`: files with the values that a training must give again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from canary.cli.options import Form, NoProgress, Output, Verbose, run_path
from canary.cli.terminal import stoppable

golden_app = typer.Typer(
    help="Write, check and refresh golden files. They hold the values of a training.",
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
        typer.Option(
            "--format", help="The file's format: canary, megatron, torchtitan, nemo or trl."
        ),
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
    replay_: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="If a value differs, train its step again, twice on the same state.",
        ),
    ] = False,
    form: Form = "text",
    output: Output = None,
    quiet: NoProgress = False,
    verbose: Verbose = False,
) -> None:
    """Say whether a run gives the values of a golden file.

    The exit code is 1 if it does not.
    """
    from canary.golden.checking import checked_files
    from canary.golden.tolerance import tolerances_of
    from canary.golden.view import check_text
    from canary.report.render import check_format, printed

    check_format(form)
    listener = None
    if replay_:
        from canary.runner.display.progress import listener_for

        stoppable()
        listener = listener_for(sys.stderr, quiet)
    sizes = tolerances_of(tolerances or [])
    found = checked_files(run, file, metrics or [], sizes, Path.cwd(), listener)
    printed(check_text(found, form), found.first_line, output)
    raise typer.Exit(found.exit_code)


@golden_app.command("refresh")
def golden_refresh(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN... FILE",
            help="Repeats of one training, and the golden file.",
            parser=run_path,
        ),
    ],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why the values may change.")
    ],
    accept: Annotated[
        str | None,
        typer.Option("--accept", metavar="REASON", help="Accept a metric that got worse."),
    ] = None,
    tolerances: Tolerances = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=PERCENT",
            help="How much worse a metric may get, such as loss=2%; may be repeated.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="RUN",
            help="The run behind the present values, to say what changed since.",
            parser=run_path,
        ),
    ] = None,
    form: Form = "text",
    output: Output = None,
    verbose: Verbose = False,
) -> None:
    """Write new golden values from repeats that agree.

    The answer says what moved and why.
    """
    from canary.errors import UsageError
    from canary.golden.refresh import Ask, refresh
    from canary.golden.tolerance import limits_of, tolerances_of
    from canary.golden.view import refresh_text
    from canary.report.render import check_format, printed

    check_format(form)
    if len(runs) < 2:
        raise UsageError("no run named", "canary golden refresh RUN... FILE --reason TEXT")
    ask = Ask(
        tuple(runs[:-1]),
        runs[-1],
        reason,
        accept,
        tolerances_of(tolerances or []),
        limits_of(limits or []),
        baseline,
        Path.cwd(),
    )
    found = refresh(ask)
    # A file is for a pull request; standard output is for a terminal.
    form = "markdown" if output is not None and form == "text" else form
    printed(refresh_text(found, form), found.first_line, output)
    raise typer.Exit(found.exit_code)
