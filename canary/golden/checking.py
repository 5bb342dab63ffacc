"""`canary golden check`: read both sides, compare, and look for the cause of a difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from canary.errors import CanaryError
from canary.golden.cause import cause_of
from canary.golden.check import Checked, check
from canary.golden.measured import MeasuredRun, measured_run
from canary.golden.model import Golden
from canary.golden.schemas import read_golden
from canary.golden.tolerance import Tolerance

if TYPE_CHECKING:
    from canary.protocol.job import Listener


TO_REPLAY = "--replay trains the first differing step twice, before the code is blamed"


def checked_files(
    run_path: Path,
    file: Path,
    wanted: Sequence[str],
    tolerances: Mapping[str, Tolerance],
    repository: Path,
    listener: Listener | None = None,
) -> Checked:
    """Check a run against a golden file.

    If both differ and there is a listener, the first differing step is replayed, and `listener`
    gets the events of that training. A cause is named only if the replay does not clear the code.

    Raises:
        InputError: run or file is missing or cannot be compared.
        RecordError: run or file cannot be read.
    """
    run, golden = measured_run(run_path), read_golden(file)
    found = check(run, golden, file, wanted, tolerances)
    if found.equal:
        return found
    if listener is not None:
        found = _replayed(run, golden, found, listener)
        if found.replayed is not None and found.replayed.clears_code:
            return found
    if listener is None and (run.folder / "config.yaml").is_file():
        found = replace(found, notes=(*found.notes, TO_REPLAY))
    if golden.record is None:
        return found
    return replace(found, cause=tuple(cause_of(golden.record, run.record, repository).sentences()))


def _replayed(run: MeasuredRun, golden: Golden, found: Checked, listener: Listener) -> Checked:
    """Return the check with its replay, or with a note that says why there is none."""
    from canary.golden.replay import replay

    try:
        return replace(found, replayed=replay(run, found, golden, listener))
    except CanaryError as error:
        return replace(found, notes=(*found.notes, f"not replayed: {error}"))
