"""Which commits a change descends from, and how near."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ancestry:
    """The commits that a merge base descends from, itself among them."""

    merge_base: str
    distances: Mapping[str, int]
    """Steps back from the merge base, children before parents, by 12 hex digits of the commit."""

    def __len__(self) -> int:
        return len(self.distances)

    def distance(self, commit: str) -> int | None:
        """Steps back to a commit, by its first 12 hex digits or more; None for no ancestor."""
        return self.distances.get(commit[:12])
