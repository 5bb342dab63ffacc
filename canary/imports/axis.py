"""The step of a row: which of its values counts the steps of the training."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from canary.errors import InputError
from canary.imports.entries import Entry, plain, shortened
from canary.imports.preset import Preset

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
    "_step",
    "current_steps",
    "global_steps",
    "steps",
    "iteration",
    "train/iteration",
    "training_iteration",
    "iterations",
    "iter",
)
"""Names of a row's step in any case, the surest first. W&B's `_step` counts calls of its `log`."""
LIKE_A_STEP = re.compile(r"(^|[/_.])(total_)?(time)?(steps?|iterations?|iters?|updates?)($|[/_.])")
LEAST_COUNTED = 5
"""Rows after which a value that counts upwards may be the step."""


def step_names(rows: Sequence[Entry], preset: Preset | None, source: str) -> tuple[str, ...]:
    """Return the names of the step among the values of rows. A row's step is its first of them.

    Raises:
        InputError: two names count differently, or an unknown name may be the step.
    """
    present = dict.fromkeys(name for row in rows for name in row.values)
    mine = [] if preset is None else [name for name in preset.step if name in present]
    usual = sorted(
        (name for name in present if plain(name) in STEP_NAMES and name not in mine),
        key=lambda name: (STEP_NAMES.index(plain(name)), name != plain(name)),
    )
    if not mine and not usual:
        _refuse_unknown(rows, present, source)
        return ()
    known = {*mine, *usual}
    filled = [row.values for row in rows if any(name not in known for name in row.values)]
    if not mine:
        whole = [name for name in usual if all(name in values for values in filled)]
        # A step that each epoch counts anew gives way to one that goes on.
        forward = (name for name in whole if plain(name) != "_step" and _goes_on(filled, name))
        if whole:
            return (next(forward, whole[0]),)
    group = mine or usual[:1]
    for name in usual:
        if name not in group and not any(_differ(values, name, group) for values in filled):
            group.append(name)
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


def _differ(values: Mapping[str, float | None], name: str, group: Sequence[str]) -> bool:
    """Whether a row has a name of the step with another value than the group's."""
    mine = next((values[one] for one in group if one in values), None)
    return name in values and mine is not None and values[name] != mine


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
