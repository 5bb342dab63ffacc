"""The verb `ladder`: how much faster the same job can be, level by level."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from canary.cli.options import Config, Form, NoProgress, OutputDir, Set, Verbose
from canary.cli.terminal import sayer, stoppable
from canary.errors import EXIT_OK, EXIT_REGRESSION


def ladder(
    config: Config = None,
    levels: Annotated[
        str | None,
        typer.Option(
            "--levels", metavar="NAMES", help="Some of baseline,basic,advanced,optimal [all]."
        ),
    ] = None,
    advise: Annotated[
        bool,
        typer.Option("--advise", help="Instead, time each switch alone on your config."),
    ] = False,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", help="Launches per level or switch.")
    ] = 3,
    output_dir: OutputDir = None,
    set_: Set = None,
    form: Form = "text",
    quiet: NoProgress = False,
    verbose: Verbose = False,
) -> None:
    """Time one job at four levels of speed, or find the switches that make your config faster."""
    from canary.ladder.advise import run_advise
    from canary.ladder.advise_view import advice_text
    from canary.ladder.ladder import LadderRequest, run_ladder
    from canary.ladder.view import ladder_text, left_in
    from canary.report.lines import terminal_width
    from canary.report.render import FORMATS, check_format

    check_format(form)
    stoppable()
    width = terminal_width(sys.stdout)
    request = LadderRequest(config, levels, rounds, tuple(set_ or ()), output_dir)
    if advise:
        advice = run_advise(request, sayer(quiet))
        left_in(advice.folder, "advice", [advice_text(advice, one) for one in FORMATS])
        typer.echo(advice_text(advice, form, width), nl=False)
        raise typer.Exit(EXIT_OK if advice.passed else EXIT_REGRESSION)
    found = run_ladder(request, sayer(quiet))
    left_in(found.folder, "ladder", [ladder_text(found, one) for one in FORMATS])
    typer.echo(ladder_text(found, form, width), nl=False)
    raise typer.Exit(EXIT_OK if found.passed else EXIT_REGRESSION)
