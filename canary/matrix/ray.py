"""Cells as jobs of a Ray cluster, through its job API: they go on when the matrix is killed."""

from __future__ import annotations

import contextlib
import functools
import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from canary.errors import MachineError, UsageError
from canary.matrix.attempt import CLUSTER, CPU, SCRIPT, Attempt
from canary.matrix.document import Ray
from canary.matrix.queue import Seen
from canary.record import jsonio

NO_PLACE = "failed to start within"
"""Ray fails a job that found no place for 15 minutes; such a job still waits, for us."""
JOB = "job"
"""File of a try with the name of its job."""
ASKING_S = 60
GIB = 2**30
A_BIT = 0.001
"""Of the resource by which Ray tells types of GPUs apart."""


class RayQueue:
    """The jobs of a Ray cluster."""

    name = "Ray"
    most_waiting: int | None = 8

    def __init__(self, keys: Ray) -> None:
        self._keys = keys
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError as error:
            raise UsageError(
                "launcher.kind: ray needs Ray", "pip install 'rlhf-canary[ray]'"
            ) from error
        try:
            self._client = JobSubmissionClient(keys.address)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise MachineError(
                f"no Ray cluster answers at {keys.address}", "set launcher.address"
            ) from error
        # It would wait for ever for a machine that is gone.
        asked = functools.partial(self._client._do_request, timeout=ASKING_S)
        self._client._do_request = asked  # type: ignore[method-assign]

    def submit(self, attempts: Sequence[Attempt]) -> Mapping[Path, str]:
        """Submit a job for each try. Return why Ray did not take some."""
        refused: dict[Path, str] = {}
        for one in attempts:
            try:
                self._submit(one)
            except MachineError as error:
                refused[one.folder] = error.message
        return refused

    def _submit(self, one: Attempt) -> None:
        """Submit a job."""
        # Before the submission: whoever goes on finds the job by this name. It is a new one,
        # because Ray ends a waiting job that was stopped only when it has a place.
        name = f"canary-{uuid.uuid4().hex[:24]}"
        jsonio.replace_file(one.folder / JOB, name)
        with _answering():
            self._client.submit_job(
                entrypoint=f"exec /bin/sh {shlex.quote(str(one.folder / SCRIPT))}",
                submission_id=name,
                **self._resources(one),
            )

    def _resources(self, one: Attempt) -> dict[str, Any]:
        if one.device == CLUSTER:
            return {}
        found: dict[str, Any] = {"entrypoint_num_cpus": max(1, one.cores)}
        if one.gpus:
            found["entrypoint_num_gpus"] = one.gpus
        if one.device not in (None, CPU):
            found["entrypoint_resources"] = {f"accelerator_type:{one.device}": A_BIT}
        if self._keys.memory is not None:
            found["entrypoint_memory"] = int(self._keys.memory * GIB)
        return found

    def look(self, attempts: Sequence[Attempt]) -> Mapping[Path, Seen]:
        """Ask for all jobs of the cluster, and return those of these tries."""
        wanted = {one.said(JOB, 256): one for one in attempts}
        found: dict[Path, Seen] = {}
        with _answering():
            jobs = self._client.list_jobs()
        for job in jobs:
            one = wanted.get(job.submission_id or "")
            if one is None:
                continue
            status, message = str(job.status), " ".join(str(job.message or "").split())
            if status == "FAILED" and NO_PLACE in message:
                self._submit(one)
                status = "PENDING"
            phase: Any = {"PENDING": "waits", "RUNNING": "runs"}.get(status, "over")
            found[one.folder] = Seen(phase, f"{status} ({message[:200]})" if message else status)
        return found

    def stop(self, attempts: Sequence[Attempt]) -> None:
        """Stop jobs; those that wait, too."""
        for one in attempts:
            with _answering(), contextlib.suppress(RuntimeError):  # There is none.
                if (name := one.said(JOB, 256)) is not None:
                    self._client.stop_job(name)


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    """Turn what the client raises if nobody answers into our error."""
    import requests

    try:
        yield
    except (ConnectionError, requests.RequestException) as error:
        raise MachineError("the Ray cluster does not answer", "is it still running?") from error
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if line.strip()] or ["no reason"]
        raise MachineError(f"Ray refused the job: {lines[-1].strip()[:300]}") from error
