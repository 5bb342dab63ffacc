"""Compares how two steps cut their rows into micro-batches. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod

from canary.record.exact import Micro


def rows_of(micro_batches: Iterable[Micro]) -> dict[str, Counter[str]]:
    """Return hashes of a step's rows by the name of their ids, if a mask shows the padding."""
    found: dict[str, Counter[str]] = {}
    for micro in micro_batches:
        for name, rows in micro.get("rows", {}).items():
            masks = {name.replace("input_ids", "attention_mask"), f"{name.removesuffix('ids')}mask"}
            if masks & (set(micro.get("shapes", ())) - {name}):
                found.setdefault(name, Counter()).update(rows)
    return found


def same_rows(before: Sequence[Micro], after: Sequence[Micro]) -> bool:
    """Whether two steps train on the same rows, in any order and any micro-batches."""
    rows = rows_of(before)
    return bool(rows) and rows == rows_of(after)


def cut_otherwise(before: Sequence[Micro], after: Sequence[Micro]) -> bool:
    """Whether the number of micro-batches differs, or the same rows are in different ones."""
    if len(before) != len(after):
        return True
    pairs = zip(before, after, strict=True)
    return same_rows(before, after) and any(rows_of([a]) != rows_of([b]) for a, b in pairs)


def same_size(before: Sequence[Micro], after: Sequence[Micro]) -> bool:
    """Whether two steps have the same rows or tensor sizes: then their work can be compared, in
    any micro-batches."""
    return same_rows(before, after) or _numbers(before) == _numbers(after)


def _numbers(micro_batches: Iterable[Micro]) -> Counter[str]:
    found: Counter[str] = Counter()
    for micro in micro_batches:
        found["input_tokens"] += micro.get("input_tokens", 0)
        for name, shape in micro.get("shapes", {}).items():
            found[name] += prod(shape)
    return found
