"""`canary publish`: posts saved comparisons, or prints what it would post."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from canary.config.token import Token
from canary.errors import EXIT_OK, InputError, UsageError
from canary.publish.comment import merged, sections_of
from canary.publish.hub import Refused, connect
from canary.publish.publish import Channels, publish, usable_templates
from canary.publish.section import TEMPLATE
from canary.publish.source import Answer, Source
from canary.publish.status import status_of
from canary.publish.workflow import Job
from canary.report.reading import load_comparison

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class Posting:
    """What `canary publish` was asked."""

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
    """Posts; the exit code says whether it was posted, never what the verdict is.

    Raises:
        InputError: a comparison or template that is not there.
        UsageError: nowhere to post, or no token.
    """
    answers = tuple(_answer(path) for path in posting.comparisons)
    sha = posting.sha or answers[0].comparison.current.sha or ""
    channels = Channels(
        comment=posting.comment,
        status=posting.status,  # type: ignore[arg-type]  # Refuses what it does not know.
        strict=posting.strict,
        templates=_templates(posting.template),
    )
    if posting.dry_run:
        _show(answers, Source(sha or "0" * 40), channels, posting, out)
        return EXIT_OK
    _require(posting, sha)
    source = Source(sha, _run_url(environ), int(environ.get("GITHUB_RUN_ID") or 0))
    token = Token(environ.get("CANARY_TOKEN") or environ.get("GITHUB_TOKEN") or "")
    hub = connect(token, environ.get("GITHUB_API_URL") or "https://api.github.com")
    try:
        repository = hub.read(
            f"repository {posting.repository}", lambda: hub.github.get_repo(posting.repository)
        )
    except Refused as refused:
        raise UsageError(str(refused), "look at --repository and the token") from refused
    said = publish(hub, repository, posting.pull_request, source, answers, channels, job)
    for url in filter(None, (said.comment_url, said.check_url)):
        print(url, file=out)
    return EXIT_OK


def _answer(path: Path) -> Answer:
    found = load_comparison(path)
    return Answer(found.current.name or found.baseline.name or path.stem, found)


def _templates(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        return {TEMPLATE: path.read_text(encoding="utf-8")}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the template {path}", "name a Jinja file") from error


def _require(posting: Posting, sha: str) -> None:
    if not REPOSITORY.fullmatch(posting.repository):
        raise UsageError("no repository to post to", "--repository OWNER/NAME")
    if not SHA.fullmatch(sha):
        raise UsageError("no commit to set the status of", "--sha SHA, all of it")


def _run_url(environ: Mapping[str, str]) -> str:
    run = environ.get("GITHUB_RUN_ID")
    server = environ.get("GITHUB_SERVER_URL") or "https://github.com"
    return f"{server}/{environ.get('GITHUB_REPOSITORY', '')}/actions/runs/{run}" if run else ""


def _show(
    answers: tuple[Answer, ...], source: Source, channels: Channels, posting: Posting, out: TextIO
) -> None:
    templates, problem = usable_templates(answers, source, channels.templates)
    if problem:
        print(f"note: {problem}", file=out)
    where = posting.repository or "(no --repository)"
    text = status_of(answers, channels.strict)
    if channels.status != "none":
        print(
            f"{channels.status} on {source.sha[:9]} of {where}: {text.state}: {text.description}",
            file=out,
        )
    if channels.comment:
        number = f"#{posting.pull_request}" if posting.pull_request else "(no --pull-request)"
        print(f"comment on {number} of {where}:\n", file=out)
        print(merged("", sections_of(answers, source, templates)) or "", file=out, end="")
