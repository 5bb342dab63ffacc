"""Where the profile of a run lies, and what it adds to the record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from canary.errors import MachineError
from canary.record.profile import OPERATORS, TRACE, Window, read_profile
from canary.record.types import Profiler, RunRecord

FOLDER = "profiler"
OFF = "profiling was off"


def window_of(settings: Mapping[str, Any], run_dir: Path) -> Window | None:
    """The window that a config's section asks for, and the folders for it; None where it is off.

    `output_dir` says where the trace goes; a folder that has one already gets one folder a run.

    Raises:
        MachineError: a folder cannot be made.
    """
    if not settings["enabled"]:
        return None
    folder = run_dir / FOLDER
    place = folder
    if settings["output_dir"] is not None:
        place = Path(settings["output_dir"]).expanduser().absolute()
        if (place / TRACE).exists():
            place /= run_dir.name
    for path in (folder, place):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MachineError(
                f"cannot make {path} for the trace: {error.strerror or error}",
                "choose another profiler.output_dir",
            ) from error
    how = ("start_step", "num_steps", "record_shapes", "profile_memory", "with_stack")
    return Window(
        folder=str(folder), trace=str(place / TRACE), **{key: settings[key] for key in how}
    )


def keep_profile(
    record: RunRecord,
    run_dir: Path,
    window: Window,
    last_step: int | None,
    first_step: int | None = 1,
) -> None:
    """Puts into the record what the profiled launch left; `first_step` and `last_step` are those
    that it ended."""
    document = read_profile(Path(window.folder)) or {}
    record.unmeasured.pop("profiler", None)
    record.unmeasured.update(document.get("unmeasured", {}))
    summary = document.get("summary")
    if summary is None:
        record.unmeasured.setdefault("profiler", _why_none(window, first_step, last_step))
        return
    record.profiler = Profiler(
        **summary,
        operators_path=_from(run_dir, Path(window.folder) / OPERATORS),
        trace_path=_from(run_dir, Path(window.trace)) if Path(window.trace).exists() else None,
    )
    done = record.profiler.steps
    if len(done) < window.num_steps:
        record.notes.append(
            f"{len(done)} of {window.num_steps} steps were profiled: the training ended after "
            f"step {done[-1]}"
        )
    if int(record.env.get("world_size", 1)) > 1:
        record.notes.append("the first rank alone was profiled")


def _why_none(window: Window, first_step: int | None, last_step: int | None) -> str:
    if first_step is None or last_step is None:
        return f"no step ended, and {window.in_words()} were to be profiled"
    if last_step < window.start_step:
        reached = f"the training ended after step {last_step}"
        return f"{window.in_words()} were not reached: {reached}"
    if first_step > window.start_step:
        return (
            f"{window.in_words()} were to be profiled, and the training went on from a checkpoint "
            f"with step {first_step}"
        )
    return f"{window.in_words()} were to be profiled, and no profile was left: see log.txt"


def _from(run_dir: Path, path: Path) -> str:
    """Relative to the run's folder where it lies inside: a run can be moved."""
    return str(path.relative_to(run_dir) if path.is_relative_to(run_dir) else path)
