"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run_path(text: str) -> Path:
    """Return the run that a user names: its path, `latest`, or a part of its name."""
    from canary.record.runs import named_run

    return named_run(text)


OWN_CONFIG = Path("canary.yaml")


def chosen_config(given: Path | None) -> Path | None:
    """Return the config that a user names, or `canary.yaml` if there is one."""
    return given or (OWN_CONFIG if OWN_CONFIG.is_file() else None)


Config = Annotated[
    Path | None,
    typer.Argument(
        help="YAML file; default: canary.yaml, else the embedded DPO.", callback=chosen_config
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Overrides the file; may be repeated."),
]
Verbose = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="On errors, show tracebacks and the end of the log."),
]
AllChecks = Annotated[
    bool,
    typer.Option(
        "-v",
        "--verbose",
        help="Show all checks on a terminal; on errors, tracebacks and the end of the log.",
    ),
]

OutputDir = Annotated[
    Path | None, typer.Option("-o", "--output-dir", help="Folder for run folders.")
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write to this file, not to standard output.")
]
Open = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 if inconclusive.")]
Tier = Annotated[
    str | None, typer.Option("--threshold-tier", help="Limits: default, smoke, perf or nightly.")
]
ThresholdFile = Annotated[Path | None, typer.Option("--threshold-file", help="YAML with limits.")]
Noise = Annotated[Path | None, typer.Option("--noise", help="Noise model from calibrate.")]
RemoteName = Annotated[
    str | None,
    typer.Option(
        "--remote", metavar="URL|NAME", help="Repository of the branch [the job's, or origin]."
    ),
]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="The baseline branch.")]
BRANCH = "canary-baselines"


def _known(form: str) -> str:
    from canary.report.render import check_format

    check_format(form)
    return form


Form = Annotated[
    str, typer.Option("--format", callback=_known, help="Output: text, markdown or json.")
]
Accept = Annotated[
    str | None,
    typer.Option("--accept", metavar="REASON", help="Accept changed learning, for this reason."),
]
AcceptPeriod = Annotated[
    str | None,
    typer.Option("--accept", metavar="REASON", help="Accept the change: begin a new period."),
]
StopOn = Annotated[
    str | None,
    typer.Option(
        "--stop-on",
        metavar="SEVERITY",
        help="Stop training at an alert of this severity or above: critical, high, medium or low.",
    ),
]
NoProgress = Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress.")]
