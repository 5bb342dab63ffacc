"""The user's functions that differ between two runs: their slot in the training and file. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.diagnosis.suspects import Evidence
from canary.record.exact import OwnCode
from canary.record.types import RunRecord

LOOP = "loop"
"""Slots that begin so hold functions of a loop of plain torch; their numbers say nothing."""
MODULE = ".<module>"
"""End of the name of a file's top-level code. Its hash covers the functions in the file too."""


@dataclass(frozen=True)
class CodeChange:
    """The user's function in one slot of the training."""

    slot: str
    """Its role: `data_collator`, `trainer.compute_loss`, ...; of a loop, `loop` and its name."""
    baseline: OwnCode | None
    """None if the baseline has no user function there."""
    current: OwnCode | None
    changed_line: int | None = None
    """The first changed line of it, if the commits' difference is known."""

    def sentence(self) -> str:
        """Return the change in words."""
        if self.slot.startswith(LOOP):
            return self._sentence_of_loop()
        if self.current is None:
            return f"{self.slot} is no longer {_where(self.baseline)}"
        if self.baseline is None:
            return f"{self.slot} is now {_where(self.current)}"
        return f"{self.slot}: the code of {_where(self.current)} changed"

    def _sentence_of_loop(self) -> str:
        fact = self.current or self.baseline or {}
        file, line = fact.get("file"), fact.get("line")
        whole = str(fact.get("name")).endswith(MODULE)
        what = f"the code of {file}" if whole else f"function {_own_name(fact)} of {file}"
        if self.current is None or self.baseline is None:
            place = "" if whole else f" (line {line})"
            is_now = "is no longer" if self.current is None else "is now"
            return f"{what}{place} {is_now} part of the training loop"
        if self.changed_line is not None:
            return f"{what} changed, first in line {self.changed_line}"
        return f"{what} changed" if whole else f"{what} (line {line}) changed"

    def evidence(self) -> Evidence:
        """Return the change as evidence. A file's top-level code has only a line that git knows."""
        where = self.current or self.baseline or {}
        whole = str(where.get("name")).endswith(MODULE)
        line = self.changed_line or (None if whole else where.get("line"))
        return Evidence("code", self.sentence(), path=where.get("file") or "", line=line)


def _where(fact: OwnCode | None) -> str:
    if fact is None:
        return "there"
    return f"{fact.get('name')} ({fact.get('file')}:{fact.get('line')})"


def _own_name(fact: OwnCode) -> str:
    """Return the function's name without that of its module, which the file says."""
    name = str(fact.get("name"))
    stem = str(fact.get("file")).rpartition("/")[2].removesuffix(".py")
    _, found, rest = f".{name}".partition(f".{stem}.")
    return rest if found else name.removeprefix("__main__.")


Code = Mapping[str, OwnCode]


def code_changes(
    before: RunRecord, now: RunRecord, source: SourceChanges | None = None
) -> tuple[CodeChange, ...]:
    """Return the slots whose function differs; empty if a side recorded no code."""
    recorded = [record.exact.get("evidence", {}).get("code") for record in (before, now)]
    if recorded[0] is None or recorded[1] is None:
        return ()
    was, new = (_by_role(code) for code in recorded if code is not None)
    changes = [
        CodeChange(role, was.get(role), new.get(role), _changed_line(new.get(role), new, source))
        for role in dict.fromkeys((*new, *was))
        if _hash(was.get(role)) != _hash(new.get(role))
    ]
    return tuple(one for one in changes if not any(_covers(one, other) for other in changes))


def _by_role(code: Code) -> dict[str, OwnCode]:
    """Return the functions, those of a loop by name: another depth on the stack is no change."""
    found: dict[str, OwnCode] = {}
    for slot, fact in code.items():
        loop = slot.startswith(LOOP)
        found.setdefault(f"{LOOP} {fact.get('file')} {fact.get('name')}" if loop else slot, fact)
    return found


def _covers(change: CodeChange, other: CodeChange) -> bool:
    """Return whether a loop's code changed because a function inside it did."""
    sides = (change.baseline, change.current, other.baseline, other.current)
    if change is other or not change.slot.startswith(LOOP) or None in sides:
        return False
    outer, inner = (str(one.current and one.current.get("name")) for one in (change, other))
    same_file = _file(change.current) == _file(other.current)
    whole = outer.endswith(MODULE) and not inner.endswith(MODULE)
    return same_file and (whole or inner.startswith(f"{outer}.<locals>."))


def _changed_line(fact: OwnCode | None, code: Code, source: SourceChanges | None) -> int | None:
    """Return the first changed line from the function's first line on, before the next one."""
    line = fact.get("line") if fact else None
    if fact is None or source is None or line is None:
        return None
    hunk = source.hunk(str(fact.get("file")), line)
    if hunk is None or hunk.line < line:
        return None
    whole = str(fact.get("name")).endswith(MODULE)
    after = () if whole else (start for start in _starts(fact, code) if start > line)
    return hunk.line if hunk.line < min(after, default=hunk.line + 1) else None


def _starts(fact: OwnCode, code: Code) -> Iterator[int]:
    """Yield the first lines of the known functions of the same file that it does not contain."""
    inner = f"{fact.get('name')}.<locals>."
    for other in code.values():
        line = other.get("line")
        if line and _file(other) == _file(fact) and not str(other.get("name")).startswith(inner):
            yield line


def _file(fact: OwnCode | None) -> str | None:
    return fact.get("file") if fact else None


def _hash(fact: OwnCode | None) -> str | None:
    return fact.get("sha256") if fact else None
