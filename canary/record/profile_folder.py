"""The place of a run's profile, and its part of the record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from canary.errors import writing
from canary.record.profile import OPERATORS, TRACE, Window, read_profile
from canary.record.types import Profiler, RunRecord

FOLDER = "profiler"
OFF = "profiling was off"


def window_of(settings: Mapping[str, Any], run_dir: Path) -> Window | None:
    """Return the window that a config's section asks for, and make its folders; None if it is off.

    The trace goes to `output_dir`, or to a new folder in it if that has a trace already.

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
        with writing(path, "choose another profiler.output_dir"):
            path.mkdir(parents=True, exist_ok=True)
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
    """Put the profile into the record. `first_step` and `last_step`: the first and last step that
    the profiled launch completed."""
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
            f"{len(done)} of {window.num_steps} steps were profiled: training ended after step "
            f"{done[-1]}"
        )
    if int(record.env.get("world_size", 1)) > 1:
        record.notes.append("only the first rank was profiled")


def _why_none(window: Window, first_step: int | None, last_step: int | None) -> str:
    if first_step is None or last_step is None:
        return f"{window.in_words()} not profiled: no step was completed"
    if last_step < window.start_step:
        return f"{window.in_words()} not profiled: training ended after step {last_step}"
    if first_step > window.start_step:
        words = f"training resumed from a checkpoint with step {first_step - 1}"
        return f"{window.in_words()} not profiled: {words}"
    return f"{window.in_words()} not profiled: the profiler wrote nothing; see log.txt"


def _from(run_dir: Path, path: Path) -> str:
    """Return a path relative to the run's folder if it is inside: a run can be moved."""
    return str(path.relative_to(run_dir) if path.is_relative_to(run_dir) else path)
