"""The page of a ladder: its report once it is there, else its levels so far side by side."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from canary.errors import InputError, RecordError
from canary.ladder.levels import LEVELS
from canary.ladder.results import RESULTS
from canary.record.strangers import seen_record, stamp
from canary.report.charts.sides import ShownRun
from canary.serve.filling import filled
from canary.serve.following import UNREADABLE, Following
from canary.serve.listing import Place, RunLine
from canary.serve.live import CHARTS, STATE

NAME = re.compile(r"(ladder|advise)-\d{8}-\d{6}.*")
"""Folders of `canary ladder`, with and without `--advise`."""
LAUNCH = re.compile(r"-[^/]*\.(round\d+|guard|trial)-(.+)-[0-9a-f]+$")
"""What a launch is for, and its level, in the name of its folder."""
LEVELS_REGION = "levels"
GOING = "▶ no result yet"
IDLE_S = 120.0
"""Seconds since the newest launch began after which a ladder without a launch counts as quiet."""


def is_ladder(name: str) -> bool:
    """Return whether a folder has the name of a ladder's."""
    return NAME.fullmatch(name) is not None


def result_of(folder: Path) -> str | None:
    """Return the report of a ladder or an advice as a page; None while there is none.

    Raises:
        RecordError: its result cannot be read.
    """
    from canary.ladder.page import result_page

    there = (file for name in RESULTS if stamp(file := folder / name) is not None)
    return next(map(result_page, there), None)


def levels_text(lines: Sequence[RunLine]) -> dict[str, str]:
    """Return the table of a ladder's launches so far, the newest first."""
    rows = tuple((*_launch(line.name), line, f"/run/{quote(line.name)}") for line in lines)
    idle = time.time() - max((line.started for line in lines), default=0.0) > IDLE_S
    quiet = idle and not any(line.status == "running" for line in lines)
    state = "■ no launch is going; it may have ended without a result" if quiet else GOING
    return {
        LEVELS_REGION: filled("ladder_levels.html.jinja", rows=rows),
        STATE: filled("ladder_state.html.jinja", state=state),
    }


def level_charts_text(places: Sequence[Place]) -> dict[str, str]:
    """Draw the timed launches of each level."""
    from canary.report.charts.levels import level_charts
    from canary.report.page import shown_chart

    levels: dict[str, list[ShownRun]] = defaultdict(list)
    for place in sorted(places, key=lambda place: place.name):
        level, kind = _launch(place.name)
        if kind.startswith("round"):
            try:
                levels[level].append(_launched(place.path))
            except (InputError, RecordError, *UNREADABLE):
                continue
    order = sorted(filter(levels.get, levels), key=_place_of)
    charts = tuple(map(shown_chart, level_charts({name: levels[name] for name in order})))
    return {CHARTS: filled("charts.html.jinja", charts=charts) if charts else ""}


def _launched(folder: Path) -> ShownRun:
    record = seen_record(folder)
    going = record.status == "running"
    return Following(folder).look()[0].shown() if going else ShownRun(record)


def _launch(name: str) -> tuple[str, str]:
    """Return the level of a launch, and what it is for."""
    found = LAUNCH.search(name)
    return (found[2], found[1]) if found else ("", "")


def _place_of(level: str) -> tuple[int, str]:
    known: list[str] = list(LEVELS)
    return (known.index(level) if level in known else len(known), level)
