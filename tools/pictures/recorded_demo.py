"""Run `canary demo` on a terminal, and keep what it printed and wrote."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from canary.campaign.demo import FAULT
from canary.github.comment import LIMIT
from canary.github.section import section
from canary.github.status import Source
from canary.report.document import load_comparison

ROOT = Path(__file__).parents[2]
COLUMNS, ROWS = 100, 50
LONGEST_S = 900


class DrawError(Exception):
    """A picture cannot be drawn. The text says why."""


@dataclass(frozen=True)
class RecordedDemo:
    """One demo: its terminal and its files."""

    screen: str
    """What it printed, with terminal codes. The folder where it ran is left out of paths."""
    comment: str
    """What a reader sees of the comment on the planted fault, in Markdown."""
    report: Path
    """The HTML page of the planted fault."""


def record_demo(folder: Path) -> RecordedDemo:
    """Run the demo in the empty `folder`, on a terminal of `COLUMNS` columns.

    Raises:
        DrawError: the demo or its comment failed, or no report was written.
    """
    folder = folder.resolve()
    env = _environment()
    screen = _on_terminal("canary demo", folder, env).replace(f"{folder}/", "")
    reports = list(folder.glob(f"canary_output/demo-*/{FAULT}/report.html"))
    if len(reports) != 1:
        raise DrawError(f"the demo left {len(reports)} reports, not 1:\n{screen[-2000:]}")
    comment = comment_text(reports[0].parent)
    for shown in (screen, comment):
        refuse_paths(shown, folder)
    return RecordedDemo(screen, comment, reports[0])


def comment_text(comparison: Path) -> str:
    """Return what a reader sees of the comment on a comparison's folder, in Markdown."""
    text = section(load_comparison(comparison), Source("0" * 40), LIMIT)
    return text.split("\n<sub>")[0].strip() + "\n"  # this comment is of no commit


def refuse_paths(shown: str, *more: Path) -> None:
    """Raise a DrawError if `shown` has a path of this machine, or one of `more`."""
    places = (ROOT, Path(sys.prefix), Path.home(), Path(tempfile.gettempdir()), *more)
    for place in places:
        if f"{place}/" in shown:
            raise DrawError(f"a picture would show a path of this machine: {place}/")


def _environment() -> dict[str, str]:
    """Return the environment of a user whose PATH has this Python's programs."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return {**inherited, "PATH": path, "TERM": "xterm-256color"}


def _on_terminal(command: str, folder: Path, env: dict[str, str]) -> str:
    """Return what a command prints on a terminal, which `script` of util-linux makes."""
    sized = f"stty cols {COLUMNS} rows {ROWS}; exec {command}"
    words = ["script", "--quiet", "--return", "--flush", "--command", sized, os.devnull]
    try:
        program = subprocess.run(
            words,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LONGEST_S,
        )
    except subprocess.TimeoutExpired as late:
        raise DrawError(f"the demo did not end within {LONGEST_S} s") from late
    text = program.stdout.decode("utf-8").replace("\r\n", "\n")
    if program.returncode:
        raise DrawError(f"{command} exited with {program.returncode}:\n{text[-2000:]}")
    return text
