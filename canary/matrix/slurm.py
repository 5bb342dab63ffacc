"""Cells as jobs of Slurm. submitit submits them; `squeue` says how they go.

submitit asks `sacct`, which many clusters do not have. `squeue --states=all` also names jobs that
ended within the last minutes.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from canary.errors import MachineError, UsageError
from canary.matrix.attempt import STOP_GRACE_S, Attempt
from canary.matrix.document import Slurm
from canary.matrix.queue import STUCK_S, Seen
from canary.record import jsonio

JOBS, FORMAT = "slurm", "%i|%j|%T|%r|%N"
ASKING_S = 60
LARGEST_ARRAY = 500
"""Below Slurm's usual MaxArraySize of 1001."""
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"})
WAITING |= {"SPECIAL_EXIT", "SUSPENDED", "CONFIGURING"}
RUNNING = frozenset({"RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED"})
"""Job state codes of squeue(1); all others are ends."""
FURTHER = ("over", "waits", "runs")


class SlurmQueue:
    """Slurm's queue. Tries with equal resources become one job array."""

    name = "Slurm"
    most_waiting: int | None = None

    def __init__(self, keys: Slurm, folder: Path) -> None:
        """`folder`: of the matrix."""
        self._keys, self._folder, self._jobs = keys, folder, folder / JOBS
        self._members: dict[str, list[Path]] = {}
        """Tries of each array, by its job name."""
        self._require()

    @staticmethod
    def _require() -> None:
        try:
            import submitit  # noqa: F401
        except ImportError as error:
            raise UsageError(
                "launcher.kind: slurm needs submitit", "pip install 'rlhf-canary[slurm]'"
            ) from error
        _asked(["squeue", "--version"])

    def submit(self, attempts: Sequence[Attempt]) -> Mapping[Path, str]:
        """Submit an array for each set of resources. Return why Slurm did not take some."""
        refused: dict[Path, str] = {}
        for _, equal in itertools.groupby(sorted(attempts, key=_resources), key=_resources):
            group = [*equal]
            for first in range(0, len(group), LARGEST_ARRAY):
                part = group[first : first + LARGEST_ARRAY]
                try:
                    self._submit(part)
                except MachineError as error:
                    refused.update({one.folder: error.message for one in part})
        return refused

    def _submit(self, attempts: list[Attempt]) -> None:
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        name = f"canary-{uuid.uuid4().hex[:16]}"
        folders = [one.folder for one in attempts]
        self._jobs.mkdir(parents=True, exist_ok=True)
        # Before the submission: whoever goes on finds the jobs by this name.
        members = [str(one.relative_to(self._folder)) for one in folders]
        jsonio.replace_file(self._jobs / f"{name}.json", jsonio.dumps(members))
        self._members[name] = folders
        try:
            executor = submitit.SlurmExecutor(self._jobs / "files", max_num_timeout=0)
            executor.update_parameters(**self._parameters(name, attempts[0]))
            command = submitit.helpers.CommandFunction(["/bin/sh"])
            executor.map_array(command, [str(one.folder / "run.sh") for one in attempts])
        except (FailedJobError, FailedSubmissionError, subprocess.SubprocessError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()] or ["no reason"]
            raise MachineError(f"Slurm refused the job: {lines[-1].strip()}") from error
        except (OSError, RuntimeError) as error:
            raise MachineError(f"cannot submit to Slurm: {error}") from error

    def _parameters(self, name: str, one: Attempt) -> dict[str, Any]:
        """Return the parameters of submitit for tries like this one."""
        keys = self._keys
        found: dict[str, Any] = {
            "job_name": name,
            "time": math.ceil((one.limit_s + STOP_GRACE_S + STUCK_S) / 60),
            "nodes": 1,
            "ntasks_per_node": 1,
            "cpus_per_task": max(1, one.cores),
            "stderr_to_stdout": True,
            "additional_parameters": {
                **({"requeue": True} if keys.requeue else {"no-requeue": True}),
                **keys.options,
            },
        }
        if one.gpus:
            kind = f"{one.device}:" if one.device else ""
            found["gpus_per_node"] = f"{kind}{one.gpus}"
        if keys.memory is not None:
            found["mem"] = f"{math.ceil(keys.memory * 1024)}M"
        for key in ("partition", "account", "qos", "constraint"):
            if (value := getattr(keys, key)) is not None:
                found[key] = value
        return found

    def _known(self) -> dict[str, list[Path]]:
        """Return the tries of all arrays, also those of earlier processes."""
        for file in self._jobs.glob("canary-*.json"):
            if file.stem not in self._members:
                try:
                    members = [str(one) for one in json.loads(jsonio.content_of(file))]
                except (OSError, ValueError, TypeError, RecursionError):
                    members = []  # A cell can write there; its own jobs are never found by it.
                self._members[file.stem] = [self._folder / one for one in members]
        return self._members

    def jobs(self, attempts: Sequence[Attempt]) -> Iterator[tuple[Path, str, Seen]]:
        """Ask squeue for all of the user's jobs, and yield those of these tries. Of a try that was
        lost before it began there may be two."""
        known, wanted = self._known(), {one.folder for one in attempts}
        words = ["squeue", "-r", "-h", "--states=all", f"--user={os.getuid()}", "-o", FORMAT]
        for line in _asked(words).splitlines():
            if line.count("|") != FORMAT.count("|"):
                continue
            job, name, *told = line.split("|")
            folders, index = known.get(name), int(job.partition("_")[2] or 0)
            if folders is None or index >= len(folders) or folders[index] not in wanted:
                continue
            yield folders[index], job, _seen(*told)

    def look(self, attempts: Sequence[Attempt]) -> Mapping[Path, Seen]:
        """Return what squeue says of these tries; of two jobs the one that is further counts."""
        found = sorted(self.jobs(attempts), key=lambda job: FURTHER.index(job[2].phase))
        return {folder: seen for folder, _, seen in found}

    def stop(self, attempts: Sequence[Attempt]) -> None:
        """Cancel jobs."""
        jobs = [job for _, job, seen in self.jobs(attempts) if seen.phase != "over"]
        if jobs:
            _asked(["scancel", *jobs])


def _resources(one: Attempt) -> tuple[int, int, str, float]:
    return one.gpus, one.cores, one.device or "", one.limit_s


def _seen(state: str, reason: str, nodes: str) -> Seen:
    """Return what Slurm says of a job, in its own words."""
    why = f" ({reason})" if reason not in ("", "None") else ""
    said = f"{state}{why}" + (f" on {nodes}" if nodes else "")
    return Seen("waits" if state in WAITING else "runs" if state in RUNNING else "over", said)


def _asked(words: Sequence[str]) -> str:
    """Return what a program of Slurm prints."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=ASKING_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(
            f"{words[0]} does not answer: {error}", "is Slurm installed on this machine?"
        ) from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise MachineError(f"{words[0]} says: {said}", "check the partitions with sinfo")
    return done.stdout
