"""The page with charts: drawn after the answer is out.

Whatever fails here costs the page alone, never the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from canary.baseline.comparability import own_slug
from canary.compare.report import WORST_FIRST
from canary.errors import CanaryError
from canary.gate.inputs import ReportSettings
from canary.github.confined import confined, not_drawn
from canary.github.status import Answer
from canary.github.workflow import Job
from canary.report.pages import can_draw, comparisons_text
from canary.report.render import write_text

NOT_INSTALLED = "no report with charts: the packages that draw it are not installed"


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
        job.say("notice", str(not_drawn(f"an unexpected {type(problem).__name__}")))
