"""The command line's verbs for a history in a folder: save, list, show, prune."""

from __future__ import annotations

from pathlib import Path

from canary.baseline.entry import Entry
from canary.baseline.history import (
    current_period,
    drawers,
    entries,
    is_history,
    periods,
    prune,
    rows,
    save,
    save_file,
)
from canary.errors import InputError, printable
from canary.record.folder import load_record


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
    time = f"{1000 * record.perf.step_time.mean:.1f} ms"
    accepted = f"accepted: {document['accepted']}" if document.get("accepted") else ""
    return (entry.run_id, sha, verdict, time, shown, str(period or "-"), accepted)


def prune_text(root: Path, keep: int) -> str:
    """Prune, and return a message with the number of removed runs."""
    if not is_history(root):
        drawers(root)
    removed = prune(root, keep)
    return f"removed {_runs(len(removed))}, kept the newest {keep} of each canary and machine"
