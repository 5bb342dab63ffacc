"""The workload of one launch; this module needs no torch."""

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

    `max_steps` is the length of the schedule. `scratch_dir` may be deleted after the launch;
    `cache_dir` is kept between runs. `rows_dir` is shared by a run's launches: the first one leaves
    its prepared rows there (None: every launch prepares them in memory). `logging_steps` is the
    interval of the trainer's logs, in steps. `ranks` is the number of processes, each with a
    separate micro-batch. `notes` collects a line for each setting that the installed packages
    ignore.
    """

    config: CanaryConfig
    scratch_dir: Path
    cache_dir: Path
    max_steps: int
    logging_steps: int = 10
    rows_dir: Path | None = None
    ranks: int = 1
    notes: list[str] = field(default_factory=list, compare=False)


def local_path(name: str) -> Path | None:
    """Return `name` as a path if it exists or looks like a path; None for hub ids."""
    path = Path(name).expanduser()
    return path if name.startswith(_PATH_STARTS) or is_there(path) else None


def is_there(path: Path) -> bool:
    """Return whether a file or folder exists; False for a name that is too long."""
    try:
        return path.exists()
    except OSError:
        return False
