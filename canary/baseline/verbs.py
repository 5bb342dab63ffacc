"""The command line's verbs for a history, in a folder or on the baseline branch."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast, get_args

from canary.baseline.branch import Remote, pull, push
from canary.baseline.entry import Entry, Judgement
from canary.baseline.history import (
    VERSION,
    current_period,
    drawers,
    entries,
    is_history,
    periods,
    prune,
    require_usable,
    rows,
    save,
    save_file,
)
from canary.baseline.origin import Surroundings, context_of_run, event_of, require_writer
from canary.errors import InputError, UsageError, printable, writing
from canary.record.folder import load_record
from canary.record.types import RunRecord

STAGED = ".pulled-"
"""Prefix of the folder that holds a history until it is complete."""


def save_baseline(source: Path, destination: Path, accepted: str | None = None) -> str:
    """Store a run as a file or in a history, and return a message.

    Raises:
        InputError: the run did not complete, is too short, or the destination is unsuitable.
    """
    record = load_record(source)
    if destination.suffix == ".json" and not destination.is_dir():
        if accepted:
            raise InputError(
                "a single file has no periods", "use --accept only with the folder of a history"
            )
        save_file(destination, record)
        return printable(f"saved {record.run_id} as {destination}")
    if destination.is_file():
        raise InputError(f"{destination} is a file, not a folder", "name a .json file or a folder")
    if (destination / "metrics.json").exists():
        raise InputError(f"{destination} is the folder of a run", "name another folder")
    path = save(destination, record, accepted=accepted)
    period = current_period(entries(path.parent))
    return printable(
        f"saved {record.run_id} to {path.parent} ({_runs(len(period))} in this period)"
    )


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def list_text(root: Path, shown: str = "") -> str:
    """Return one line per canary and machine; `shown` names the history."""
    lines = [
        printable(
            f"{canary:<24} {machine:<36} {_runs(count):>9}, {period} in this period, "
            f"{first} to {last}"
        )
        for canary, machine, count, period, first, last in rows(root)
    ]
    return "\n".join(lines) or printable(f"{shown or root} holds no runs")


HEADINGS = ("run", "commit", "verdict", "step time", "memory", "period", "")


def show_text(root: Path, canary: str | None = None, shown: str = "") -> str:
    """Return one line per run, newest last, with commit, verdict and period; red runs have none.

    Raises:
        InputError: there is no history, or none of this canary.
        RecordError: an entry cannot be read.
    """
    lines = []
    for folder in drawers(root):
        if canary is not None and folder.parent.name != canary:
            continue
        found = entries(folder)
        numbers = dict(zip(kept := [e for e in found if not e.red], periods(kept), strict=True))
        cells = [HEADINGS, *(_cells(entry, numbers.get(entry)) for entry in found)]
        run, verdict = (max(len(row[place]) for row in cells) for place in (0, 2))
        lines.append(printable(f"{folder.parent.name} on {folder.name}"))
        for name, sha, judged, time, memory, number, accepted in cells:
            start = f"  {name:<{run}}  {sha:<9}  {judged:<{verdict}}"
            row = f"{start} {time:>9} {memory:>9} {number:>5}  {accepted}"
            lines.append(printable(row.rstrip()))
    if not lines and canary is None:
        return printable(f"{shown or root} holds no runs")
    if not lines:
        known = ", ".join(sorted({folder.parent.name for folder in drawers(root)}))
        raise InputError(f"no canary {canary!r} in {shown or root}", f"it has: {known or 'none'}")
    return "\n".join(lines)


def _cells(entry: Entry, period: int | None) -> tuple[str, ...]:
    document, record, context = entry.document(), entry.record(), entry.context()
    sha = (record.git.get("sha") or "no commit")[:9]
    memory = record.perf.max_mem_mb
    shown = f"{memory:,.0f} MB" if memory is not None else "-"
    verdict = (context.verdict if context else "") or "-"
    timed = record.perf.step_time
    time = f"{1000 * timed.median:.1f} ms" if timed.count else "-"
    accepted = f"accepted: {document['accepted']}" if document.get("accepted") else ""
    return (entry.run_id, sha, verdict, time, shown, str(period or "-"), accepted)


def prune_text(root: Path, keep: int) -> str:
    """Prune, and return a message with the number of removed runs."""
    if not is_history(root):
        drawers(root)
    removed = prune(root, keep)
    return f"removed {_runs(len(removed))}, kept the newest {keep} of each canary and machine"


def require_allowed(here: Surroundings) -> None:
    """Raise UsageError if this job may not write the baseline."""
    require_writer(here.environ, event_of(here.environ))


def judgement(text: str | None) -> Judgement:
    """Return the verdict that the user typed.

    Raises:
        UsageError: there is no such verdict.
    """
    known = get_args(Judgement)
    if text is not None and text not in known:
        allowed = ", ".join(filter(None, known))
        raise UsageError(f"--verdict {text!r}: no such verdict", f"use one of {allowed}")
    return cast(Judgement, text or "")


def push_paths(
    remote: Remote,
    here: Surroundings,
    paths: Sequence[Path],
    *,
    keep: int,
    verdict: str | None = None,
    accept: str | None = None,
) -> str:
    """Add runs to the branch in one commit, and return a message.

    Raises:
        UsageError: this job may not write the baseline, or the acceptance has no reason.
        InputError: a run cannot become a baseline.
        MachineError, RecordError: as `branch.push`.
    """
    require_allowed(here)
    if accept is not None and not accept.strip():
        raise UsageError("--accept needs a reason", "the reason is stored with the run")
    records = [load_record(path) for path in paths]
    return push_records(remote, here, records, keep=keep, verdict=judgement(verdict), accept=accept)


def push_records(
    remote: Remote,
    here: Surroundings,
    records: Sequence[RunRecord],
    *,
    keep: int,
    verdict: Judgement = "",
    accept: str | None = None,
) -> str:
    """Do as `push_paths` with loaded records; an acceptance starts its period at the first run."""
    for record in records:
        require_usable(record)
    ordered = sorted(records, key=lambda record: record.timestamp)
    contexts = [
        context_of_run(record, here, verdict, accept if place == 0 else None)
        for place, record in enumerate(ordered)
    ]

    def add(folder: Path) -> None:
        for record, context in zip(ordered, contexts, strict=True):
            save(folder, record, context=context)

    count = f"{len(ordered)} run{'s' if len(ordered) > 1 else ''}"
    commits = sorted({context.commit[:9] for context in contexts if context.commit})
    message = f"{count} of {', '.join(commits[:3])}" if commits else count
    pushed = push(remote, add, message=message, keep=keep, environ=here.environ)
    return f"{message} added to {remote}, now at {pushed.sha[:9]}"


def pull_text(remote: Remote, here: Surroundings, folder: Path, *, replace: bool = False) -> str:
    """Write the branch's history into a folder, an empty history without a branch, and return a
    message.

    Raises:
        InputError: the folder holds files that must not be replaced.
        MachineError: the folder cannot be written; it stays as it was.
    """
    if replace and is_history(folder) and any(map(_is_others, folder.iterdir())):
        raise InputError(f"{folder} holds more than a history", "name another folder")
    if not replace and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} is not empty",
            "name a new folder, or replace an existing history with --replace",
        )
    with pulled(remote, here) as (sha, history), writing(folder, "choose another place"):
        _put_in_place(history / VERSION, folder)
    if sha is None:
        return f"{remote} does not exist yet; {folder} is an empty history"
    return f"{remote} at {sha[:9]} is in {folder}"


def _is_others(path: Path) -> bool:
    """Return whether this is not part of a history. A killed pull may leave a staged one."""
    return path.name != VERSION and not path.name.startswith(STAGED)


def _put_in_place(history: Path, folder: Path) -> None:
    """Move a copy into the folder once it is complete; the old history goes last.

    Raises:
        OSError: the copy cannot be written. The old history stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / VERSION
    with tempfile.TemporaryDirectory(dir=folder, prefix=STAGED) as staged:
        new, old = Path(staged, "new"), Path(staged, "old")
        for path in history.rglob("*"):
            if path.is_file():
                made = new / path.relative_to(history)
                made.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, made)
        new.mkdir(exist_ok=True)
        if target.exists():
            target.rename(old)
        new.rename(target)
    for left in folder.glob(f"{STAGED}*"):
        shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def pulled(remote: Remote, here: Surroundings) -> Iterator[tuple[str | None, Path]]:
    """Yield the branch's commit and its history in a scratch folder; None and an empty history
    without a branch."""
    with tempfile.TemporaryDirectory(prefix="canary-history-") as scratch:
        folder = Path(scratch) / "history"
        sha = pull(remote, folder, environ=here.environ)
        (folder / VERSION).mkdir(parents=True, exist_ok=True)
        yield sha, folder


def prune_branch_text(remote: Remote, here: Surroundings, keep: int) -> str:
    """Prune the branch, and return a message with the number of removed runs.

    Raises:
        UsageError: this job may not write the baseline.
        InputError: there is no branch yet.
    """
    require_allowed(here)
    removed = 0

    def change(folder: Path) -> None:
        nonlocal removed
        if not is_history(folder):
            raise InputError(f"{remote} does not exist yet")
        removed = len(prune(folder, keep))

    pushed = push(remote, change, message=f"newest {keep} kept", keep=keep, environ=here.environ)
    return f"removed {removed} run{'' if removed == 1 else 's'}; {remote} is at {pushed.sha[:9]}"
