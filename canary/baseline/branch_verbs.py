"""The command line's verbs for the baseline branch: push, pull, prune."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from canary.baseline.branch import Remote, pull, push
from canary.baseline.entry import Judgement
from canary.baseline.history import VERSION, is_history, prune, require_usable, save
from canary.baseline.origin import Surroundings, context_of_run, event_of
from canary.baseline.policy import require_writer
from canary.errors import InputError, UsageError
from canary.record.folder import load_record
from canary.record.types import RunRecord


def require_allowed(here: Surroundings) -> None:
    """Raise UsageError if this job may not write the baseline."""
    require_writer(here.environ, event_of(here.environ))


def judgement(text: str | None) -> Judgement:
    """Return the verdict that the user typed.

    Raises:
        UsageError: there is no such verdict.
    """
    known = [one for one in get_args(Judgement) if one]
    for one in known:
        if one == text:
            return one  # type: ignore[no-any-return]
    if text:
        raise UsageError(f"--verdict {text!r}: no such verdict", f"use one of {', '.join(known)}")
    return ""


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
    """
    if replace and is_history(folder) and [path.name for path in folder.iterdir()] != [VERSION]:
        raise InputError(f"{folder} holds more than a history", "name another folder")
    if not replace and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} is not empty",
            "name a new folder, or replace an existing history with --replace",
        )
    with pulled(remote, here) as (sha, history):
        if replace and is_history(folder):
            shutil.rmtree(folder / VERSION)
        shutil.copytree(history, folder, dirs_exist_ok=True)
    if sha is None:
        return f"{remote} does not exist yet; {folder} is an empty history"
    return f"{remote} at {sha[:9]} is in {folder}"


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
