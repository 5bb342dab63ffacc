"""`advisories`: known faults of the installed packages, or of those of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from canary.cli.options import Form, run_path


def advisories(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN]",
            help="A run (folder, name or metrics.json) or a check's folder; default: this machine.",
            parser=run_path,
        ),
    ] = None,
    package: Annotated[
        list[str] | None,
        typer.Option("--package", metavar="PACKAGE", help="Only this one; may be repeated."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="List every known fault.")] = False,
    form: Form = "text",
) -> None:
    """List known faults of the training packages that apply here, with their sources."""
    from canary.advisories.choice import chosen
    from canary.advisories.condition import Known
    from canary.advisories.facts import known_of
    from canary.advisories.matching import matches
    from canary.check.answer import check_of, first_run
    from canary.errors import UsageError
    from canary.machine.packages import package_versions
    from canary.record.folder import load_record
    from canary.report import advisories as report
    from canary.report.lines import terminal_width

    if run is not None and all_:
        raise UsageError(
            "--all lists every fault, so a run has no part in it", "leave out one of them"
        )
    listed = chosen(package or [])
    if all_:
        view = report.all_view(listed)
        document = report.advisories_json(listed, view.first_line)
    else:
        whose = "the installed packages" if run is None else "this run"
        if run is not None and check_of(run) is not None:
            run = first_run(run) or run
        known = Known(package_versions()) if run is None else known_of(load_record(run))
        found = matches(listed, known)
        view = report.advisories_view(found, whose)
        document = report.advisories_json(found, view.first_line)
    if form == "json":
        typer.echo(document, nl=False)
    else:
        width = terminal_width(sys.stdout)
        typer.echo(report.advisories_text(view, form, width), nl=False)
