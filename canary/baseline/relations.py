"""What the check of an earlier commit showed, from the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from canary.baseline.ancestry import Ancestry
from canary.baseline.entry import COMMIT_DIGITS
from canary.baseline.history import descended, drawer, entries
from canary.record.types import RunRecord
from canary.relations.relation import RelationStatus


@dataclass(frozen=True)
class StoredRelations:
    """The relations that one stored run was asked."""

    statuses: Mapping[str, RelationStatus]
    commit: str
    """Its commit, 12 hex digits."""


def stored_relations(
    root: Path, record: RunRecord, ancestry: Ancestry | None, without: str = ""
) -> StoredRelations | None:
    """Return the newest stored check of the record's canary and machine, of the nearest ancestor.

    Red runs count too: a relation that was already broken there is known.

    Args:
        root: the history.
        record: the run whose canary and machine count.
        ancestry: the ancestors of the merge base; None: all runs, by their start.
        without: a commit whose runs do not count, such as the judged one.

    Raises:
        RecordError: an entry cannot be read.
    """
    found = [
        entry
        for entry in entries(drawer(root, record))
        if entry.commit and not (without and without.startswith(entry.commit))
    ]
    for entry in reversed(found if ancestry is None else descended(found, ancestry)):
        context = entry.context()
        if context is not None and context.relations:
            return StoredRelations(context.relations, entry.commit[:COMMIT_DIGITS])
    return None
