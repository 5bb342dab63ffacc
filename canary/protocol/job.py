"""A launch: the job that a training process gets, and the result that it leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from canary.record import jsonio
from canary.record.alert import Severity
from canary.record.exact import TORCH_LOOP as TORCH_LOOP
from canary.record.ranks import rank_path as rank_path

if TYPE_CHECKING:
    # Not at run time: the Python of a user's command may have no pydantic.
    from canary.config.schema import CanaryConfig
    from canary.record.exact import Calls, Exact
    from canary.record.step_row import Row
    from canary.record.types import Failure, Status
from canary.record.step_row import Row

JOB, PARENT = "_RLHF_CANARY_JOB", "_RLHF_CANARY_PARENT"
"""Environment variables of training processes: the job's file, and the canary's process."""
STARTER = "_RLHF_CANARY_STARTER"
"""Environment variable of a verb that another verb starts: the other's process."""


class Variation(TypedDict, total=False):
    """What one run of a pair does in another way (see `canary.training.pairs`)."""

    workers: int
    """Load data with so many workers of each `DataLoader`."""
    save_at: int
    """Save a checkpoint after this update, into the run's folder; a transformers Trainer only."""
    resume: str
    """The checkpoint to begin at; a transformers Trainer only."""


@dataclass(frozen=True)
class Job:
    """One training process: what it trains and where it writes. Sent as JSON."""

    launch: int
    config_file: str
    rows_file: str
    result_file: str
    scratch_dir: str
    cache_dir: str
    rows_dir: str
    look_steps: int = 0
    """First steps that are looked at closely; 0: none."""
    exact: bool = False
    """The training ends after the look: a user's process is ended there."""
    stop_after: int | None = None
    """Steps after which the training ends cleanly; the schedule keeps its length."""
    threads: int | None = None
    """CPU threads of torch; None: unchanged."""
    profile: dict[str, Any] | None = None
    """The window of steps to profile (see `canary.record.profile.Window`)."""
    stop_on: Severity | None = None
    """The least severity of an alert that ends the training."""
    asks_again: bool = False
    """The look calls the model again about rows of its first update (see
    `canary.training.asking.again`)."""
    variation: Variation | None = None
    """What this launch does in another way."""

    def write(self, path: Path) -> None:
        """Write the job for the child."""
        jsonio.replace_file(path, jsonio.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read a written job."""
        return cls(**jsonio.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Result:
    """How a training process ended, by itself or, if it wrote nothing, by its parent."""

    status: Status
    reason: str | None = None
    hint: str | None = None
    failure: Failure | None = None
    """See `RunRecord.failure`."""
    see_log: bool = False
    """The process's output says more: the hint names the log too."""
    usage_error: bool = False
    """The user's config or input is wrong: exit code 2 instead of 4."""
    exact: Exact = field(default_factory=cast("Callable[[], Exact]", dict))
    calls: Calls = field(default_factory=cast("Callable[[], Calls]", dict))
    startup_seconds: dict[str, float] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    """The trainer's class and settings (see `canary.training.exact.effective`)."""
    packages: dict[str, str] = field(default_factory=dict)
    """What the process had imported when its look ended, or when it failed."""
    notes: tuple[str, ...] = ()
    """Sentences that the user must know about this launch."""
    unmeasured: dict[str, str] = field(default_factory=dict)
    """Why a value could not be measured, by its key."""
    wall_seconds: float | None = None
    host: dict[str, float] = field(default_factory=dict)
    """Facts of the host (see `canary.record.types.Launch`)."""
    ranks: dict[str, Any] = field(default_factory=dict)
    """With several ranks: `{world_size, nodes, failed_rank}`."""
    command_code: int | None = None
    """Exit code of the user's command, if there was one."""
    exits: bool = False
    """Whether the training ended because its process did: then the exit code counts."""
    not_varied: str | None = None
    """Why the job's variation is not possible."""

    def write(self, path: Path) -> None:
        """Replace the result file; the last write counts."""
        jsonio.replace_file(path, jsonio.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Result | None:
        """Return the child's result; None if it wrote none."""
        if not path.exists():
            return None
        values = jsonio.loads(path.read_text(encoding="utf-8"))
        exact = jsonio.numbers(values["exact"])
        return cls(**values | {"notes": tuple(values["notes"]), "exact": exact})


def unwritten(job: Job) -> Path:
    """Return the file that marks a launch whose process could not write all of its record."""
    return Path(job.scratch_dir) / "unwritten"


def leave_unwritten(job: Job, error: OSError) -> None:
    """Mark the launch for the parent, if possible: a full disk often still has room for a file."""
    with contextlib.suppress(OSError):
        unwritten(job).write_text(error.strerror or str(error), encoding="utf-8")


def begun_path(result_file: Path) -> Path:
    """Return the file of the result that a training leaves after its first step. It counts if the
    process leaves no other, although the command ended well."""
    return result_file.with_suffix(".begun.json")


EXIT_DISK_FULL = 28
"""Exit code of a training process without space for its result (ENOSPC's number)."""


def disk_full(place: str | None = None) -> Result:
    """Return the result of a run that filled its disk."""
    return Result(
        status="failed",
        reason=f"no space left on the disk of {place or 'the run folder'}",
        hint="free some space, or choose another folder with -o",
    )


class Listener:
    """Is called during a run, and must not disturb the training. By itself it does nothing."""

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None: ...

    def warned(self, text: str) -> None: ...

    def launch_begins(self, index: int, steps: int | None) -> None: ...

    def step_ended(self, row: Row) -> None: ...

    def sampled(self, reading: Mapping[str, float]) -> None: ...

    def launch_ended(self, result: Result) -> None: ...

    def waiting(self) -> None: ...


class StepFile:
    """Appends one JSON line per step in one write call, so that a kill loses no finished step. It
    does not stay open, because a user's program may close all files and open others."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._path.touch()

    def append(self, row: Row) -> None:
        """Write one row.

        Raises:
            OSError: the disk is full.
        """
        with self._path.open("ab") as stream:
            stream.write(f"{jsonio.dumps(row)}\n".encode())
