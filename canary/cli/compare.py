"""The verbs that read finished runs: `compare`, `profile`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from canary.cli.options import (
    Accept,
    AllChecks,
    Form,
    Noise,
    Output,
    Strict,
    ThresholdFile,
    Tier,
    Verbose,
    run_path,
)
from canary.errors import printable

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
