"""Compare the batches of two runs: their sequences, the order and the masks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from canary.record.exact import Micro

Steps = Sequence[Sequence[Micro]]

Key = Literal["rows", "texts"]
KEYS: tuple[Key, ...] = ("rows", "texts")
COMPLETIONS = "completion_ids"


@dataclass(frozen=True)
class BatchChange:
    """How the batches of both sides agree and differ."""

    known: bool
    """Whether both sides recorded the hashes of rows."""
    same_rows: bool = False
    """Each step has the same sequences in the same places; padding may differ."""
    same_multiset: bool = False
    """All steps together have the same sequences."""
    same_set_in_steps: bool = False
    """Each step has the same sequences, in any place."""
    same_texts: bool = False
    """All steps together have the same decoded texts."""
    texts_known: bool = False
    """Whether both sides recorded texts; they need a tokenizer for that."""
    in_place: float = 0.0
    """Share of the baseline's sequences that are in the same place, 0 to 1."""
    shared: float = 0.0
    """Share of the baseline's sequences that the current side has in any place."""
    same_prompts: bool = False
    """Online RL: the prompts are equal."""
    same_prompt_texts: bool = False
    """Online RL: the prompts have the same texts but different ids."""
    steps_differ_from: int | None = None
    """The first step whose rows differ, from 1."""
    rows_per_step: tuple[int, int] | None = None
    """(baseline, current), if each side has one number of rows in all steps and they differ."""
    same_first_texts: bool = False
    """Step 1 has the same decoded texts, but other ids or another mask."""


def batch_change(baseline: Steps, current: Steps) -> BatchChange:
    """Compare the rows of both sides over the steps that both have."""
    common = min(len(baseline), len(current))
    before, after = baseline[:common], current[:common]
    if not all("rows" in micro for side in (before, after) for step in side for micro in step):
        return BatchChange(known=False)
    rows, texts = ([_steps(side, key) for side in (before, after)] for key in KEYS)
    pools, prompts = [*map(_pool, rows)], [*map(_prompts, rows)]
    if not all(pools):
        return BatchChange(known=False)  # batches in which no tensor is named as ids
    was_texts, now_texts = texts
    steps = [*zip(*rows, strict=True)]
    differing = [number for number, (was, now) in enumerate(steps, start=1) if was != now]
    return BatchChange(
        known=True,
        same_rows=not differing,
        same_multiset=pools[0] == pools[1],
        same_set_in_steps=all(Counter(was.values()) == Counter(now.values()) for was, now in steps),
        same_texts=bool(was_texts[0]) and _pool(was_texts) == _pool(now_texts),
        texts_known=all(side[0] for side in texts),
        in_place=sum(len(was.items() & now.items()) for was, now in steps) / pools[0].total(),
        shared=(pools[0] & pools[1]).total() / pools[0].total(),
        same_prompts=prompts[0] == prompts[1],
        same_prompt_texts=prompts[0] != prompts[1]
        and bool(_prompts(was_texts))
        and _prompts(was_texts) == _prompts(now_texts),
        steps_differ_from=differing[0] if differing else None,
        rows_per_step=_rows_per_step(*rows),
        same_first_texts=differing[:1] == [1]
        and bool(_pool(was_texts[:1]))
        and _pool(was_texts[:1]) == _pool(now_texts[:1]),
    )


Place = tuple[int, str, int]


def _steps(side: Steps, key: Key) -> list[dict[Place, str]]:
    """Return for each step the hash at each place (micro-batch, tensor, row)."""
    return [
        {
            (place, name, row): value
            for place, micro in enumerate(step)
            for name, hashes in micro.get(key, {}).items()
            for row, value in enumerate(hashes)
        }
        for step in side
    ]


def _rows_per_step(
    before: Sequence[Mapping[Place, str]], after: Sequence[Mapping[Place, str]]
) -> tuple[int, int] | None:
    """Return the rows of a step on both sides. The last step may have fewer: an epoch ends. The
    tensor with most rows decides."""
    counts = [
        [
            max(Counter(name for _, name, _ in step).values(), default=0)
            for step in side[:-1] or side
        ]
        for side in (before, after)
    ]
    if any(len(set(side)) != 1 for side in counts) or counts[0][0] == counts[1][0]:
        return None
    return counts[0][0], counts[1][0]


def _pool(steps: Sequence[Mapping[Place, str]]) -> Counter[str]:
    return Counter(value for step in steps for value in step.values())


def _prompts(steps: Sequence[Mapping[Place, str]]) -> set[str]:
    """Return the prompts without their places: trainers shuffle generated rows.

    The shuffle depends on the state of the random numbers after sampling.
    """
    return {value for step in steps for place, value in step.items() if place[1] != COMPLETIONS}
