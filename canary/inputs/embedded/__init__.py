"""Names and paths of the embedded checkpoint, reward model and tasks. Importing loads no torch.

`python -m tools.embedded` rebuilds the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

EMBEDDED_MODEL = "embedded/tiny"
EMBEDDED_REWARD = "embedded/reward"
EMBEDDED_DATA = "embedded/tasks"

View = Literal["prompt_completion", "preference", "prompt_only"]

_HERE = Path(__file__).resolve().parent


def tiny_dir() -> Path:
    """Return the folder of the embedded checkpoint and tokenizer, for `from_pretrained`."""
    return _HERE / "tiny"


def reward_dir() -> Path:
    """Return the folder of the embedded reward model, with the checkpoint's tokenizer."""
    return _HERE / "reward"


def data_file(view: View) -> Path:
    """Return the JSONL file of one view of the embedded tasks: one conversational row per line."""
    return _HERE / "data" / f"{view}.jsonl"


__all__ = [
    "EMBEDDED_DATA",
    "EMBEDDED_MODEL",
    "EMBEDDED_REWARD",
    "View",
    "data_file",
    "reward_dir",
    "tiny_dir",
]
