"""`history`: every metric of a history over its runs, and since when it is another."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from canary.cli.baseline import history_at
from canary.cli.options import BRANCH, Branch, Form, Output, RemoteName, Verbose


def history(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of the history; default: the baseline branch."),
    ] = None,
    remote: RemoteName = None,
    branch: Branch = BRANCH,
    canary: Annotated[str | None, typer.Option("--canary", help="Only this canary.")] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            "--pairs",
            metavar="FOLDER",
            help="What `canary ab -o` left: confirm a change that waits for more runs.",
        ),
    ] = None,
    form: Form = "text",
    output: Output = None,
    verbose: Verbose = False,
) -> None:
    """Say which metrics got worse, and since which commit."""
    from functools import partial

    from canary.baseline.commits import commits_between
    from canary.errors import UsageError, printable
    from canary.report.document import load_comparison
    from canary.report.history_view import history_text
    from canary.report.lines import terminal_width
    from canary.report.render import check_format, printed
    from canary.trends.history import require_history, trends_in

    check_format(form)
    require_history()
    from canary.trends.standing import with_pairs  # needs what was just required

    paired = None if pairs is None else load_comparison(pairs)
    with history_at(folder, remote, branch) as (root, shown):
        found = trends_in(root, shown, canary)
    if paired is not None:
        named = paired.current.name
        if all(one.canary != named for one in found):
            raise UsageError(
                f"--pairs {pairs} is of the canary {printable(named)}, which {shown} lacks",
                "compare the commits of a canary of this history",
            )
        found = [with_pairs(one, paired) if one.canary == named else one for one in found]
    width = None if output else terminal_width(sys.stdout)
    text = history_text(found, form, width, shown, partial(commits_between, Path.cwd()))
    first = text.split("\n", 1)[0] if form == "text" else f"the trends of {shown}"
    printed(text, first, output)
