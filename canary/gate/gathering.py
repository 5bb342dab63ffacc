"""Collect what the reporting job judges with: records, baseline, config, acceptance.

The changed files of a pull request are evidence for the diagnosis, never for the verdict.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import islice
from pathlib import Path

import requests
from github.ContentFile import ContentFile

from canary.baseline import branch
from canary.baseline.ancestry import Ancestry, ancestry_of
from canary.baseline.history import VERSION
from canary.compare.diagnosis.source_changes import SourceChanges, parse_diff
from canary.errors import MachineError, RecordError
from canary.gate.base_config import Reader, repository_path
from canary.gate.context import Target, allowed
from canary.gate.records import LARGEST_ARCHIVE, REMEDY, Records, extract, load_records
from canary.github.acceptance import Acceptance, Asked, acceptance_of, merged_pull
from canary.github.client import TIMEOUT_S, Hub, Refused, unanswered
from canary.github.status import key_of
from canary.github.statuses import context_of
from canary.github.sticky import comment_author

NOTHING_TO_READ = (
    "with `comment: never` and `status: false` you cannot see the result; turn one on, "
    "or accept by hand after the merge: gh workflow run canary.yml -f accept=REASON"
)
INCOMPLETE = "the records are incomplete"


def records_of(target: Target, scratch: Path) -> Records:
    """Return the records of all configs: of this job's folder, or of the training run's artifact.

    Raises:
        RecordError: the records are missing or refused.
        MachineError: the artifact cannot be downloaded.
    """
    settings, intent = target.settings, target.intent
    root = settings.records
    if intent.run_id is not None:
        root = scratch / "records"
        name = f"{settings.name}-records"
        _fetch(target.world.hub, intent.run_id, name, root)
    try:
        records = load_records(root)
        every = {part.config for part in records.manifest.parts} >= set(settings.configs)
        # A job that ended early leaves an error and too few configs; refuse other combinations.
        early = bool(records.manifest.error) or intent.conclusion not in ("", "success")
        if early and (every or not records.manifest.error):
            raise RecordError(INCOMPLETE)
        return records
    except RecordError as problem:
        if intent.conclusion in ("", "success"):
            raise
        ended = f"the training job ended as {intent.conclusion}"
        raise RecordError(f"{problem.message}: {ended}", problem.hint) from problem


def baseline_of(target: Target, scratch: Path) -> tuple[Path | None, Ancestry | None]:
    """Return the stored runs, and which of them the commit descends from; None before the first.

    Raises:
        MachineError, RecordError: the branch cannot be read; that never counts as an empty history.
    """
    folder = scratch / "baseline"
    if branch.pull(target.world.remote, folder, inhabited=True) is None:
        return None, None
    if not (folder / VERSION).is_dir():
        return folder, None
    return folder, ancestry_of(target.world.remote, target.base_sha, target.source.sha)


def api_reader(target: Target) -> Reader:
    """Return a reader of the base commit's files through GitHub's API. A file counts as missing
    only if GitHub shows the commit and not the file."""
    hub, sha = target.world.hub, target.base_sha

    def read(path: str) -> bytes | None:
        try:
            return hub.read(
                f"{path} on the base branch",
                lambda: _content(path, hub.repository.get_contents(path, ref=sha)),
            )
        except Refused as refused:
            if refused.status != 404 or "no commit found" in refused.said.lower():
                raise MachineError(str(refused), "give the job `contents: read`") from refused
        allowed(lambda: hub.read(f"commit {sha[:9]}", lambda: hub.repository.get_commit(sha)))
        return None

    return read


def _content(path: str, found: ContentFile | list[ContentFile]) -> bytes:
    """Return a file's bytes.

    Raises:
        MachineError: it is a folder or a link, or larger than 1 MB: GitHub omits such content.
    """
    if isinstance(found, list) or found.type != "file":
        raise MachineError(f"{path} on the base branch is not a file", "name a config file")
    if found.encoding == "none":
        raise MachineError(f"{path} on the base branch is too large for a config")
    return found.decoded_content


def acceptance(target: Target) -> Asked:
    """Return who accepted the change: in a dispatched run, or by a label on the pull request or
    on the merged one.

    Raises:
        Refused, MachineError: as `Hub.read`.
    """
    settings, intent, hub = target.settings, target.intent, target.world.hub
    if intent.accept_reason:
        return Asked(Acceptance(settings.actor, "", intent.head_sha, 0, intent.accept_reason))
    pull, head = target.pull, intent.head_sha
    if pull is None and intent.writes_baseline:
        pull = merged_pull(hub, intent.head_sha)
        head = pull.head.sha if pull is not None else ""
    if (number := intent.queued) is not None:
        pull = hub.read(f"#{number}", lambda: hub.repository.get_pull(number))
        head = pull.head.sha
    if pull is None:
        return Asked(None)
    asked = acceptance_of(
        hub,
        pull,
        head,
        [
            key_of(repository_path(settings.folder, config), settings.job)
            for config in settings.configs
        ],
        label=settings.label,
        context=context_of(settings.name, pull.base.ref, intent.default_branch),
        author=comment_author(hub),
        labelled=intent.accepting,
    )
    if asked.note and settings.comment == "never" and not settings.status:
        return replace(asked, note=f"label {settings.label} ignored: {NOTHING_TO_READ}")
    return asked


CHUNK = 1 << 16
MOST_LISTED = 5_000
"""Artifacts of a run that are looked at; a stranger may upload many."""


def _fetch(hub: Hub, run_id: int, name: str, into: Path) -> None:
    """Download the newest artifact of this name and unpack it safely; nothing without one.

    Raises:
        MachineError: GitHub cannot be reached, or the token lacks `actions: read`.
        RecordError: it is too large or unsafe.
    """
    what = f"the artifact {name} of run {run_id}"

    def there() -> list[int]:
        every = hub.repository.get_workflow_run(run_id).get_artifacts()
        some = islice(every, MOST_LISTED)
        return [int(one.id) for one in some if one.name == name and not one.expired]

    try:
        found = hub.read(what, there)
    except Refused as refused:
        raise MachineError(str(refused), "give the job `actions: read`") from refused
    if not found:
        return
    # Build the URL here: an address from a response could send the token elsewhere.
    place = f"/repos/{hub.repository.full_name}/actions/artifacts/{max(found)}/zip"
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
    """Stream to a file, up to the limit. `requests` drops the token if a redirect leads to another
    host."""
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


MOST_FILES = 200


def changed_files(target: Target) -> SourceChanges:
    """Return the pull request's files and lines; nothing without a pull request or if GitHub
    refuses, because a diagnosis works without them."""
    pull = target.pull
    if pull is None:
        return SourceChanges()
    what = f"the files of pull request #{pull.number}"
    try:
        files = target.world.hub.read(what, lambda: list(islice(pull.get_files(), MOST_FILES)))
    except (Refused, MachineError):
        return SourceChanges()
    return parse_diff("\n".join(f"+++ b/{file.filename}\n{file.patch or ''}" for file in files))
