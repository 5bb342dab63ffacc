"""`canary publish`: post saved comparisons, or print what would be posted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from canary.config.token import Token
from canary.errors import EXIT_OK, InputError, MachineError, UsageError
from canary.github.checkrun import CONCLUSIONS, annotated
from canary.github.client import Refused, connect
from canary.github.comment import merged
from canary.github.publish import Channels, publish, sections_by
from canary.github.section import TEMPLATE
from canary.github.status import NO_COMMIT, Answer, Source, status_of
from canary.github.workflow import Job
from canary.record.folder import load_record
from canary.report.document import load_comparison
from canary.report.escape import log_line

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
DEFAULT_API = "https://api.github.com"
SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
API = re.compile(r"https?://[^\s/]+\S*")


@dataclass(frozen=True)
class Posting:
    """The options of `canary publish`."""

    comparisons: tuple[Path, ...]
    repository: str
    pull_request: int | None
    sha: str
    status: str
    comment: bool
    template: Path | None
    strict: bool
    dry_run: bool


def post(posting: Posting, environ: Mapping[str, str], job: Job, out: TextIO) -> int:
    """Post; the exit code says whether that worked, not what the verdict is.

    Raises:
        InputError: a comparison or template is missing.
        UsageError: an option is invalid, or the repository or token is missing.
        MachineError: nothing could be posted.
    """
    _check_forms(posting)
    answers = tuple(_answer(path) for path in posting.comparisons)
    names = [answer.canary for answer in answers]
    if len(set(names)) < len(names):
        raise InputError(
            f"two comparisons are of the same canary ({', '.join(sorted(set(names)))})",
            "give one comparison per canary: the comment has one section for each",
        )
    sha = posting.sha or answers[0].comparison.current.sha or ""
    channels = Channels(
        comment=posting.comment,
        status=posting.status,  # type: ignore[arg-type]  # Channels refuses unknown values.
        strict=posting.strict,
        templates=_templates(posting.template),
    )
    if posting.dry_run:
        _show(answers, Source(sha if SHA.fullmatch(sha) else NO_COMMIT), channels, posting, out)
        return EXIT_OK
    _require(posting, sha)
    source = Source(sha, _run_url(environ), _run_id(environ))
    token = Token(environ.get("CANARY_TOKEN") or environ.get("GITHUB_TOKEN") or "")
    if not token:
        raise UsageError("no token to post with", "set GITHUB_TOKEN or CANARY_TOKEN")
    hub = connect(token, _api_url(environ))
    try:
        repository = hub.read(
            f"repository {posting.repository}", lambda: hub.github.get_repo(posting.repository)
        )
    except Refused as refused:
        raise UsageError(str(refused), "check --repository and the token") from refused
    said = publish(hub, repository, posting.pull_request, source, answers, channels, job)
    if not said.written:
        reason = (
            said.notices[-1] if said.notices else "you asked for neither a comment nor a status"
        )
        raise MachineError(f"nothing was posted to {posting.repository}: {reason}")
    for url in filter(None, (said.comment_url, said.check_url)):
        print(url, file=out)
    return EXIT_OK


def _answer(path: Path) -> Answer:
    try:
        found = load_comparison(path)
    except InputError:
        if not _is_record(path):
            raise
        raise InputError(
            f"{path} is the record of a run, not a comparison",
            "compare it first: canary compare RUN BASELINE --format json -o comparison.json",
        ) from None
    return Answer(found.current.name or found.baseline.name or path.stem, found)


def _is_record(path: Path) -> bool:
    try:
        load_record(path)
    except InputError:
        return False
    return True


def _templates(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        return {TEMPLATE: path.read_text(encoding="utf-8")}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the template {path}", "give a Jinja file") from error


def _check_forms(posting: Posting) -> None:
    """Check the form of the options that are set, in a dry run too."""
    given = posting.repository
    if given and not REPOSITORY.fullmatch(given):
        raise UsageError(f"--repository {given!r} is not a repository", "--repository OWNER/NAME")
    if posting.sha and not SHA.fullmatch(posting.sha):
        raise UsageError(
            f"--sha {posting.sha!r} is not a full commit SHA",
            "give all 40 digits in lower case",
        )
    if posting.pull_request is not None and posting.pull_request < 1:
        raise UsageError(
            f"--pull-request {posting.pull_request} is not a pull request number",
            "for example --pull-request 7",
        )


def _require(posting: Posting, sha: str) -> None:
    if not posting.repository:
        raise UsageError("no repository to post to", "--repository OWNER/NAME")
    if not SHA.fullmatch(sha):
        said = (
            f"the record's commit {sha!r} is not a full SHA"
            if sha
            else "the record names no commit"
        )
        raise UsageError(f"no commit to post to: {said}", "give the full SHA with --sha")


def _run_id(environ: Mapping[str, str]) -> int:
    text = environ.get("GITHUB_RUN_ID") or "0"
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"GITHUB_RUN_ID {text!r} is not a number", "unset it outside a job")
    return int(text)


def _api_url(environ: Mapping[str, str]) -> str:
    url = environ.get("GITHUB_API_URL") or DEFAULT_API
    if not API.fullmatch(url):
        raise UsageError(f"GITHUB_API_URL {url!r} is not an address", f"for example {DEFAULT_API}")
    return url


def _run_url(environ: Mapping[str, str]) -> str:
    run = environ.get("GITHUB_RUN_ID")
    server = environ.get("GITHUB_SERVER_URL") or "https://github.com"
    return f"{server}/{environ.get('GITHUB_REPOSITORY', '')}/actions/runs/{run}" if run else ""


def _show(
    answers: tuple[Answer, ...], source: Source, channels: Channels, posting: Posting, out: TextIO
) -> None:
    sections, problem = sections_by(answers, source, channels.templates)
    if problem:
        print(f"note: {problem}", file=out)
    where = posting.repository or "no repository (no --repository)"
    text = status_of(answers, channels.strict)
    place = f"on {source.sha[:9] if source.named else 'no commit'} of {where}"
    if channels.commit_status:
        print(f"commit-status {place}: {text.state}: {text.description}", file=out)
    if channels.check_run:
        ends = CONCLUSIONS[text.state]
        print(f"check-run {place}: {ends}, with the title: {text.description}", file=out)
        for note in annotated(answers):
            where = f"{note['path']}:{note['start_line']}"
            level, said = note["annotation_level"], log_line(note["message"].replace("\n", " "))
            print(f"annotation, {level}, at {log_line(where)}: {said}", file=out)
    if channels.comment:
        number = f"#{posting.pull_request}" if posting.pull_request else "(no --pull-request)"
        print(f"comment on {number} of {where}:\n", file=out)
        print(merged("", sections) or "", file=out, end="")
