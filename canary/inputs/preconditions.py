"""Check that model and data of a built-in training exist, before it starts and without torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from canary.config.load import LoadedConfig
from canary.config.trainers import BUILT_IN_STEPS
from canary.inputs.locations import data_place, model_folder, require_on_hub, require_weights
from canary.inputs.row_counts import require_enough, rows_there
from canary.protocol.spec import WorkloadSpec


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
