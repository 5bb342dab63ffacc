"""How many rows a training takes, how many there are, and what is done where they are too few.

Importing this loads no torch: the parent of a run counts before anything starts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canary.errors import InputError
from canary.inputs.locations import data_place
from canary.inputs.row_shapes import shape_of
from canary.protocol.spec import WorkloadSpec

if TYPE_CHECKING:
    from canary.config.schema import CanaryConfig

BATCH, ROLLOUT = "a batch", "a rollout"
LARGEST_JSON = 64 << 20
"""Bytes of a .json file that is read whole only to be counted."""


def _samples(spec: WorkloadSpec) -> int:
    """Samples of one step; GRPO and RLOO take `num_generations` of them from one row. PPO takes one
    of each row, for all updates of a step."""
    config = spec.config
    together = config.batch_size * config.gradient_accumulation_steps * spec.ranks
    return together * (1 if config.ppo is None else config.ppo.num_mini_batches)


def _samples_per_row(config: CanaryConfig) -> int:
    in_groups = config.trainer.in_groups
    return (config.num_generations or 1) if in_groups else 1


def rows_needed(spec: WorkloadSpec) -> int:
    """Rows that `max_steps` use up when none is seen twice."""
    return -(-spec.max_steps * _samples(spec) // _samples_per_row(spec.config))


def most_steps(spec: WorkloadSpec, rows: int) -> int:
    """The largest `max_steps` that sees no row twice."""
    return rows * _samples_per_row(spec.config) // _samples(spec)


def _fewest(spec: WorkloadSpec) -> tuple[int, str]:
    """Rows without which no step can be made, and what takes them.

    The loop of PPO and the sampler of GRPO and RLOO leave out a rollout that is not full; others
    take a smaller batch, which `allow_repeat` permits.
    """
    config = spec.config
    if config.trainer.in_groups:
        own = {"generation_batch_size", "steps_per_generation"} & set(config.trainer_args)
        return 1 if own else -(-_samples(spec) // _samples_per_row(config)), ROLLOUT
    if config.ppo is not None:
        return _samples(spec), ROLLOUT
    return (1, BATCH) if config.allow_repeat else (config.batch_size * spec.ranks, BATCH)


def require_enough(spec: WorkloadSpec, rows: int) -> None:
    """Adds a note to `spec.notes` where rows will be seen again, unless `allow_repeat` is on.

    Raises InputError where there is none, or where not one batch (of online trainers: one rollout)
    can be filled.
    """
    config = spec.config
    if rows == 0:
        raise InputError(
            f"no row of dataset '{config.dataset_name}' is left for training",
            "raise max_length: the prompts alone exceed it",
        )
    fewest, batch = _fewest(spec)
    if rows < fewest:
        raise InputError(
            f"{batch} takes {fewest} {'rows' if batch == BATCH else 'prompts'} "
            f"({_factors(spec, batch)}), but dataset '{config.dataset_name}' has {rows}",
            f"lower batch_size{_with_one(spec, rows)}, raise dataset_size, or set allow_repeat: "
            "true"
            if batch == BATCH
            else "lower one of these factors, or raise dataset_size",
        )
    needed = rows_needed(spec)
    if rows >= needed or config.allow_repeat:
        return
    note = (
        f"{spec.max_steps} steps take {needed} rows ({_factors(spec)}), but dataset "
        f"'{config.dataset_name}' has {rows}: rows are seen {needed / rows:.3g} times. "
        f"{_remedy(most_steps(spec, rows))}; allow_repeat: true silences this note"
    )
    if note not in spec.notes:
        spec.notes.append(note)


def _remedy(steps: int) -> str:
    if steps == 0:
        return "One step takes more rows than there are"
    return f"With max_steps {steps} or less no row is seen twice"


def _with_one(spec: WorkloadSpec, rows: int) -> str:
    """The largest `max_steps` that sees no row twice in batches of one; empty where none does."""
    steps = rows // (spec.config.gradient_accumulation_steps * spec.ranks)
    return f" (with batch_size 1, max_steps {steps} is the most)" if steps else ""


def _factors(spec: WorkloadSpec, batch: str = "a step") -> str:
    """What the rows of a step, or of a batch, are made of."""
    config = spec.config
    words = [f"batch_size {config.batch_size}"]
    if batch != BATCH:
        words.append(f"gradient_accumulation_steps {config.gradient_accumulation_steps}")
    if config.ppo is not None and config.ppo.num_mini_batches > 1:
        words.append(f"ppo.num_mini_batches {config.ppo.num_mini_batches}")
    if spec.ranks > 1:
        words.append(f"{spec.ranks} ranks")
    text = " x ".join(words)
    each = _samples_per_row(config)
    return f"{text} / num_generations {each}" if each > 1 else text


def no_rows(config: CanaryConfig) -> InputError:
    """The error of data without any row."""
    return InputError(
        f"dataset '{config.dataset_name}' has no rows in split '{config.dataset_split}'"
    )


def rows_there(config: CanaryConfig) -> int | None:
    """At most so many rows are there, counted without loading them; None where that is not known.

    Raises InputError where there is none, or no such file.
    """
    path = data_place(config.dataset_name, config.training_type)
    whole = config.dataset_split.isidentifier()
    count, first = _counted(path) if path is not None and whole else (None, None)
    if count == 0:
        raise no_rows(config)
    known = [number for number in (count, config.dataset_size) if number is not None]
    if not known:
        return None
    shape = shape_of(config.training_type)
    pairs = shape.takes_apart and (first is None or "chosen" in first)
    return min(known) * (2 if pairs else 1)


def _counted(path: Path) -> tuple[int | None, Any]:
    """Rows of a file, and the first of them; None for both where only loading it would tell."""
    try:
        if path.suffix == ".parquet" and path.is_file():
            from pyarrow.parquet import read_metadata

            about = read_metadata(path)
            return about.num_rows, about.schema.names
        if path.suffix == ".json" and path.stat().st_size <= LARGEST_JSON:
            rows = json.loads(path.read_text(encoding="utf-8"))
            return (
                (len(rows), rows[0] if rows else None) if isinstance(rows, list) else (None, None)
            )
        if path.suffix == ".jsonl":
            return _lines(path)
    except (OSError, ValueError):
        pass  # Loading it says what is wrong with it.
    return None, None


def _lines(path: Path) -> tuple[int, Any]:
    with path.open("rb") as stream:
        first = next((line for line in stream if line.strip()), None)
        if first is None:
            return 0, None
        return 1 + sum(1 for line in stream if line.strip()), json.loads(first)
