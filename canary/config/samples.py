"""Sample configs: the files of the repository's `configs`, to which `builtin` links."""

from __future__ import annotations

import re
from pathlib import Path

from canary.config.trainers import TRAINERS
from canary.errors import ConfigError, UsageError, did_you_mean, nearest, writing
from canary.files import replace_file

FOLDER = "configs"
"""Folder of the samples in this repository and in its docs."""
SHIPPED = Path(__file__).parent / "builtin"
SAMPLES = tuple(sorted(file.relative_to(SHIPPED).as_posix() for file in SHIPPED.rglob("*.yaml")))
"""Names of the files in it."""
BUILTIN = SHIPPED / "dpo_smoke.yaml"
"""The config of `canary run` without an argument."""

KINDS = (*TRAINERS, "exec")
"""Values of `canary init --type`."""

UNNAMED = "exec_smoke"
"""The name of a command's config, until its folder gives one."""
COMMAND = f"""\
# Your training command, on each pull request.
name: {UNNAMED}
command: [python, train.py] # your command, one list item per word

max_steps: 100 # training stops there; without this line it runs to the end
# threads: 1              # CPU threads of torch; without this line the command chooses
# timeout: 3600           # seconds for the whole run

thresholds:
  base_tier: smoke
"""
NIGHTLY = """\
# The training of {below}, once a night: the long-term trend.
extends: {below}
name: {name}-nightly

# max_steps: 500  # more than for a pull request, at most the steps of the full training

thresholds:
  base_tier: nightly
"""

LONGEST_NAME = 56
"""Characters of a name that leave room for `-nightly`: a name has at most 64."""


def sample_yaml(training_type: str) -> str:
    """Return the sample config `smoke` of a trainer as text.

    Raises:
        UsageError: an unknown trainer, with the nearest known one.
    """
    if training_type == "exec":
        return COMMAND
    if training_type not in TRAINERS:
        hint = did_you_mean(nearest(training_type, KINDS), f"one of {', '.join(KINDS)}")
        raise UsageError(f"--type {training_type} is unknown", hint)
    return (SHIPPED / f"{training_type}_smoke.yaml").read_text(encoding="utf-8")


def nightly_yaml(below: str, name: str) -> str:
    """Return a nightly config as text that extends the config file `below` in the same folder."""
    return NIGHTLY.format(below=below, name=name[:LONGEST_NAME])


def shipped(path: Path) -> str | None:
    """Return the text of the sample `configs/NAME.yaml` for a folder without that file.

    None for any other path, also for an absolute one."""
    folder, _, name = path.as_posix().partition("/")
    if folder != FOLDER or name not in SAMPLES:
        return None
    return (SHIPPED / name).read_text(encoding="utf-8")


def write_sample(path: Path, training_type: str, *, force: bool = False) -> None:
    """Write the sample config `smoke` of a trainer.

    Raises:
        ConfigError: the file exists and `force` is off.
        UsageError: an unknown trainer.
        MachineError: the file cannot be written.
    """
    folder = re.sub(r"[^A-Za-z0-9._-]+", "-", path.absolute().parent.name).strip("._-")
    name = (
        f'"{folder[:LONGEST_NAME] or UNNAMED}"'  # YAML reads `2024` and `true` as other than text.
    )
    text = sample_yaml(training_type).replace(UNNAMED, name)
    if path.exists() and not force:
        raise ConfigError(f"{path} exists", "choose another name, or use --force", file=path)
    with writing(path, "choose another place"):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
