"""Read the runs of an incident, hold them against its story, and write facts and charts."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Callable
from datetime import datetime
from importlib import metadata
from pathlib import Path

from bench.corpus.row import Row
from canary.compare.paths import Compared
from canary.machine.git import run_git
from canary.report.pages import compared_in
from tools.gallery.facts import Incident, Picture, cause_of, failed_of, loss_of, write_facts
from tools.gallery.pictures import PictureError, drawn
from tools.gallery.rows import row_of
from tools.gallery.running import DIFF, RUNS, is_run, run_incident
from tools.gallery.stories import Story, contradictions
from tools.pictures.recorded_demo import ROOT, DrawError, comment_text, refuse_paths

PACKAGES = ("torch", "transformers", "trl")


class NotMade(Exception):
    """An incident that cannot be shown. The text says why."""


def make(story: Story, kept: Path, output: Path, say: Callable[[str], None]) -> None:
    """Train an incident unless its runs are kept, and write its facts and charts.

    Raises:
        NotMade: a run says something else than the story, or a file would show this machine.
        CanaryError: a side cannot run.
    """
    folder, row = kept / story.name, row_of(story.row)
    if not is_run(folder):
        shutil.rmtree(folder, ignore_errors=True)
        run_incident(row, story.title, folder, say)
    compared = compared_in(folder / RUNS, folder / "head")
    try:
        pictures = drawn(compared, story.charts, story.name)
        facts = facts_of(story, row, folder, compared, tuple(pictures))
        for shown in (facts.model_dump_json(), *pictures.values()):
            refuse_paths(shown, folder)
            refuse_host(shown)
    except (PictureError, DrawError) as problem:
        raise NotMade(str(problem)) from problem
    wrong = contradictions(story, facts)
    if wrong:
        raise NotMade(f"the run contradicts the story: {'; '.join(wrong)}")
    for old in output.glob(f"{story.name}.*.svg"):
        old.unlink()
    for picture, svg in pictures.items():
        (output / picture.file).write_text(svg, encoding="utf-8")
    write_facts(facts, output / f"{story.name}.json")


def facts_of(
    story: Story, row: Row, folder: Path, compared: Compared, charts: tuple[Picture, ...]
) -> Incident:
    """Return the extract of a comparison that the page shows."""
    found, newest = compared.found, compared.current[-1]
    first = found.first_difference
    return Incident(
        name=story.name,
        day=datetime.fromisoformat(newest.timestamp).date().isoformat(),
        commit=_commit(),
        packages={name: metadata.version(name) for name in PACKAGES},
        row=row.id,
        incident=row.incident,
        canary=newest.name,
        steps=len(newest.stability.loss_values),
        runs=len(compared.current),
        limits=found.tier,
        diff=(folder / DIFF).read_text(encoding="utf-8"),
        verdict=found.verdict,
        first_line=found.first_line,
        failed=failed_of(compared),
        first_difference=first.sentence() if first else None,
        cause=cause_of(compared),
        loss=loss_of(compared),
        charts=charts,
        comment=comment_text(folder / RUNS),
    )


def refuse_host(shown: str) -> None:
    """Raise a DrawError if a text has this machine's name."""
    if re.search(rf"\b{re.escape(socket.gethostname())}\b", shown):
        raise DrawError("a page would show this machine's name")


def _commit() -> str:
    """Return the newest commit that changed the canary's package, which must be as committed."""
    if _git("status", "--porcelain", "--", "canary"):
        raise NotMade("the canary's package has uncommitted changes: commit them first")
    return _git("log", "-1", "--format=%h", "--abbrev=9", "--", "canary")


def _git(*arguments: str) -> str:
    ended = run_git(ROOT, *arguments)
    if ended.code:
        raise NotMade(f"git {arguments[0]}: {ended.err.decode(errors='replace').strip()}")
    return ended.text
