"""`report`: runs, a comparison or a history as one HTML page with charts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canary.cli.baseline import history_at
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
            help="A run and what to compare it with; a folder of a comparison, check or matrix; a "
            "history.",
            parser=run_path,
        ),
    ] = None,
    baseline: Baseline = None,
    remote: RemoteName = None,
    branch: Branch = BRANCH,
    canary: Annotated[
        str | None,
        typer.Option("--canary", help="Only this canary of a history, or cell of a matrix."),
    ] = None,
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
    from canary.ladder.results import result_of
    from canary.matrix.answer import FILE, write_page
    from canary.matrix.running import CELLS
    from canary.report.pages import REPORT, require_charts, write_history, write_report

    require_charts()
    named = paths or []
    first, rest = next(iter(named), None), named[1:]
    if first is None and remote is None:
        raise UsageError("nothing to report", "canary report RUN [BASELINE...], or --remote origin")
    against = (*rest, *(baseline or ()))
    if first is None or (is_history(first) and not against):
        path = output or (Path() if first is None else first) / REPORT
        with history_at(first, remote, branch) as (root, shown):
            write_history(root, shown, path, canary)
    elif (first / FILE).is_file():
        path = output or (first if canary is None else first / CELLS / canary) / REPORT
        for one in against:
            if len(against) > 1 or not is_history(one):
                message = f"{one} is no history, and {first} is a matrix"
                raise UsageError(message, "canary report MATRIX --baseline HISTORY")
        write_page(first, path, canary, next(iter(against), None))
    elif not against and result_of(first) is not None:
        path = output or first / REPORT
        write_result(first, path)
    elif not against and (first / CELLS).is_dir():
        hint = f"run all its cells with -o {first}"
        raise UsageError(f"the matrix in {first} has no answer yet", hint)
    else:
        here = repository or Path.cwd()
        source = partial(source_between, here)
        request = Request((first,), against, tier, threshold_file, noise, source=source)
        path = output or (first if first.is_dir() else first.parent) / REPORT
        write_report(request, path)
    typer.echo(f"wrote {path}")
    if open_:
        typer.launch(str(path.absolute()))
