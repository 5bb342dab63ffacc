"""`report`: runs or a comparison as one HTML page with charts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canary.cli.compare import Baseline, Repository
from canary.cli.options import (
    Noise,
    ThresholdFile,
    Tier,
    Verbose,
    run_path,
)


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [BASELINE...]",
            help="A run and what to compare it with; a folder of a comparison or check.",
            parser=run_path,
        ),
    ],
    baseline: Baseline = None,
    tier: Tier = None,
    threshold_file: ThresholdFile = None,
    noise: Noise = None,
    repository: Repository = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File [report.html in that folder]."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    verbose: Verbose = False,
) -> None:
    """Write one HTML page with charts, readable offline."""
    from functools import partial

    from canary.compare.diagnosis.source_changes import source_between
    from canary.compare.paths import Request
    from canary.ladder.report import write_result
    from canary.ladder.results import FILE as LADDER
    from canary.report.pages import REPORT, require_charts, write_report

    require_charts()
    first, *others = paths
    against = (*others, *(baseline or ()))
    if not against and (first / LADDER).is_file():
        path = output or first / REPORT
        write_result(first, path)
    else:
        path = output or (first if first.is_dir() else first.parent) / REPORT
        source = partial(source_between, repository or Path.cwd())
        write_report(Request((first,), against, tier, threshold_file, noise, source=source), path)
    typer.echo(f"wrote {path}")
    if open_:
        typer.launch(str(path.absolute()))
