"""The step of a row: which of its values counts the steps of the training."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from canary.errors import InputError
from canary.imports.entries import Entry, Telling, no_step, plain, shortened
from canary.imports.preset import Preset

OF_WANDB = "_step"
"""W&B's count of the calls of its `log`."""
STEP_NAMES = (
    "step",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "training/global_step",
    "training_step",
    "train/step",
    "training/step",
    "train_step",
    "optimizer_step",
    "num_updates",
    OF_WANDB,
    "current_steps",
    "global_steps",
    "steps",
    "iteration",
    "train/iteration",
    "training_iteration",
    "iterations",
    "iter",
)
"""Names of a row's step in any case, the surest first."""
WHEN = re.compile(
    r"(\d+ days?, )?([\d/-]{8,10}[T ])?\d+:\d\d(:\d\d)?([.,]\d+)?( ?(Z|UTC|[+-]\d\d:?\d\d))?|"
    r"(\d+h ?)?(\d+m(in)? ?)?[\d.]+ ?m?s|"
)
"""A moment or a duration as programs print it."""
LIKE_A_STEP = re.compile(r"(^|[/_.])(total_)?(time)?(steps?|iterations?|iters?|updates?)($|[/_.])")
LEAST_COUNTED = 5
"""Rows after which a value that counts upwards may be the step."""


def step_names(
    rows: Sequence[Entry], preset: Preset | None, source: str, telling: Telling
) -> tuple[str, ...]:
    """Return the names of the step among the values of rows. A row's step is its first of them.

    Raises:
        InputError: a step is no number, two names count differently, or an unknown name may be the
            step.
    """
    present = dict.fromkeys(name for row in rows for name in row.values)
    asked = () if preset is None else preset.step
    mine = [name for name in asked if name in present]
    usual = sorted(
        (name for name in present if plain(name) in STEP_NAMES and name not in mine),
        key=lambda name: (STEP_NAMES.index(plain(name)), name != plain(name)),
    )
    filled = [row.values for row in rows if not {*mine, *usual}.issuperset(row.values)]
    group = mine or usual[:1]
    whole = [name for name in usual if all(name in values for values in filled)]
    if whole and not mine:
        # A step that each epoch counts anew gives way to one that goes on.
        forward = (name for name in whole if plain(name) != OF_WANDB and _goes_on(filled, name))
        group = [next(forward, whole[0])]
    _refuse_unread(rows, group, asked, source)
    if not group:
        _refuse_unknown(rows, present, source)
        return ()
    apart = [name for name in (*mine[1:], *usual) if _differs(filled, name, group)]
    for name in apart:
        words = f"the step is `{shortened(group[0])}`: `{shortened(name)}` counts differently"
        if plain(name) == plain(group[0]):
            raise InputError(f"{source}: {words}", "leave one of the two out")
        if plain(name) != OF_WANDB:
            telling.tell(words, source)
    if whole and not mine:
        return (group[0],)
    group += [name for name in usual if name not in (*group, *apart)]
    other = [values for values in filled if not any(name in values for name in group)]
    named = next((name for values in other for name in usual if name in values), None)
    if named is not None and not mine:
        raise InputError(
            f"{source}: some rows have the step `{shortened(group[0])}`, others "
            f"`{shortened(named)}`, and the two count differently",
            f"name one in a preset, such as `step: [{shortened(group[0])}]`, and add --preset FILE",
        )
    return tuple(group)


def _goes_on(filled: Sequence[Mapping[str, float | None]], name: str) -> bool:
    """Whether a name of the step never goes back."""
    counts = (values[name] for values in filled)
    return all(
        was is not None and now is not None and was <= now
        for was, now in itertools.pairwise(counts)
    )


def _differs(filled: Sequence[Mapping[str, float | None]], name: str, group: Sequence[str]) -> bool:
    """Whether a row has a name of the step with another value than the group's."""
    for values in filled:
        mine = next((values[one] for one in group if one in values), None)
        if name in values and mine is not None and values[name] != mine:
            return True
    return False


def _refuse_unread(
    rows: Sequence[Entry], group: Sequence[str], asked: Sequence[str], source: str
) -> None:
    """Refuse a row whose step is there but is no number. Words such as `final` stand for none."""
    for row in rows:
        if not row.values or any(name in row.values for name in group):
            continue
        for name, text in row.texts.items():
            known = plain(name) in STEP_NAMES or name in asked
            counts = re.search(r"\d", text) and not WHEN.fullmatch(text)
            needed = not group and (known or LIKE_A_STEP.search(plain(name)))
            if (known and needed) or (counts and (known or needed)):
                raise no_step(name, text, source, row.line)


def _refuse_unknown(rows: Sequence[Entry], names: Iterable[str], source: str) -> None:
    """Refuse rows that a value of another name counts: numbered from 1 they get wrong steps."""
    for name in names:
        if len(rows) < LEAST_COUNTED or not LIKE_A_STEP.search(plain(name)):
            continue
        counts = [row.values.get(name) for row in rows]
        if all(
            was is not None and now is not None and was < now and now == now // 1
            for was, now in itertools.pairwise(counts)
        ):
            raise InputError(
                f"{source} has no step of a known name, but `{shortened(name)}` may be one",
                f"name it in a preset: `step: [{shortened(name)}]`, and add --preset FILE",
            )


def step_in(entry: Entry, names: Sequence[str]) -> tuple[float | None, str]:
    """Return an entry's step, and the name that it has there."""
    if entry.step is not None:
        return entry.step, ""
    found = next((name for name in names if name in entry.values), "")
    return entry.values.get(found), found
