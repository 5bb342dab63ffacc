"""The command line's verbs for a history, in a folder or on the baseline branch."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from canary.baseline.branch import Remote, pull, push
from canary.baseline.entry import Entry
from canary.baseline.history import (
    VERSION,
    current_period,
    drawers,
    entries,
    is_history,
    periods,
    prune,
    require_usable,
    save,
    save_file,
)
from canary.baseline.origin import Surroundings, context_of_run, event_of, require_writer
from canary.errors import InputError, UsageError, counted, printable, writing
from canary.record.folder import load_record, parse_record
from canary.record.types import RunRecord


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
        f"saved {record.run_id} to {path.parent} ({counted(len(period), 'run')} in this period)"
    )


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
    stored = entry.stored()
    record, context = parse_record(stored.record, entry.path), stored.context
    sha = (record.git.get("sha") or "no commit")[:9]
    memory = record.perf.max_mem_mb
    shown = f"{memory:,.0f} MB" if memory is not None else "-"
    verdict = (context.verdict if context else "") or "-"
    timed = record.perf.step_time
    time = f"{1000 * timed.median:.1f} ms" if timed.count else "-"
    accepted = f"accepted: {stored.accepted}" if stored.accepted else ""
    return (entry.run_id, sha, verdict, time, shown, str(period or "-"), accepted)


def prune_text(root: Path, keep: int) -> str:
    """Prune, and return a message with the number of removed runs."""
    removed = counted(len(prune(root, keep)), "run")
    return f"removed {removed}, kept the newest {keep} of each canary and machine"


def require_allowed(here: Surroundings) -> None:
    """Raise UsageError if this job may not write the baseline."""
    require_writer(here.environ, event_of(here.environ))


def push_runs(
    remote: Remote,
    here: Surroundings,
    records: Sequence[RunRecord],
    *,
    keep: int,
    accept: str | None = None,
) -> str:
    """Add runs to the branch in one commit, and return a message. An acceptance starts its period
    at the first run.

    Raises:
        UsageError: this job may not write the baseline, or the acceptance has no reason.
        InputError: a run cannot become a baseline.
        MachineError, RecordError: as `branch.push`.
    """
    require_allowed(here)
    if accept is not None and not accept.strip():
        raise UsageError("--accept needs a reason", "the reason is stored with the run")
    for record in records:
        require_usable(record)
    ordered = sorted(records, key=lambda record: record.timestamp)
    contexts = [
        context_of_run(record, here, accept if place == 0 else None)
        for place, record in enumerate(ordered)
    ]

    def add(folder: Path) -> None:
        for record, context in zip(ordered, contexts, strict=True):
            save(folder, record, context=context)

    count = counted(len(ordered), "run")
    commits = sorted({context.commit[:9] for context in contexts if context.commit})
    message = f"{count} of {', '.join(commits[:3])}" if commits else count
    pushed = push(remote, add, message=message, keep=keep, environ=here.environ)
    return f"{message} added to {remote}, now at {pushed.sha[:9]}"


def pull_text(remote: Remote, here: Surroundings, folder: Path) -> str:
    """Write the branch's history into a new folder, an empty history without a branch, and return a
    message.

    Raises:
        InputError: the folder holds files.
        MachineError: the folder cannot be written; nothing is left of it.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not empty", "name a new folder")
    with writing(folder, "choose another place"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with pulled(remote, here, beside=folder) as (sha, history):
            history.rename(folder)
    if sha is None:
        return f"{remote} does not exist yet; {folder} is an empty history"
    return f"{remote} at {sha[:9]} is in {folder}"


@contextlib.contextmanager
def pulled(
    remote: Remote, here: Surroundings, beside: Path | None = None
) -> Iterator[tuple[str | None, Path]]:
    """Yield the branch's commit and its history in a scratch folder; None and an empty history
    without a branch. `beside`: where the scratch folder is made."""
    place = beside and beside.parent
    with tempfile.TemporaryDirectory(dir=place, prefix="canary-history-") as scratch:
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
    return f"removed {counted(removed, 'run')}; {remote} is at {pushed.sha[:9]}"
