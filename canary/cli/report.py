"""`report`: runs, a comparison or a history as one HTML page with charts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canary.cli.compare import Baseline, Repository
from canary.cli.options import Noise, ThresholdFile, Tier, Verbose


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [BASELINE...]",
            help="A run and what to compare it with, or the folder of a comparison.",
        ),
    ],
    baseline: Baseline = None,
    tier: Tier = None,
    threshold_file: ThresholdFile = None,
    noise: Noise = None,
    repository: Repository = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write [report.html beside it].")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    verbose: Verbose = False,
) -> None:
    """Write one HTML page with charts, readable offline."""
    from functools import partial

    from canary.compare.diagnosis.source_changes import source_between
    from canary.compare.paths import Request, compared_paths
    from canary.report.pages import (
        COMPARISON,
        REPORT,
        compared_in,
        require_charts,
        write_comparison,
    )

    require_charts()
    here = repository or Path.cwd()
    first, *rest = paths
    if not rest and not baseline and (first / COMPARISON).exists():
        compared = compared_in(first, here)
    else:
        source = partial(source_between, here)
        against = (*rest, *(baseline or ()))
        compared = compared_paths(
            Request((first,), against, tier, threshold_file, noise, source=source)
        )
    path = output or (first if first.is_dir() else first.parent) / REPORT
    write_comparison(compared, path)
    typer.echo(f"wrote {path}")
    if open_:
        typer.launch(str(path.absolute()))
