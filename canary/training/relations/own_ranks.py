"""Whether a program with a loop of its own can train on several ranks: its files say it."""

from __future__ import annotations

import sys
from pathlib import Path

WORDS = ("WORLD_SIZE", "init_process_group", "init_device_mesh", "DistributedSampler")
INSTALLED = "site-packages"
MOST_FILES = 64
"""Files of the program that are read."""


def uses_ranks() -> bool:
    """Whether this program uses accelerate, or a file of it names ranks of torch."""
    if "accelerate" in sys.modules:
        from accelerate.state import PartialState

        if PartialState._shared_state:
            return True
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is None:
        return False
    beside = Path(main).absolute().parent
    loaded = (getattr(one, "__file__", None) for one in [*sys.modules.values()])
    files = dict.fromkeys(Path(one).absolute() for one in (main, *loaded) if one)
    own = [one for one in files if beside in one.parents and INSTALLED not in one.parts]
    return any(word in text for text in map(_text, own[:MOST_FILES]) for word in WORDS)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace") if file.suffix == ".py" else ""
    except OSError:
        return ""
