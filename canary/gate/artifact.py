"""Fetch the records artifact of the training run from GitHub."""

from __future__ import annotations

import tempfile
from pathlib import Path

import requests
from github.Repository import Repository

from canary.errors import MachineError, RecordError
from canary.gate.records import LARGEST_ARCHIVE, REMEDY, extract
from canary.github.client import TIMEOUT_S, Hub, Refused, unanswered

CHUNK = 1 << 16


def fetch_artifact(hub: Hub, repository: Repository, run_id: int, name: str, into: Path) -> None:
    """Download an artifact of a workflow run and unpack it safely; do nothing if it is missing.

    Raises:
        MachineError: GitHub cannot be reached, or the token lacks `actions: read`.
        RecordError: the artifact is too large or unsafe.
    """
    what = f"the artifact {name} of run {run_id}"
    try:
        found = hub.read(
            what,
            lambda: [
                int(one.id)
                for one in repository.get_workflow_run(run_id).get_artifacts()
                if one.name == name and not one.expired
            ],
        )
    except Refused as refused:
        raise MachineError(str(refused), "give the job `actions: read`") from refused
    if not found:
        return
    # Build the URL here: an address from a response could send the token elsewhere.
    place = f"/repos/{repository.full_name}/actions/artifacts/{max(found)}/zip"
    url = f"{hub.github.requester.base_url}{place}"
    with tempfile.TemporaryDirectory(prefix="canary-artifact-") as scratch:
        archive = Path(scratch) / "records.zip"
        try:
            _download(hub, url, archive)
        except requests.RequestException as problem:
            status = problem.response.status_code if problem.response is not None else None
            said = f"GitHub answered {status}" if status else unanswered(problem)
            raise MachineError(f"cannot download {what}: {said}", "run the job again") from None
        extract(archive, into)


def _download(hub: Hub, url: str, archive: Path) -> None:
    """Stream to a file, up to the size cap. `requests` drops the token when a redirect leads to
    another host."""
    headers = {"Authorization": f"Bearer {hub.token.reveal()}"}
    size = 0
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as response:
        response.raise_for_status()
        with archive.open("wb") as sink:
            for chunk in response.iter_content(CHUNK):
                size += len(chunk)
                if size > LARGEST_ARCHIVE:
                    raise RecordError("the artifact is too large", REMEDY)
                sink.write(chunk)
