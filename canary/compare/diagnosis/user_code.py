"""The user's functions that differ between two runs: their slot in the training and file. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from canary.compare.diagnosis.suspects import Evidence
from canary.record.exact import OwnCode
from canary.record.types import RunRecord


@dataclass(frozen=True)
class CodeChange:
    """The user's function in one slot of the training."""

    slot: str
    """Its role: `data_collator`, `trainer.compute_loss`, ..."""
    baseline: OwnCode | None
    """None if the baseline has no user function there."""
    current: OwnCode | None

    def sentence(self) -> str:
        """Return the change in words."""
        if self.current is None:
            return f"{self.slot} is no longer {_where(self.baseline)}"
        if self.baseline is None:
            return f"{self.slot} is now {_where(self.current)}"
        return f"{self.slot}: the code of {_where(self.current)} changed"

    def evidence(self) -> Evidence:
        """Return the change as evidence."""
        where = self.current or self.baseline or {}
        path, line = where.get("file"), where.get("line")
        return Evidence("code", self.sentence(), path=path or "", line=line)


def _where(fact: OwnCode | None) -> str:
    if fact is None:
        return "there"
    return f"{fact.get('name')} ({fact.get('file')}:{fact.get('line')})"


def code_changes(before: RunRecord, now: RunRecord) -> tuple[CodeChange, ...]:
    """Return the slots whose function differs; empty if a side recorded no code."""
    was, new = (record.exact.get("evidence", {}).get("code") for record in (before, now))
    if was is None or new is None:
        return ()
    return tuple(
        CodeChange(slot, was.get(slot), new.get(slot))
        for slot in dict.fromkeys((*new, *was))
        if _hash(was.get(slot)) != _hash(new.get(slot))
    )


def _hash(fact: OwnCode | None) -> str | None:
    return fact.get("sha256") if fact else None
