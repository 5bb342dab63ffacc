"""`canary baseline bootstrap`: fill the baseline branch with the first runs of a canary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from canary.baseline.branch import Remote
from canary.baseline.origin import Surroundings
from canary.baseline.verbs import pulled, push_runs, require_allowed
from canary.campaign.side import completed_run
from canary.config.load import LoadedConfig
from canary.errors import CanaryError


def bootstrap(
    remote: Remote,
    here: Surroundings,
    loaded: LoadedConfig,
    say: Callable[[str], None],
    *,
    runs: int,
    keep: int,
    output_dir: Path | None = None,
) -> str:
    """Run one canary several times and add the runs to the branch in one commit. `keep`: runs that
    stay per canary and machine.

    Raises:
        UsageError: this job may not write the baseline.
        InputError: config, model or data cannot be used.
        RunFailed: a run did not complete; nothing is written then.
        MachineError, RecordError: the branch cannot be read (before anything runs) or written.
    """
    require_allowed(here)
    with pulled(remote, here):
        pass  # An unreadable branch fails here, before the runs.
    records, folders = [], []
    for number in range(1, runs + 1):
        record, folder = completed_run(loaded, output_dir)
        records.append(record)
        folders.append(str(folder))
        say(f"run {number}/{runs}  {1000 * record.perf.step_time.median:.1f} ms per step")
    try:
        return push_runs(remote, here, records, keep=keep)
    except CanaryError:
        say(f"the runs are on disk; add them with: canary baseline push {' '.join(folders)}")
        raise
