"""The runs in an output folder, by age and by name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from canary.config.output import OUTPUT_DIR
from canary.errors import InputError, RecordError, counted
from canary.record.folder import keep_from_git, load_record
from canary.record.types import RunRecord

METRICS = "metrics.json"
LATEST = re.compile(r"latest(?:~(\d{1,6}))?")
CAMPAIGN = re.compile(r"(?:ab|bisect|check|demo|ladder|matrix)-\d{8}-\d{6}.*")
"""Folders of `ab`, `bisect`, `check`, `demo`, `ladder` and `matrix`, which hold several runs."""
MOST_TRIED = 8
"""Runs that are read to find the one before."""
MOST_NAMED = 5
"""Runs that an error names."""


@dataclass(frozen=True)
class StoredRun:
    """One run of an output folder; the record is None if it cannot be read."""

    path: Path
    record: RunRecord | None


def run_folders(root: Path) -> list[Path]:
    """Return the folders of the runs in an output folder and in its campaigns, oldest first."""
    found = [path.parent for path in root.glob(f"*/{METRICS}")]
    for campaign in root.glob("*"):
        if CAMPAIGN.fullmatch(campaign.name) and not campaign.is_symlink():
            found += [path.parent for path in _metrics_of(campaign)]
    return sorted(found, key=lambda path: path.name)


def runs_in(root: Path) -> list[StoredRun]:
    """Return the runs of an output folder, oldest first.

    Raises:
        InputError: there is no such folder.
    """
    if not root.is_dir():
        raise InputError(f"no folder {root}", "`canary run` makes one")
    return [StoredRun(path, _record(path)) for path in run_folders(root)]


def _record(path: Path) -> RunRecord | None:
    try:
        return load_record(path)
    except (InputError, RecordError):
        return None


def named_run(text: str, root: Path = Path(OUTPUT_DIR)) -> Path:
    """Return the run that `latest`, `latest~N`, a unique part of its name or its line in `canary
    list` means. Other texts come back as paths. Runs of campaigns are no latest ones, unless there
    are no others.

    Raises:
        InputError: there are fewer runs, or several have this part in their name.
    """
    path = Path(text)
    if path.exists() or set("*?[") & set(text):
        return path
    if len(path.parts) != 1:
        return listed if (listed := root / path).is_dir() else path
    folders = run_folders(root)
    if newest := LATEST.fullmatch(text):
        # The last run of a campaign may be of its baseline.
        folders = [folder for folder in folders if folder.parent == root] or folders
        back = int(newest[1] or 0)
        if back >= len(folders):
            count = counted(len(folders), "run")
            raise InputError(f"{text}: {root} holds {count}", "`canary list` names them")
        return folders[-1 - back]
    matching = [folder for folder in folders if text in folder.name]
    if len(matching) > 1:
        names = ", ".join(folder.name for folder in matching[-MOST_NAMED:])
        raise InputError(f"{text!r} is in the names of {len(matching)} runs: {names}", "name one")
    return matching[0] if matching else path


def next_command(run: Path) -> str:
    """Return the line that ends a run: how to compare it with the one before it.

    Only completed runs of the same canary are compared, and looks alone, as of `canary check`, only
    with each other. The canary's name stands between a folder's time and id."""
    root = run.parent
    runs = [folder for folder in run_folders(root) if folder.parent == root]
    older = [at for at, one in enumerate(runs) if one.name < run.name]
    same = [at for at in older if _canary(runs[at]) == _canary(run)]
    is_look = _looks_alone(run)
    same = [at for at in same[-MOST_TRIED:] if _looks_alone(runs[at], completed=True) == is_look]
    short = root.absolute() == Path(OUTPUT_DIR).absolute() and runs[-1:] == [run]
    newest = shlex.quote(str(run))
    if not same:
        pair = "latest latest~1" if short else f"NEW {newest}"
        return f"next: change something, run it again, then: canary compare {pair}"
    before = shlex.quote(str(runs[same[-1]]))
    pair = f"latest latest~{len(runs) - 1 - same[-1]}" if short else f"{newest} {before}"
    return f"next: canary compare {pair}"


def _looks_alone(run: Path, *, completed: bool = False) -> bool | None:
    """Return whether a run is a look alone; None if it has to be `completed` and is not."""
    record = _record(run)
    if completed and (record is None or record.status != "completed"):
        return None
    return record is not None and bool(record.config.get("exact"))


def _canary(run: Path) -> str:
    """Return the canary's name in `DAY-TIME-NAME-ID`, the name of a run's folder."""
    return run.name.split("-", 2)[-1].rpartition("-")[0]


def begin_campaign(folder: Path) -> None:
    """Make a campaign's folder.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keep_from_git(folder)


def _metrics_of(campaign: Path) -> Iterator[Path]:
    """Yield the records of a campaign's runs. Those of a ladder have no folder per side,
    those of a matrix one per cell and try."""
    yield from campaign.glob(f"*/{METRICS}")
    yield from campaign.glob(f"*/*/{METRICS}")
    yield from campaign.glob(f"cells/*/*/runs/*/{METRICS}")
