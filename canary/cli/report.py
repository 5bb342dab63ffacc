"""`report`: runs, a comparison or a history as one HTML page with charts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canary.cli.baseline import Canary, history_at
from canary.cli.compare import Baseline, Repository
from canary.cli.options import (
    BRANCH,
    Branch,
    Noise,
    RemoteName,
    ThresholdFile,
    Tier,
    Verbose,
    run_path,
)


def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN [BASELINE...]",
            help="A run and what to compare it with; a folder of a comparison or check; a history.",
            parser=run_path,
        ),
    ] = None,
    baseline: Baseline = None,
    remote: RemoteName = None,
    branch: Branch = BRANCH,
    canary: Canary = None,
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

    from canary.baseline.history import is_history
    from canary.compare.diagnosis.source_changes import source_between
    from canary.compare.paths import Request
    from canary.errors import UsageError
    from canary.ladder.report import write_result
    from canary.ladder.results import FILE as LADDER
    from canary.report.pages import REPORT, require_charts, write_history, write_report

    require_charts()
    first = paths[0] if paths else None
    if first is not None and first.name == LADDER:
        first = first.parent
    against = (*(paths or ())[1:], *(baseline or ()))
    if first is None and remote is None:
        raise UsageError("nothing to report", "canary report RUN [BASELINE...], or --remote origin")
    if first is None or (is_history(first) and not against):
        path = output or (first or Path()) / REPORT
        with history_at(first, remote, branch) as (root, shown):
            write_history(root, shown, path, canary)
    elif not against and (first / LADDER).is_file():
        path = output or first / REPORT
        write_result(first, path)
    else:
        path = output or (first if first.is_dir() else first.parent) / REPORT
        source = partial(source_between, repository or Path.cwd())
        write_report(Request((first,), against, tier, threshold_file, noise, source=source), path)
    typer.echo(f"wrote {path}")
    if open_:
        typer.launch(str(path.absolute()))
