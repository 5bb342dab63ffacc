"""Names and paths of the embedded checkpoint, reward model and tasks; sizes of the Llamas with
random weights. Importing loads no torch.

`python -m tools.embedded` rebuilds the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from canary.errors import InputError, did_you_mean, nearest

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


@dataclass(frozen=True)
class LlamaShape:
    """The size of a Llama; heads are 64 wide and do not share keys and values."""

    hidden: int
    intermediate: int
    layers: int


# Parameters within 10% of the name at a vocabulary of 1,024 (tests/unit/inputs/test_embedded.py).
RANDOM_SIZES: dict[str, LlamaShape] = {
    "10m": LlamaShape(320, 864, 8),
    "30m": LlamaShape(512, 1376, 9),
    "70m": LlamaShape(768, 2048, 10),
    "160m": LlamaShape(1024, 2752, 12),
    "410m": LlamaShape(1536, 4096, 14),
    "1b": LlamaShape(2048, 5504, 20),
}
_RANDOM = "embedded/random-"


def parse_random_name(name: str) -> str | None:
    """Return the size in `embedded/random-<size>`, or None for a name of another form.

    Raises InputError for a size that RANDOM_SIZES does not hold.
    """
    if not name.startswith(_RANDOM):
        return None
    size = name.removeprefix(_RANDOM)
    if size not in RANDOM_SIZES:
        near = nearest(size, RANDOM_SIZES)
        suggestion = f" ({did_you_mean(_RANDOM + near)})" if near else ""
        known = f"known sizes: {', '.join(RANDOM_SIZES)}"
        raise InputError(f"no random model '{name}'{suggestion}", known)
    return size
