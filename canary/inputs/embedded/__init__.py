"""The embedded default: a tiny checkpoint, a reward model, and tasks with checkable answers.

Names and paths only; importing this loads no torch. `python -m canary.inputs.embedded`
rebuilds what is shipped here.
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
    """The folder of the embedded checkpoint and tokenizer, as `from_pretrained` wants it."""
    return _HERE / "tiny"


def reward_dir() -> Path:
    """The folder of the embedded reward model, with the tokenizer of the embedded checkpoint."""
    return _HERE / "reward"


def data_file(view: View) -> Path:
    """The JSONL file of one view of the embedded tasks, one conversational record a line."""
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
