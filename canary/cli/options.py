"""Options that several verbs of the command line share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path | None, typer.Argument(help="YAML file; without one, the embedded DPO.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value over the file, may be repeated."),
]
Verbose = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="Tracebacks and the end of the log on errors."),
]
AllChecks = Annotated[
    bool,
    typer.Option(
        "-v",
        "--verbose",
        help="All checks on a terminal; tracebacks and the end of the log on errors.",
    ),
]

OutputDir = Annotated[
    Path | None, typer.Option("-o", "--output-dir", help="Folder of run folders.")
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write here instead of standard output.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 where it is inconclusive.")]
Folder = Annotated[Path, typer.Argument(help="Folder of the history.")]
Tier = Annotated[
    str | None, typer.Option("--threshold-tier", help="default, smoke, perf or nightly.")
]
ThresholdFile = Annotated[Path | None, typer.Option("--threshold-file", help="YAML of thresholds.")]
Noise = Annotated[Path | None, typer.Option("--noise", help="Noise model that calibrate wrote.")]
RemoteName = Annotated[
    str | None,
    typer.Option(
        "--remote", metavar="URL|NAME", help="Repository of the branch [GitHub's own, or origin]."
    ),
]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="The baseline branch.")]
BRANCH = "canary-baselines"
Form = Annotated[str, typer.Option("--format", help="text, markdown or json.")]
Accept = Annotated[
    str | None,
    typer.Option("--accept", metavar="REASON", help="Accept a change of what is learned."),
]
StopOn = Annotated[
    str | None,
    typer.Option(
        "--stop-on",
        metavar="SEVERITY",
        help="End the training at an alert this severe: critical, high, medium or low.",
    ),
]
NoProgress = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]
