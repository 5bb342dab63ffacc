"""The pages, as text: each is made from what is on disk now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from canary.compare.diagnosis.source_changes import source_between
from canary.compare.paths import Request, compared_records
from canary.errors import InputError
from canary.ladder.report import result_page
from canary.ladder.results import FILE, load_result
from canary.record.folder import RunFolder
from canary.record.ranks import rank_files
from canary.record.strangers import seen_record, stamp
from canary.report.pages import comparisons_text
from canary.report.render import filled_page
from canary.serve.listing import HEADINGS, Listing, Place, RunLine, above
from canary.serve.live import EVERY_MS, LiveRun

MOST_KEPT = 8
"""Pages that are kept until their files change."""
AGAIN = '<meta http-equiv="refresh" content="10">'
"""Loads the page of a ladder again while it climbs."""
UNWATCHED_S = 60.0
"""Seconds after which the rows of a run that nobody watches are dropped."""


class NoSuchPage(InputError):
    """Nothing here has this name."""


@dataclass
class Site:
    """What one server shows."""

    root: Path
    repository: Path = field(default_factory=Path.cwd)
    """Where the changed lines between two commits are looked up."""

    def __post_init__(self) -> None:
        self.listing = Listing(self.root)
        self._live: dict[str, LiveRun] = {}
        self._kept: dict[tuple[Path, ...], tuple[object, str]] = {}

    def place(self, name: str) -> Place:
        """Return a run by its name.

        Raises:
            NoSuchPage: there is none.
        """
        found = self.listing.places().get(name)
        if found is None:
            if not name:
                raise NoSuchPage("two runs are needed", "pick a current run and a baseline")
            raise NoSuchPage(f"no run {name!r}", "it may have been removed")
        return found

    def runs(self) -> str:
        """Return the page of all runs."""
        lines = self.listing.lines()
        campaigns = sorted({line.place.campaign for line in lines} - {""}, reverse=True)
        by_campaign = (
            (name, tuple(line for line in lines if line.place.campaign == name))
            for name in ("", *campaigns)
        )
        return filled_page(
            "runs.html.jinja",
            folder=str(self.root),
            every_ms=EVERY_MS,
            headings=HEADINGS,
            groups=[(name, self._ladders(some), some) for name, some in by_campaign if some],
        )

    def _ladders(self, lines: Sequence[RunLine]) -> list[tuple[str, str]]:
        """Return name and address of each ladder that some of the runs belong to, newest first."""
        folders = {folder for line in lines for folder in above(line)}
        found = sorted(str(one) for one in folders if (self.root / one / FILE).is_file())
        return [(Path(name).name, f"/ladder/{quote(name)}") for name in reversed(found)]

    def ladder(self, name: str) -> str:
        """Return the page of a ladder, as far as it has climbed.

        Raises:
            NoSuchPage: there is no such ladder.
            RecordError: its result cannot be read.
        """
        folder = PurePosixPath(name)
        lines = [one for one in self.listing.lines() if folder in above(one)]
        if not lines or not (self.root / name / FILE).is_file():
            raise NoSuchPage(f"no ladder {name!r}", "its result comes with the first round")
        text = with_way_back(result_page(load_result(self.root / name)))
        if any(line.status == "running" for line in lines):
            text = text.replace("<head>\n", f"<head>\n{AGAIN}\n", 1)
        return text

    def run(self, name: str) -> str:
        """Return the page of a run: it grows while the run goes on; then it is the report.

        Raises:
            NoSuchPage: there is no such run.
            InputError, RecordError: it cannot be read.
        """
        place = self.place(name)
        oldest = time.monotonic() - UNWATCHED_S
        self._live = {key: one for key, one in self._live.items() if one.asked >= oldest}
        if seen_record(place.path).status == "running":
            live = self._live.get(name) or LiveRun(place)
            self._live[name] = live
            return live.page()
        return self._report(Request((place.path,), (), load=seen_record))

    def comparison(self, current: str, baseline: str) -> str:
        """Return the report of two runs.

        Raises:
            NoSuchPage: there is no such run.
            CanaryError: they cannot be compared.
        """
        source = partial(source_between, self.repository)
        places = self.place(current).path, self.place(baseline).path
        return self._report(Request(places[:1], places[1:], source=source, load=seen_record))

    def _report(self, request: Request) -> str:
        """Return a report, the same again while its files did not change."""
        folders = [*map(RunFolder, (*request.current, *request.baseline))]
        files = [(one.metrics, *rank_files(one.steps).values()) for one in folders]
        key = tuple(one.path for one in folders)
        stamps = [stamp(file) for each in files for file in each]
        before, text = self._kept.pop(key, (None, ""))
        if before != stamps:
            text = with_way_back(comparisons_text([("", compared_records(request))]))
        self._kept[key] = (stamps, text)
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return text


def with_way_back(text: str) -> str:
    """Return a report with a link to the list of runs."""
    return text.replace("<body>\n", f"<body>\n{filled_page('served_nav.html.jinja')}", 1)


def message(title: str, hint: str) -> str:
    """Return a page that says why there is no other."""
    title, hint = (f"{text[:1].upper()}{text[1:]}" for text in (title, hint))
    return filled_page("served_message.html.jinja", title=title, hint=hint, every_ms=0)
