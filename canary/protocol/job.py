"""What a launch is: the job handed to a training process, and the result it leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from canary.record import jsonio
from canary.record.alert import Severity
from canary.record.ranks import rank_path as rank_path

if TYPE_CHECKING:
    # Not at run time: the Python of a user's own command may have no pydantic.
    from canary.config.schema import CanaryConfig
    from canary.record.exact import Calls, Exact
    from canary.record.step_row import Row
    from canary.record.types import Failure, Status

JOB, PARENT, NODE_RANK = "_RLHF_CANARY_JOB", "_RLHF_CANARY_PARENT", "_RLHF_CANARY_NODE_RANK"
"""In the environment of training processes, by names that nobody else gives a meaning: the job's
file, the canary's own process, and the number of this machine among several."""
LEVEL = "CANARY_LADDER_LEVEL"
"""In the environment of a run that `canary ladder` starts: the name of the level it measures."""
EVENTS = "_RLHF_CANARY_EVENTS"
"""In the environment of a run that another program of ours follows: the number of the open file
that gets its events, a JSON object a line (see `canary.runner.display.lines.Event`)."""

Kind = Literal["probe", "measured"]


@dataclass(frozen=True)
class Job:
    """One training process: what it trains and where it writes. Travels as JSON."""

    kind: Kind
    launch: int
    config_file: str
    rows_file: str
    result_file: str
    scratch_dir: str
    cache_dir: str
    rows_dir: str
    stop_after: int | None = None
    """Optimizer steps after which the training ends cleanly; the schedule keeps its length."""
    files: str | None = None
    """Where the processes of a user's command note what they change (see
    `canary.runner.exec.file_notes`); None where nobody asks."""
    threads: int | None = None
    """CPU threads of torch; None leaves them as they are."""
    profile: dict[str, Any] | None = None
    """The window of steps to profile (see `canary.record.profile.Window`)."""
    stop_on: Severity | None = None
    """Severity from which on an alert ends the training."""
    save_model: str | None = None
    """Folder where the trained model is left."""
    exact_scalars: dict[str, float] = field(default_factory=dict)
    """What the probe before this launch saw, for trackers (see `canary.record.tracked`)."""

    def write(self, path: Path) -> None:
        """Writes the job for the child."""
        jsonio.replace_file(path, jsonio.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Job:
        """Reads what `write` wrote."""
        return cls(**jsonio.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Result:
    """How one training process ended, in its own words or, where it had none, the parent's."""

    status: Status
    reason: str | None = None
    hint: str | None = None
    failure: Failure | None = None
    """What kind of failure it was; see `RunRecord.failure`."""
    see_log: bool = False
    """What the process printed says more; the place of the log is told beside the hint."""
    usage_error: bool = False
    """The user's config or input was at fault: exit code 2 instead of 4."""
    exact: Exact = field(default_factory=cast("Callable[[], Exact]", dict))
    calls: Calls = field(default_factory=cast("Callable[[], Calls]", dict))
    startup_seconds: dict[str, float] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    """What the training process knows of its trainer: class, settings, packages (see
    `canary.training.exact.trainer_settings`)."""
    notes: tuple[str, ...] = ()
    """A line each for what a user must know of this launch."""
    unmeasured: dict[str, str] = field(default_factory=dict)
    """What this launch could not measure, and why."""
    wall_seconds: float | None = None
    host: dict[str, float] = field(default_factory=dict)
    """What the training process told of its host (see `canary.record.types.Launch`)."""
    ranks: dict[str, Any] = field(default_factory=dict)
    """Of a launch of several ranks: `{world_size, nodes, failed_rank}`."""
    command_code: int | None = None
    """Exit code of the user's own command, where there was one."""

    def write(self, path: Path) -> None:
        """Replaces the result file; the last write stands."""
        jsonio.replace_file(path, jsonio.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Result | None:
        """The child's result, or None where it had no time to leave one."""
        if not path.exists():
            return None
        values = jsonio.loads(path.read_text(encoding="utf-8"))
        return cls(**values | {"notes": tuple(values["notes"])})


def unwritten(job: Job) -> Path:
    """The mark of a launch whose training process could not write all of its record."""
    return Path(job.scratch_dir) / "unwritten"


def leave_unwritten(job: Job, error: OSError) -> None:
    """Says so to the parent, as far as that can be written: a full disk often takes a name."""
    with contextlib.suppress(OSError):
        unwritten(job).write_text(error.strerror or str(error), encoding="utf-8")


EXIT_DISK_FULL = 28
"""Exit code of a training process that had no space left for its result (ENOSPC's number)."""


def disk_full(place: str | None = None) -> Result:
    """The result of a run that filled its disk."""
    return Result(
        status="failed",
        reason=f"no space left on the disk of {place or 'the run folder'}",
        hint="free some space, or choose another folder with -o",
    )


class Listener(Protocol):
    """Hears of a run as it happens; what it does must not disturb the training."""

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None: ...

    def warned(self, text: str) -> None: ...

    def launch_begins(self, kind: Kind, index: int, steps: int | None) -> None: ...

    def step_ended(self, kind: Kind, row: Row) -> None: ...

    def sampled(self, reading: Mapping[str, float]) -> None: ...

    def launch_ended(self, kind: Kind, result: Result) -> None: ...

    def waiting(self) -> None: ...


class Runner(Protocol):
    """Runs one job to its end and reports rows as they appear."""

    def run(self, job: Job, listener: Listener, deadline: float) -> Result: ...
