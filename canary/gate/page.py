"""The page with charts: drawn after the answer is out, and linked once it is uploaded.

Whatever fails here costs the page alone, never the answer.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from canary.baseline.comparability import own_slug
from canary.compare.report import WORST_FIRST
from canary.errors import EXIT_OK, CanaryError, InputError, MachineError
from canary.gate.context import World
from canary.gate.failsafe import Target, known_repository
from canary.gate.inputs import ReportSettings
from canary.github.client import Refused
from canary.github.comment import Section
from canary.github.confined import Limits, confined, one_line
from canary.github.sticky import comment_author, write_comment
from canary.github.workflow import Job
from canary.report.pages import can_draw, comparisons_text
from canary.report.render import write_text

LIMITS = Limits(cpu_s=120, wall_s=300.0)
"""The engine that draws reserves gigabytes of addresses, so its memory has no limit of its own."""
NOT_INSTALLED = "no report with charts: the packages that draw it are not installed"
SAFE = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&=%+,;-]+")
"""Addresses that stay one link in Markdown."""


def leave_page(target: Target) -> None:
    """Draw the page in a process without the token, and write it into the report's folder. Keep
    what the link in the comment needs."""
    settings, job = target.settings, target.world.job
    if not target.judged:
        return
    if not can_draw():
        job.line(NOT_INSTALLED)
        return
    judged = sorted(target.judged, key=lambda one: WORST_FIRST.index(one.answer.comparison.verdict))
    several = [(one.answer.canary, one.compared) for one in judged]
    path = settings.report / f"{own_slug(settings.name)}-report.html"
    with harmless(job, _not_drawn):
        write_text(path, confined(comparisons_text, several, limits=LIMITS, failed=_not_drawn))
        _keep_for_link(target)
        job.set_outputs({"report-file": str(path)})


def _not_drawn(why: str) -> MachineError:
    return MachineError(f"no report with charts: {one_line(why)}")


@contextlib.contextmanager
def harmless(job: Job, failed: Callable[[str], CanaryError]) -> Iterator[None]:
    """Make a notice of what fails in the block. The answer is out, so the job must not fail."""
    try:
        yield
    except CanaryError as problem:
        job.say("notice", str(problem))
    except Exception as problem:  # noqa: BLE001 - what nobody foresaw must not fail it either
        job.say("notice", str(failed(f"an unexpected {type(problem).__name__}")))


class Waiting(BaseModel):
    """A comment that gets the link, as it lies between the two steps."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pull_request: int
    place: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """Stands in the texts where the link will."""
    sections: list[tuple[Section, str]]
    """Each with its text."""


def place_of_link() -> str:
    """Return a text that nothing else holds; empty if no page can be drawn."""
    return secrets.token_hex(16) if can_draw() else ""


def _keep_for_link(target: Target) -> None:
    """Keep the comment's sections with the place of the link, for the step after the upload."""
    said, number = target.said, target.number
    if said is None or not target.settings.comment or number is None:
        return
    waiting = Waiting(
        pull_request=number,
        place=target.place,
        sections=[(section, section.text) for section in said.sections],
    )
    write_text(target.settings.link, waiting.model_dump_json())


@dataclass(frozen=True)
class Uploaded:
    """Addresses of what the job uploaded; empty if it was not."""

    page: str = ""
    """The page itself, which a browser opens."""
    archive: str = ""
    """The report's folder as an archive, which holds the page too."""

    def words(self, name: str) -> str:
        """Return the link in Markdown; empty without an address."""
        if SAFE.fullmatch(self.page):
            return f"[with charts]({self.page})"
        if SAFE.fullmatch(self.archive):
            return f"`{name}` in the [zipped report]({self.archive})"
        return ""


def link(settings: ReportSettings, world: World, uploaded: Uploaded) -> int:
    """Name the uploaded page in the step's summary and in the comment; return the exit code 0."""
    words = uploaded.words(f"{own_slug(settings.name)}-report.html")
    if not words:
        world.job.say("notice", "the report with charts was not uploaded; no comment links it")
        return EXIT_OK
    world.job.add_summary(f"Report: {words}")
    try:
        waiting = _waiting(settings.link)
        if waiting is not None:
            _link_in_comment(settings, world, waiting, words)
    except (CanaryError, Refused) as problem:
        world.job.say("notice", f"the comment does not link the report: {problem}")
    return EXIT_OK


def _waiting(path: Path) -> Waiting | None:
    """Return the comment that waits for the link; None if there is none.

    Raises:
        InputError: the file is not what `leave_page` wrote.
    """
    if not path.is_file():
        return None
    try:
        return Waiting.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(f"{path} cannot be read") from error


def _link_in_comment(settings: ReportSettings, world: World, waiting: Waiting, words: str) -> None:
    """Write the sections with the link, unless a later answer is there."""
    hub = world.hub
    sections = [
        section.model_copy(update={"text": text.replace(waiting.place, words), "link": words})
        for section, text in waiting.sections
        if waiting.place in text
    ]
    if not sections:
        return  # A user's template leaves it out.
    repository = known_repository(hub, settings.repository)
    login = comment_author(hub, settings.author)
    said = write_comment(hub, repository, waiting.pull_request, sections, login, settings.jobs)
    world.job.line(said.note or f"{said.url} links the report")
