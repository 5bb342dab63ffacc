"""The step of a row: which value counts the steps, and whether they begin again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from canary.errors import InputError
from canary.imports.entries import Entry, listed, place_of, plain, shortened
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
"""Names of a row's step in any case, the surest first."""
OF_WANDB = "_step"
LEAST_BEFORE = 3
"""Steps of a metric before it begins again. Fewer are written again by ranks or a summary."""
EPOCH = "epoch"
NAME_IT = "name it in a preset, such as `step: [iteration]`, and add --preset FILE"


def step_names(rows: Sequence[Entry], preset: Preset | None, source: str) -> tuple[str, ...]:
    """Return the names of the step in rows. A row's step is its first of them: those that the
    preset names, else the surest name that every row has.

    Raises:
        InputError: no name of the step is known, or none stands in every row.
    """
    if not rows:
        return ()
    present = list(dict.fromkeys(name for row in rows for name in (*row.values, *row.texts)))
    mine = [name for name in (() if preset is None else preset.step) if name in present]
    if mine:
        return tuple(mine)
    usual = sorted(
        (name for name in present if plain(name) in STEP_NAMES),
        key=lambda name: STEP_NAMES.index(plain(name)),
    )
    if not usual:
        raise InputError(f"{source} has no step of a known name, only {listed(present)}", NAME_IT)
    named = [row for row in rows if any(name in row.values for name in usual)]
    whole = [name for name in usual if all(name in row.values for row in named)]
    if not whole and len(usual) > 1:
        what = f"{source} has a step in some rows as `{shortened(usual[0])}`, in others as"
        raise InputError(f"{what} `{shortened(usual[1])}`", NAME_IT)
    # A step that each epoch counts anew gives way to one that goes on, but not to W&B's own count.
    forward = (name for name in whole if plain(name) != OF_WANDB and _goes_on(named, name))
    return tuple([next(forward, whole[0])] if whole else usual[:1])


def _goes_on(rows: Sequence[Entry], name: str) -> bool:
    """Whether a name of the step never goes back."""
    counts = [value for row in rows if (value := row.values[name]) is not None]
    return all(was <= now for was, now in pairwise(counts))


def step_in(entry: Entry, names: Sequence[str], source: str) -> float | None:
    """Return an entry's step.

    Raises:
        InputError: it is there, but is no number.
    """
    if entry.step is not None:
        return entry.step
    for name in names:
        if name in entry.values:
            return entry.values[name]
        if name in entry.texts:
            raise InputError(
                f"{place_of(source, entry.line)}: the step `{shortened(name)}` is "
                f"{shortened(entry.texts[name])}, not a number",
                "write steps as whole numbers",
            )
    return None


def require_one_run(entries: Sequence[Entry], names: Sequence[str], source: str) -> None:
    """Refuse a metric that goes back to its first step: a second run begins there. A resumed run
    goes back less far. An epoch counts like a step, because lines without steps are numbered.

    Raises:
        InputError: names the place.
    """
    seen: dict[str, tuple[float, float, int]] = {}
    """Metric -> first and latest step, number of steps."""
    for entry in entries:
        step = step_in(entry, names, source)
        for name, value in entry.values.items():
            place = value if name == EPOCH else step
            if place is None or place < 0 or name in names:
                continue
            first, latest, count = seen.get(name, (place, place, 1))
            if place <= first and place < latest and count >= LEAST_BEFORE:
                kind = "epochs" if name == EPOCH else "steps"
                raise InputError(
                    f"{place_of(source, entry.line)}: the {kind} begin again at {place:g}, so a "
                    "second run begins there",
                    "write one run per file",
                )
            seen[name] = (first, max(place, latest), count + (place > latest))
