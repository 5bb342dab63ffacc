"""What a training needs before it starts: model and data, and enough rows.

Importing this loads no torch: the parent process of a run asks before anything starts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canary.config.trainers import BUILT_IN_STEPS
from canary.errors import InputError
from canary.inputs.locations import data_place, model_folder, require_on_hub, require_weights
from canary.inputs.row_shapes import shape_of
from canary.protocol.spec import WorkloadSpec

if TYPE_CHECKING:
    from canary.config.load import LoadedConfig
    from canary.config.schema import CanaryConfig

BATCH, ROLLOUT = "a batch", "a rollout"
LARGEST_JSON = 64 << 20
"""Bytes up to which a .json file is parsed only to count its rows."""


def _samples(spec: WorkloadSpec) -> int:
    """Return the samples per step. GRPO and RLOO make `num_generations` samples from one row; PPO
    makes one per row, for all updates of a step."""
    config = spec.config
    together = config.batch_size * config.gradient_accumulation_steps * spec.ranks
    return together * (1 if config.ppo is None else config.ppo.num_mini_batches)


def _samples_per_row(config: CanaryConfig) -> int:
    return (config.num_generations or 1) if config.trainer.in_groups else 1


def rows_needed(spec: WorkloadSpec) -> int:
    """Return the rows that `max_steps` use if no row is seen twice."""
    return -(-spec.max_steps * _samples(spec) // _samples_per_row(spec.config))


def most_steps(spec: WorkloadSpec, rows: int) -> int:
    """Return the largest `max_steps` that sees no row twice."""
    return rows * _samples_per_row(spec.config) // _samples(spec)


def _fewest(spec: WorkloadSpec) -> tuple[int, str]:
    """Return the rows that a first step needs, and whether that is a batch or a rollout.

    The loop of PPO and the sampler of GRPO and RLOO skip a rollout that is not full. Other trainers
    accept a smaller batch, if `allow_repeat` is on.
    """
    config = spec.config
    if config.trainer.in_groups:
        sized = {"generation_batch_size", "steps_per_generation"} & set(config.trainer_args)
        return 1 if sized else -(-_samples(spec) // _samples_per_row(config)), ROLLOUT
    if config.ppo is not None:
        return _samples(spec), ROLLOUT
    return (1, BATCH) if config.allow_repeat else (config.batch_size * spec.ranks, BATCH)


def require_enough(spec: WorkloadSpec, rows: int) -> None:
    """Add a note to `spec.notes` if rows will be seen twice, unless `allow_repeat` is on.

    Raises InputError if there are no rows, or too few for one batch (online: one rollout).
    """
    config = spec.config
    if rows == 0:
        raise InputError(
            f"dataset '{config.dataset_name}' has no row that fits into max_length",
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
        return "One step takes more rows than the dataset has"
    return f"With max_steps {steps} or less no row is seen twice"


def _with_one(spec: WorkloadSpec, rows: int) -> str:
    """Return the hint with the largest `max_steps` for batches of one row; empty if that is 0."""
    steps = rows // (spec.config.gradient_accumulation_steps * spec.ranks)
    return f" (with batch_size 1, max_steps {steps} is the most)" if steps else ""


def _factors(spec: WorkloadSpec, batch: str = "a step") -> str:
    """Return the product that gives the rows of a step, or of a batch, in words."""
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
    return InputError(
        f"dataset '{config.dataset_name}' has no rows in split '{config.dataset_split}'"
    )


def rows_there(config: CanaryConfig) -> int | None:
    """Return the largest possible number of rows without loading the data; None if unknown.

    Raises InputError if the dataset is empty or does not exist.
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
    """Return the number of rows of a file and its first row; None, None if it must be loaded."""
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
        pass  # Loading it reports the problem.
    return None, None


def _lines(path: Path) -> tuple[int, Any]:
    with path.open("rb") as stream:
        first = next((line for line in stream if line.strip()), None)
        if first is None:
            return 0, None
        return 1 + sum(1 for line in stream if line.strip()), json.loads(first)


def look_beforehand(loaded: LoadedConfig, cache_dir: Path, warn: Callable[[str], None]) -> None:
    """Check the inputs of a training, and `warn` of surprises.

    Names in the config are not checked if the user's command interprets them.

    Raises:
        InputError: model or data do not exist, or there are too few rows.
    """
    config = loaded.config
    if loaded.source is not None and not loaded.source.exists():
        warn(f"{loaded.source} does not exist; using the package's sample of that name")
    if config.training_type == "exec":
        return
    prepared = cache_dir / "datasets"
    reward = None if config.ppo is None else config.ppo.reward_model
    for name, what, revision in (
        (config.model_name, "model", config.model_revision),
        (reward, "reward model", None),
    ):
        folder = None if name is None else model_folder(name, what)
        if folder is not None:
            require_weights(f"{what} '{name}'", folder)
        elif name is not None:
            require_on_hub("model", name, revision, what=what, prepared=prepared)
    if data_place(config.dataset_name, config.training_type) is None:
        require_on_hub("dataset", config.dataset_name, config.dataset_revision, prepared=prepared)
    rows = rows_there(config)
    if rows is None:
        return
    steps = config.max_steps or BUILT_IN_STEPS
    spec = WorkloadSpec(config, cache_dir, cache_dir, steps, ranks=config.nproc or 1)
    require_enough(spec, rows)
    for note in spec.notes:
        warn(note)
