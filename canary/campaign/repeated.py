"""One run of a campaign that repeats the same run."""

from __future__ import annotations

from pathlib import Path

from canary.baseline.comparability import usable
from canary.config.load import LoadedConfig
from canary.errors import InputError, RunFailed
from canary.protocol.job import Listener
from canary.record.types import RunRecord
from canary.runner.run import run_canary


def completed_run(
    loaded: LoadedConfig, listener: Listener, output_dir: Path | None
) -> tuple[RunRecord, Path]:
    """Run a canary once; return its record, which can be judged, and its folder.

    Raises:
        InputError: config, model or data cannot be used.
        RunFailed: the run did not complete, or is too short.
        KeyboardInterrupt: the run was interrupted.
    """
    record, folder, result = run_canary(loaded, listener, output_dir)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.usage_error:
        raise InputError(str(result.reason), result.hint)
    problem = usable(record)
    if problem:
        raise RunFailed(problem, record.status, result.hint or f"record: {folder}")
    return record, folder
