"""The pages, as text: each is made from what is on disk now."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

from canary.baseline.history import VERSION, drawers, is_history
from canary.compare.diagnosis.source_changes import source_between
from canary.compare.paths import Request, compared_records
from canary.errors import InputError, RecordError
from canary.record.folder import RunFolder
from canary.record.ranks import rank_files
from canary.record.strangers import MOST_BYTES, seen_record, stamp
from canary.report.html import environment
from canary.report.pages import COMPARISON, comparison_text, comparisons_in, comparisons_text
from canary.serve import live
from canary.serve.filling import filled, regions_of
from canary.serve.following import Following
from canary.serve.listing import Listing, Place, RunLine

MOST_KEPT = 8
"""Pages that are kept until their files change."""
RUNS = "runs"


class NoSuchPage(InputError):
    """Nothing here has this name."""


@dataclass(frozen=True)
class Group:
    """Runs under one heading."""

    title: str
    address: str
    rows: tuple[tuple[RunLine, str, str], ...]
    """Each run with its address and its age."""


@dataclass
class Site:
    """What one server shows."""

    root: Path
    history: Path | None = None
    repository: Path = field(default_factory=Path.cwd)
    """Where the changed lines between two commits are looked up."""

    def __post_init__(self) -> None:
        self.listing = Listing(self.root)
        self._kept: OrderedDict[tuple[str, ...], tuple[object, str]] = OrderedDict()

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

    def histories(self) -> tuple[tuple[str, Path], ...]:
        """Return the histories with their names."""
        named = [self.history] if self.history else []
        folders = [
            self.root,
            *sorted(path for path in self.root.glob("*") if not path.is_symlink()),
        ]
        found = dict.fromkeys(path for path in (*named, *folders) if is_history(path))
        return tuple((path.name or str(path), path) for path in found)

    def runs(self) -> str:
        """Return the page of all runs."""
        found = [
            (f"History: {name}", f"/history?name={quote(name)}") for name, _ in self.histories()
        ]
        return filled(
            "runs.html.jinja",
            folder=str(self.root),
            histories=tuple(found),
            events="/events/runs",
            regions=regions_of(self.runs_texts()),
        )

    def runs_texts(self) -> dict[str, str]:
        """Return the list of runs, which grows."""
        lines, now = self.listing.lines(), time.time()
        campaigns = dict.fromkeys(
            sorted({line.campaign for line in lines if line.campaign}, reverse=True)
        )
        groups = [_group("Runs", "", [line for line in lines if not line.campaign], now)]
        for name in campaigns:
            address = f"/campaign/{quote(name)}" if comparison_files(self.root / name) else ""
            groups.append(
                _group(name, address, [line for line in lines if line.campaign == name], now)
            )
        return {RUNS: filled("runs_list.html.jinja", groups=tuple(g for g in groups if g.rows))}

    def live_run(self, place: Place, following: Following, drawn: str | None) -> str:
        """Return the page of a run that goes on; `drawn`: its charts, if somebody watches it."""
        record = following.look()[0].record
        charts = live.charts(following) if drawn is None else {live.CHARTS: drawn}
        return filled(
            "live.html.jinja",
            title=record.name or "canary",
            subtitle=place.name,
            events=f"/events/run/{quote(place.name)}",
            regions=regions_of(live.words(following) | charts),
        )

    def ended_run(self, place: Place) -> str:
        """Return the report of a run that has ended.

        Raises:
            InputError, RecordError: its record cannot be read.
        """
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
        folders = (*request.current, *request.baseline)
        stamps = [
            stamp(file)
            for folder in folders
            for file in (RunFolder(folder).metrics, *rank_files(RunFolder(folder).steps).values())
        ]
        return self._kept_text(
            tuple(map(str, folders)), stamps, lambda: comparison_text(compared_records(request))
        )

    def history_text(self, name: str | None, canary: str | None) -> str:
        """Return the page of a history, by default the first one.

        Raises:
            NoSuchPage: there is none.
            InputError, RecordError: as `history_page`.
        """
        from canary.report.history_page import history_page

        found = [(shown, path) for shown, path in self.histories() if name in (None, "", shown)]
        if not found:
            what = f"no history {name!r}" if name else "no history here"
            raise NoSuchPage(what, "name one: canary serve FOLDER --history HISTORY")
        shown, folder = found[0]
        for place in (*folder.glob(VERSION), *folder.glob(f"{VERSION}/*"), *drawers(folder)):
            if place.is_symlink():
                raise RecordError(f"{place} is a link")
        for file in folder.glob(f"{VERSION}/*/*/*.json"):
            if stamp(file) is None:
                raise RecordError(f"{file} is not a regular file")
        return with_way_back(history_page(folder, shown, canary or None))

    def campaign(self, name: str) -> str:
        """Return the comparisons that a campaign left.

        Raises:
            NoSuchPage: there are none.
            RecordError: one cannot be read.
        """
        if name not in {place.campaign for place in self.listing.places().values()}:
            raise NoSuchPage(f"no campaign {name!r}", "it may have been removed")
        files = comparison_files(self.root / name)
        if not files:
            raise NoSuchPage(f"{name} has no comparison yet", "its runs are in the list")
        found = comparisons_in(self.root / name, seen_record)
        stamps = [stamp(file) for file in files]
        return self._kept_text((name,), stamps, lambda: comparisons_text(found))

    def _kept_text(self, key: tuple[str, ...], stamps: object, made: Callable[[], str]) -> str:
        """Return a page again while its files did not change."""
        kept = self._kept.get(key)
        if kept is None or kept[0] != stamps:
            kept = (stamps, with_way_back(made()))
            self._kept[key] = kept
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return kept[1]


def comparison_files(folder: Path) -> list[Path]:
    """Return a campaign's comparisons: regular files of a moderate size."""
    places = (folder, *sorted(path for path in folder.glob("*") if not path.is_symlink()))
    found = [(place / COMPARISON, stamp(place / COMPARISON)) for place in places]
    return [file for file, seen in found if seen is not None and seen[1] <= MOST_BYTES]


def with_way_back(text: str) -> str:
    """Return a report with a link to the list of runs."""
    way = environment().get_template("served_nav.html.jinja").render()
    return text.replace("<body>\n", f"<body>\n{way}", 1)


def message(title: str, hint: str) -> str:
    """Return a page that says why there is no other."""
    title, hint = (f"{text[:1].upper()}{text[1:]}" for text in (title, hint))
    return filled("served_message.html.jinja", title=title, hint=hint, events="")


def _group(title: str, address: str, lines: Sequence[RunLine], now: float) -> Group:
    rows = tuple((line, f"/run/{quote(line.name)}", line.age(now)) for line in lines)
    return Group(title, address, rows)
