"""What one launch is asked to train, without anything that needs torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canary.config.schema import CanaryConfig

_PATH_STARTS = ("./", "../", "/", "~")


@dataclass(frozen=True)
class WorkloadSpec:
    """One launch of one canary.

    `max_steps` is the length of the schedule; `scratch_dir` may be deleted after the launch,
    `cache_dir` is kept between runs; `rows_dir` is shared by the launches of one run: rows put
    there by the first are found prepared by the next (None: rows stay in memory, and every launch
    prepares them anew). `logging_steps` is how often the trainer itself logs, in optimizer steps.
    `ranks` is the number of processes that share the training, each with a micro-batch of its own.
    `notes` collects a line for each setting that the installed packages cannot honour.
    `trl_defaults`: what concerns speed is left to trl.
    """

    config: CanaryConfig
    scratch_dir: Path
    cache_dir: Path
    max_steps: int
    logging_steps: int = 10
    rows_dir: Path | None = None
    ranks: int = 1
    trl_defaults: bool = False
    notes: list[str] = field(default_factory=list, compare=False)


def local_path(name: str) -> Path | None:
    """`name` as a path where it is one: it exists, or is written like a path. None for hub ids."""
    path = Path(name).expanduser()
    return path if name.startswith(_PATH_STARTS) or is_there(path) else None


def is_there(path: Path) -> bool:
    """Whether such a file or folder exists; a name that is too long for one is that of nothing."""
    try:
        return path.exists()
    except OSError:
        return False
