"""The page with charts: drawn after the answer is out, in a process with limits and no secrets.

Its texts are a stranger's. Whatever fails here costs the page alone, never the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from canary.baseline.comparability import own_slug
from canary.compare.report import WORST_FIRST
from canary.errors import CanaryError, MachineError, cut
from canary.gate.inputs import ReportSettings
from canary.github.status import Answer
from canary.github.workflow import Job
from canary.report.pages import can_draw, comparisons_text
from canary.report.render import write_text

NOT_INSTALLED = "no report with charts: the packages that draw it are not installed"
CPU_S = 120
WALL_S = 300.0
"""Longer than `CPU_S`: on a busy runner the process gets less than one CPU. Its memory has no limit
of its own, because the engine that draws reserves gigabytes of addresses."""
KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH")
"""Variables that Python may need to start; none of them is a token."""
LONGEST_REASON = 200
BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from canary.gate.page import draw; draw()"
)


def link_of(settings: ReportSettings) -> str:
    """Return the Markdown of the link to the page, which the workflow run keeps as an artifact;
    empty if none will be drawn."""
    if not (settings.run_id and can_draw()):
        return ""
    run = f"{settings.server_url}/{settings.repository}/actions/runs/{settings.run_id}"
    return f"[with charts]({run}#artifacts)"


def leave_page(settings: ReportSettings, judged: Sequence[Answer], job: Job) -> None:
    """Draw the page in a process without the token, and write it into the report's folder."""
    if not judged:
        return
    if not can_draw():
        job.line(NOT_INSTALLED)
        return
    worst_first = sorted(judged, key=lambda one: WORST_FIRST.index(one.comparison.verdict))
    several = [(one.canary, one.compared) for one in worst_first]
    path = settings.report / f"{own_slug(settings.name)}-report.html"
    try:
        write_text(path, confined(comparisons_text, several))
        job.set_outputs({"report-file": str(path)})
    except CanaryError as problem:
        job.say("notice", str(problem))
    except Exception as problem:  # noqa: BLE001 - the answer is out, so the job must not fail
        job.say("notice", str(_not_drawn(f"an unexpected {type(problem).__name__}")))


def _not_drawn(why: str) -> MachineError:
    """Return the error of a page that cannot be drawn, as one short line."""
    return MachineError(f"no report with charts: {cut(' '.join(why.split()), LONGEST_REASON)}")


def confined(work: Callable[..., str], *arguments: object) -> str:
    """Run a module's function in a child process; return its result.

    Raises:
        MachineError: it failed or exceeded a limit.
    """
    path = [entry for entry in sys.path if os.path.isabs(entry)]  # noqa: PTH117 - plain strings
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", BEGIN, json.dumps(path)],
            input=pickle.dumps((work, arguments)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in KEPT if name in os.environ},
            timeout=WALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _not_drawn(f"it takes more than {WALL_S:g} s") from error
    except OSError as error:
        raise _not_drawn(f"its process could not start: {error.strerror}") from error
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise _not_drawn(f"it takes more than {CPU_S} s of CPU time")
    try:
        text, problem = json.loads(done.stdout)
    except ValueError as error:
        raise _not_drawn(f"its process ended with exit code {done.returncode}") from error
    if problem:
        raise _not_drawn(problem)
    return str(text)


def draw() -> None:
    """In the child: set the limits, do the work, print text and error as JSON."""
    work, arguments = pickle.load(sys.stdin.buffer)
    # Where memory runs out, this process goes and not the job.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    for what, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, CPU_S, CPU_S + 1),
    ):
        # A lower limit that is already set stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (soft, hard))
    try:
        said = (work(*arguments), "")
    except MemoryError:
        said = ("", "it needs more memory than there is")
    except CanaryError as error:
        said = ("", str(error))
    print(json.dumps(said))
