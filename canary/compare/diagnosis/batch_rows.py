"""Compare the batches of two runs: their sequences, the order and the masks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from canary.record.exact import Micro

Steps = Sequence[Sequence[Micro]]

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
    rows = [_steps(side, "rows") for side in (before, after)]
    if not all(map(_pool, rows)):
        return BatchChange(known=False)  # batches in which no tensor is named as ids
    texts = [_steps(side, "texts") for side in (before, after)]
    differing = [step for step, (was, now) in enumerate(zip(*rows, strict=True)) if was != now]
    return BatchChange(
        known=True,
        same_rows=not differing,
        same_multiset=_pool(rows[0]) == _pool(rows[1]),
        same_set_in_steps=all(
            Counter(was.values()) == Counter(now.values()) for was, now in zip(*rows, strict=True)
        ),
        same_texts=bool(texts[0] and texts[0][0]) and _pool(texts[0]) == _pool(texts[1]),
        texts_known=all(side and side[0] for side in texts),
        in_place=_in_place(*rows),
        shared=(_pool(rows[0]) & _pool(rows[1])).total() / _pool(rows[0]).total(),
        same_prompts=_prompts(rows[0]) == _prompts(rows[1]),
        same_prompt_texts=_prompts(rows[0]) != _prompts(rows[1])
        and bool(_prompts(texts[0]))
        and _prompts(texts[0]) == _prompts(texts[1]),
        steps_differ_from=differing[0] + 1 if differing else None,
        rows_per_step=_rows_per_step(*rows),
        same_first_texts=differing[:1] == [0]
        and bool(_pool(texts[0][:1]))
        and _pool(texts[0][:1]) == _pool(texts[1][:1]),
    )


Place = tuple[int, str, int]


def _steps(side: Steps, key: Literal["rows", "texts"]) -> list[dict[Place, str]]:
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


def _in_place(before: Sequence[Mapping[Place, str]], after: Sequence[Mapping[Place, str]]) -> float:
    total = sum(map(len, before))
    kept = sum(len(was.items() & now.items()) for was, now in zip(before, after, strict=True))
    return kept / total if total else 0.0


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
