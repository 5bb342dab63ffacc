"""The verbs that read runs: `compare`, `report`, `profile`, `list`, `serve`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from canary.cli.baseline import Canary, history_at
from canary.cli.options import (
    BRANCH,
    Accept,
    AllChecks,
    Branch,
    Form,
    Noise,
    Open,
    Output,
    RemoteName,
    Strict,
    ThresholdFile,
    Tier,
    Verbose,
    run_path,
)
from canary.config.output import OUTPUT_DIR
from canary.errors import UsageError, printable

if TYPE_CHECKING:
    from canary.compare.paths import Request

Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="CURRENT... BASELINE",
        help="Run folders or their names, metrics.json files, or a history.",
        parser=run_path,
    ),
]
Baseline = Annotated[
    list[Path] | None,
    typer.Option(
        "--baseline",
        metavar="BASELINE",
        help="A run, a history or a folder of runs; may be repeated.",
        parser=run_path,
    ),
]
Repository = Annotated[
    Path | None,
    typer.Option("--repository", help="Git repository with both commits [this folder]."),
]


def compare(
    runs: Runs,
    baseline: Baseline = None,
    tier: Tier = None,
    threshold_file: ThresholdFile = None,
    noise: Noise = None,
    repository: Repository = None,
    form: Form = "text",
    output: Output = None,
    strict: Strict = False,
    accept: Accept = None,
    verbose: AllChecks = False,
) -> None:
    """Say whether the current runs are worse than the baseline."""
    from canary.compare.paths import compared_paths
    from canary.report.bisect_hint import hint_of, known_of
    from canary.report.pages import leave_report
    from canary.report.render import deliver

    request = _request(runs, baseline, tier, threshold_file, noise, repository, accept)
    compared = compared_paths(request)
    found = compared.found
    known = known_of(compared, request.baseline, repository or Path.cwd())
    hint = hint_of(found, compared.current, compared.baseline, known)
    deliver(found, form, output, every=verbose, hint=hint)
    if output is not None:
        typer.echo(leave_report(compared, output.parent), err=True)
    raise typer.Exit(found.exit_code(strict))


def _request(
    runs: list[Path],
    baseline: list[Path] | None,
    tier: str | None,
    threshold_file: Path | None,
    noise: Path | None,
    repository: Path | None,
    accept: str | None,
) -> Request:
    from functools import partial

    from canary.compare.diagnosis.source_changes import source_between
    from canary.compare.paths import Request, newest_of, sides

    current, against = sides(runs, baseline or [])
    if len(current) > 1 and not baseline:
        newest, run_id = newest_of(current, against)
        typer.echo(
            f"note: you named {len(current)} current runs; only the newest is compared, "
            f"{printable(run_id)}. Completed runs of the baseline's canary come first (--baseline "
            "BASELINE compares all of them)",
            err=True,
        )
        current = (newest,)
    source = partial(source_between, repository or Path.cwd())
    return Request(current, against, tier, threshold_file, noise, accept, source=source)


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
    open_: Open = False,
    verbose: Verbose = False,
) -> None:
    """Write one HTML page with charts, readable offline."""
    from functools import partial

    from canary.baseline.history import is_history
    from canary.compare.diagnosis.source_changes import source_between
    from canary.compare.paths import Request
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
    if first is None and against:
        raise UsageError("--baseline needs a run to compare", "canary report RUN BASELINE")
    if remote is not None and first is not None and not is_history(first):
        raise UsageError(f"{first} is a run, and --remote names a history", "give only one of them")
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


def profile(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run's folder, name or metrics.json.", parser=run_path
        ),
    ],
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="BASE",
            help="Also show differences from this run.",
            parser=run_path,
        ),
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


OutputFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of runs.")]


def list_(folder: OutputFolder = Path(OUTPUT_DIR), verbose: Verbose = False) -> None:
    """List the runs of a folder, newest last."""
    from canary.record.runs import runs_in
    from canary.report.runs_table import runs_text

    typer.echo(runs_text(runs_in(folder), folder))


def serve(
    folder: OutputFolder = Path(OUTPUT_DIR),
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")
    ] = 8642,
    open_: Open = False,
    verbose: Verbose = False,
) -> None:
    """Show the runs of a folder in the browser while they go on."""
    from canary.serve.server import serve as serve_until_stopped

    def ready(address: str) -> None:
        typer.echo(f"{address}  (Ctrl-C ends it)")
        if open_:
            typer.launch(address)

    serve_until_stopped(folder, port, ready)
