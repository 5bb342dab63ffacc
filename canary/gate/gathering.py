"""The case that the reporting job judges, and all that it gathers for it: pull request, records,
baseline, config, acceptance.

A commit's pull request comes from GitHub's event or by the head commit, never from anything that
the training job wrote. Its changed files are evidence for the diagnosis, never for the verdict.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path

import requests
from github.ContentFile import ContentFile
from github.PullRequest import PullRequest
from github.Repository import Repository

from canary.baseline import branch
from canary.baseline.ancestry import Ancestry, ancestry_of
from canary.baseline.branch import Remote
from canary.baseline.history import VERSION
from canary.compare.diagnosis.source_changes import SourceChanges, parse_diff
from canary.errors import MachineError, RecordError
from canary.gate.base_config import Reader
from canary.gate.inputs import ReportSettings
from canary.gate.records import LARGEST_ARCHIVE, REMEDY, Records, extract, load_records
from canary.github.client import TIMEOUT_S, Hub, Refused, unanswered
from canary.github.event import Intent
from canary.github.publish import Channels
from canary.github.status import Answer, Source
from canary.github.statuses import context_of
from canary.github.workflow import Job

INCOMPLETE = "the records are incomplete"
CHUNK = 1 << 16
MOST_FILES = 200
MOST_LISTED = 5_000
"""Artifacts of a run that are looked at; a stranger may upload many."""


@dataclass(frozen=True)
class World:
    """The reporting job's access to GitHub, git, the runner and the clock; tests replace it."""

    hub: Hub
    remote: Remote
    job: Job
    now: Callable[[], datetime]


@dataclass
class Target:
    """What is judged and where the answer goes, as far as it is known."""

    settings: ReportSettings
    world: World
    intent: Intent
    comments: bool = True
    """Whether this job may write the comment."""
    pull: PullRequest | None = None
    """Set once it is found."""
    base_sha: str = ""
    """Commit whose config and thresholds apply; set once it is found."""
    judged: Sequence[Answer] = ()
    """The published answers, once they are out."""
    kept: ExitStack = field(default_factory=ExitStack)
    """Holds the files of the records until the page is drawn."""

    @property
    def source(self) -> Source:
        """The commit, and the workflow run that judges it."""
        settings, intent = self.settings, self.intent
        # A deleted repository has no name; without one its run would look like any repository's.
        origin = intent.head_repository or ("deleted" if intent.fork else "")
        return Source(intent.head_sha, settings.run_url, settings.run_id, settings.attempt, origin)

    @property
    def context(self) -> str:
        """The name of the status. The event often names the base branch, even if the token may not
        read the pull request."""
        base = self.pull.base.ref if self.pull is not None else self.intent.base_branch
        return context_of(self.settings.name, base, self.intent.default_branch)

    @property
    def channels(self) -> Channels:
        """Where the answer goes."""
        given, world = self.settings, self.world
        how = (given.comment, given.status, given.strict, self.context, given.jobs)
        return Channels(world.hub, world.job, *how)

    @property
    def number(self) -> int | None:
        """The number of the pull request."""
        return self.pull.number if self.pull is not None else self.intent.pull_request


def find_pull(target: Target) -> None:
    """Find the pull request whose head is, or was, the event's commit; None without one.

    Raises:
        MachineError: GitHub cannot be reached, or its answer lacks what an answer needs.
        Refused: the token may not read pull requests.
    """
    hub, intent = target.world.hub, target.intent
    pull = None
    if intent.pull_request is not None:
        number = intent.pull_request
        pull = hub.read(f"pull request #{number}", lambda: hub.repository.get_pull(number))
    elif intent.run_id is not None:
        pull = _pull_of_run(hub, intent)
    if pull is not None:
        found = pull
        known, *names = hub.read(
            "the pull request",
            lambda: (found.number, found.head.sha, found.base.sha, found.base.ref),
        )
        if not isinstance(known, int) or not all(isinstance(name, str) for name in names):
            raise MachineError(
                "GitHub's answer about the pull request is incomplete", "run the job again"
            )
    target.pull = pull


def _pull_of_run(hub: Hub, intent: Intent) -> PullRequest | None:
    """Return the pull request that a run of another workflow trained; None without one."""
    what = f"the pull request of {intent.head_sha[:9]}"
    found = hub.read(what, lambda: list(_candidates(hub.repository, intent)))
    exact = [pull for pull in found if pull.head.sha == intent.head_sha]
    if exact:
        # Several may have this head commit: prefer an open one into the default branch.
        default = intent.default_branch
        return min(
            exact,
            key=lambda pull: (pull.state != "open", pull.base.ref != default, pull.number),
        )
    with contextlib.suppress(Refused):  # The repository may not know a fork's commit.
        found = hub.read(what, lambda: list(hub.repository.get_commit(intent.head_sha).get_pulls()))
    for pull in found:
        # A fork's run of the same commit must not comment on another's pull request.
        known = pull.head.repo is not None and pull.head.repo.full_name == intent.head_repository
        if known and pull.head.sha == intent.head_sha:
            return pull
    return None


def _candidates(repository: Repository, intent: Intent) -> Iterator[PullRequest]:
    """Return pull requests from the run's branch."""
    owner = intent.head_repository.partition("/")[0]
    if not owner or not intent.head_branch:
        return
    for pull in repository.get_pulls(state="all", head=f"{owner}:{intent.head_branch}"):
        if pull.head.repo is None or pull.head.repo.full_name == intent.head_repository:
            yield pull


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
                raise MachineError(refused.message, "give the job `contents: read`") from refused
        hub.read(f"commit {sha[:9]}", lambda: hub.repository.get_commit(sha))
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
        raise MachineError(refused.message, "give the job `actions: read`") from refused
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


def changed_files(target: Target) -> SourceChanges:
    """Return the pull request's files and lines; nothing without a pull request or if GitHub
    refuses, because a diagnosis works without them."""
    pull = target.pull
    if pull is None:
        return SourceChanges()
    what = f"the files of pull request #{pull.number}"
    try:
        files = target.world.hub.read(what, lambda: list(islice(pull.get_files(), MOST_FILES)))
    except MachineError:
        return SourceChanges()
    return parse_diff("\n".join(f"+++ b/{file.filename}\n{file.patch or ''}" for file in files))


def ahead_of(target: Target) -> int | None:
    """Return how many commits the head has and its merge base lacks; None if nobody counted."""
    pull = target.pull
    if pull is None:
        return 0 if target.intent.writes_baseline else None
    with contextlib.suppress(MachineError):
        return target.world.hub.read(f"the commits of #{pull.number}", lambda: pull.commits)
    return None
