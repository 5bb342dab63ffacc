"""A batch with more columns of padding, as the training's own collator would have made it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

IDS = "input_ids"
MASK = "attention_mask"
TOKEN_TYPES = (torch.int64, torch.int32, torch.int16)
IGNORE = -100
"""The label that a loss ignores."""
LEAST_SHARE = 3
"""One of so many rows must be padded, where only the tokens show it."""
MOST_TENSORS, DEEPEST = 1024, 32
"""Of a batch."""
PACKED = ("cu_seq", "seq_idx")
"""How the names begin of what says where packed documents lie."""


class Unclear(Exception):
    """A batch has padding, but it is not known what more padding would be."""


@dataclass(frozen=True)
class Entry:
    """A tensor of a batch."""

    name: str
    """Its key in the nearest mapping; empty in a list or tuple."""
    value: torch.Tensor


@dataclass(frozen=True)
class Padding:
    """Where the padding of token ids lies."""

    is_left: bool
    lengths: tuple[int, ...]
    """Columns of padding of each row."""


def widened(batch: Any, columns: int, widest: int | None = None) -> Any | None:
    """Return a batch with so many columns of padding more; None if no row of it is padded.

    Each tensor with one value per token gets what it already holds at the padding of a row. A batch
    does not become wider than `widest`.

    Raises:
        Unclear: it is not known what a tensor holds at padding.
    """
    entries = [*itertools.islice(tensors_of(batch), MOST_TENSORS + 1)]
    if len(entries) > MOST_TENSORS:
        raise Unclear(f"it has more than {MOST_TENSORS:,} tensors")
    changed: dict[int, torch.Tensor] = {}
    for ids, members in _groups(entries):
        padding = _padding(ids, members)
        room = columns if widest is None else min(columns, widest - ids.value.shape[1])
        if padding is None or room < 1:
            continue
        _require_known(entries, ids.value.shape[1])
        for one in members:
            changed[id(one.value)] = _wider(one, padding, room)
    return _rebuilt(batch, changed) if changed else None


def tensors_of(batch: Any, name: str = "", depth: int = 0) -> Iterator[Entry]:
    """Yield the tensors of a batch, through mappings, lists and tuples.

    Raises:
        Unclear: it is nested too deep.
    """
    if depth > DEEPEST:
        raise Unclear("it is nested too deep")
    if isinstance(batch, torch.Tensor):
        yield Entry(name, batch)
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from tensors_of(value, str(key), depth + 1)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors_of(value, name, depth + 1)


def _rebuilt(batch: Any, changed: Mapping[int, torch.Tensor]) -> Any:
    if isinstance(batch, torch.Tensor):
        return changed.get(id(batch), batch)
    if isinstance(batch, Mapping):
        made: Any = copy.copy(batch) if isinstance(batch, MutableMapping) else dict(batch)
        for key, value in batch.items():
            made[key] = _rebuilt(value, changed)
        return made
    if isinstance(batch, list):
        return [_rebuilt(value, changed) for value in batch]
    if isinstance(batch, tuple):
        parts = [_rebuilt(value, changed) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    return batch


def _is_ids(one: Entry) -> bool:
    value = one.value
    return value.dim() == 2 and value.dtype in TOKEN_TYPES and value.shape[1] > 1


def _groups(entries: Sequence[Entry]) -> list[tuple[Entry, list[Entry]]]:
    """Return the token ids of a batch, each with the tensors that have one value per token of it.
    Several ids, such as chosen and rejected ones, share what is before or after their name."""
    named = [one for one in entries if IDS in one.name and _is_ids(one)]
    found = named or [one for one in entries if _is_ids(one)][:1]
    groups: dict[int, tuple[Entry, list[Entry]]] = {id(ids): (ids, []) for ids in found}
    for one in entries if found else ():
        ids = found[0] if len(found) == 1 else _owner(one, found)
        if ids is None or one.value.dim() != 2:
            continue
        rows, width = ids.value.shape
        if one.value.shape[0] == rows and one.value.shape[1] in (width - 1, width):
            groups[id(ids)][1].append(one)
    return [*groups.values()]


def _owner(one: Entry, found: Sequence[Entry]) -> Entry | None:
    """Return the ids whose name shares the most with that of a tensor."""

    def shared(ids: Entry) -> int:
        before, _, after = ids.name.partition(IDS)
        matches = one.name.startswith(before) and one.name.endswith(after)
        return len(before) + len(after) if matches else -1

    best = max(found, key=shared)
    return best if shared(best) >= 0 else None


def _padding(ids: Entry, members: Sequence[Entry]) -> Padding | None:
    """Return where the padding is, None if no row has any."""
    same = (one.value for one in members if MASK in one.name)
    mask = next((value for value in same if value.shape == ids.value.shape), None)
    if mask is None:
        return _of_values(ids, [one for one in members if one is not ids])
    return _of_mask(mask)


def _of_mask(mask: torch.Tensor) -> Padding | None:
    real = mask.bool()
    if bool(real.all()):
        return None
    if not bool(real.any(dim=1).all()):
        raise Unclear("a row has only padding")
    width = real.shape[1]
    left = real.int().argmax(dim=1)
    right = real.flip(1).int().argmax(dim=1)
    if bool((left + right + real.sum(dim=1) != width).any()) or bool(left.any() and right.any()):
        raise Unclear("padding lies on both sides, or between tokens")
    is_left = bool(left.any())
    return Padding(is_left, tuple((left if is_left else right).tolist()))


def _of_values(ids: Entry, others: Sequence[Entry]) -> Padding | None:
    """Return the padding that ids show by themselves.

    It is a token that is only at one end of rows, of many but not of all. Other tensors must hold 0
    there, or the label that is ignored.
    """
    rows = len(ids.value)
    found = []
    for is_left in (False, True):
        edge = ids.value[:, 0] if is_left else ids.value[:, -1]
        for token in {*edge.tolist()}:
            is_pad = ids.value == token
            outer = is_pad if is_left else is_pad.flip(1)
            lengths = outer.long().cumprod(dim=1).sum(dim=1)
            alone = int(is_pad.sum()) == int(lengths.sum())
            many = rows <= LEAST_SHARE * int((lengths > 0).sum()) and not int(lengths.min())
            padding = Padding(is_left, tuple(lengths.tolist()))
            if alone and many and int(lengths.max()) > 1 and (others or token == 0):
                found.append(padding)
    found = [one for one in found if _agree(others, one, 1)]
    if len(found) > 1:
        found = [one for one in found if _agree(others, one, 0)]
    if len(found) > 1:
        raise Unclear("several tokens look like padding")
    return found[0] if found else None


def _agree(others: Sequence[Entry], padding: Padding, trimmed: int) -> bool:
    """Whether tensors beside the ids hold 0, or the label that is ignored, at this padding."""
    for one in others:
        held = torch.cat(_held(one, padding, trimmed))
        if "position" not in one.name and not bool(((held == 0) | (held == IGNORE)).all()):
            return False
    return True


def _held(one: Entry, padding: Padding, trimmed: int) -> list[torch.Tensor]:
    """Return what padded rows hold at padding, without its innermost `trimmed` columns: labels may
    be moved by one column."""
    lengths = [max(0, length - trimmed) for length in padding.lengths]
    lengths = lengths if any(lengths) else [*padding.lengths]
    return [
        row[:length] if padding.is_left else row[len(row) - length :]
        for row, length in zip(one.value, lengths, strict=True)
        if length
    ]


def _require_known(entries: Sequence[Entry], width: int) -> None:
    """Raise Unclear if a tensor would need more columns in another way, or rows are packed."""
    for one in entries:
        if one.value.dim() > 2 and {*one.value.shape[1:]} & {width, width - 1}:
            raise Unclear("a tensor of more than two dimensions has one value per token")
        if one.name.startswith(PACKED):
            raise Unclear("rows hold packed documents")


def _wider(one: Entry, padding: Padding, columns: int) -> torch.Tensor:
    """Return a tensor with more columns at the padding's side."""
    value = one.value
    rows, width = value.shape
    steps = torch.arange(width, device=value.device)
    if not value.is_floating_point() and value.dtype != torch.bool and width > 1:
        if bool((value == steps).all()):  # positions
            return torch.arange(width + columns, device=value.device).to(value).expand(rows, -1)
        if "position" in one.name and _begins_again(value, padding):
            raise Unclear("rows hold packed documents")
    more = _more(one, padding).expand(rows, columns)
    return torch.cat([more, value] if padding.is_left else [value, more], dim=1)


def _begins_again(positions: torch.Tensor, padding: Padding) -> bool:
    width = positions.shape[1]
    for row, length in zip(positions, padding.lengths, strict=True):
        real = row[length:] if padding.is_left else row[: width - length]
        if bool((real[1:] < real[:-1]).any()):
            return True
    return False


def _more(one: Entry, padding: Padding) -> torch.Tensor:
    """Return what a tensor holds at padding: one value, or one per row."""
    value = one.value
    # Labels may be moved by one column.
    for trimmed in (0, 1):
        held = torch.cat(_held(one, padding, trimmed))
        known = bool(((held == 0) | (held == IGNORE)).all())
        several = len(held) > 1 and not trimmed
        if bool((held == held[0]).all()) and (known or several or _is_ids(one)):
            return held[:1].reshape(1, 1)
    edge = value[:, :1] if padding.is_left else value[:, -1:]
    rows = _held(one, padding, 0)
    if "position" in one.name and all(bool((row == row[0]).all()) for row in rows):
        return edge
    if bool((value == edge).all()):  # a weight of the row
        return edge
    raise Unclear(f"{one.name or 'a tensor'} holds different values at padding")
