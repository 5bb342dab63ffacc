"""What each operation does and answers, by the name that GitHub's description gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.github.payloads import Payloads
from tests.github.state import Artifact, Pull, Repository, Run

LONGEST_BODY = 65_536
LONGEST_DESCRIPTION = 140
LONGEST_CONTEXT = 255
MOST_STATUSES = 1000
DOCS = "https://docs.github.com/rest"


@dataclass(frozen=True)
class Answer:
    """An answer; `body` is None where it has none."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A request that is as described."""

    repository: Repository
    payloads: Payloads
    path: Mapping[str, Any]
    query: Mapping[str, Any]
    body: Any
    author: str
    """Whom the token writes as."""
    url: str
    """Address without the query, for links to other pages."""
    blobs: str
    """Where files are downloaded from: another host."""

    def pull(self, name: str = "issue_number") -> Pull:
        """The pull request of the path.

        Raises:
            Missing: there is none.
        """
        return _found(self.repository.pulls, self.path[name])

    def commit(self, name: str = "ref") -> str:
        """The commit of the path.

        Raises:
            Missing: there is none.
        """
        sha = self.repository.resolve(self.path[name])
        if sha is None:
            raise Missing(422, f"No commit found for SHA: {self.path[name]}")
        return sha

    def page(self, items: Sequence[Any], show: Callable[[Any], Any]) -> tuple[Any, dict[str, str]]:
        """A page of a list, and the header that names the others."""
        size = min(max(1, self.query.get("per_page", 30)), 100)
        at = max(1, self.query.get("page", 1))
        last = max(1, -(-len(items) // size))
        rest = {key: value for key, value in self.query.items() if key not in ("page",)}
        pages = {"prev": at - 1, "next": at + 1, "last": last, "first": 1}
        if at >= last:
            del pages["next"], pages["last"]
        if at == 1:
            del pages["prev"], pages["first"]
        links = ", ".join(
            f'<{self.url}?{_query({**rest, "page": page})}>; rel="{name}"'
            for name, page in pages.items()
        )
        shown = [show(one) for one in items[(at - 1) * size : at * size]]
        return shown, ({"Link": links} if links else {})

    def listed(self, items: Sequence[Any], show: Callable[[Any], Any]) -> Answer:
        """A page as the whole answer."""
        shown, headers = self.page(items, show)
        return Answer(200, shown, headers)


class Missing(Exception):
    """There is no such thing; the answer says so."""

    def __init__(self, status: int = 404, message: str = "Not Found") -> None:
        super().__init__(message)
        self.status = status
        self.message = message


Handler = Callable[[Call], Answer]
HANDLERS: dict[str, Handler] = {}
SCOPES: dict[str, tuple[tuple[str, ...], str]] = {}
"""Operation -> the permissions of which one is enough, and the level that it takes."""


def serves(operation: str, *scopes: str, level: str = "read") -> Callable[[Handler], Handler]:
    """Names the operation that a function answers, and the permission that it takes."""

    def named(handler: Handler) -> Handler:
        HANDLERS[operation] = handler
        SCOPES[operation] = (scopes, level)
        return handler

    return named


def error(status: int, message: str, **more: Any) -> Answer:
    """An error as GitHub words it."""
    body = {"message": message, "documentation_url": DOCS, "status": str(status), **more}
    return Answer(status, body)


def invalid(resource: str, field: str, message: str) -> Answer:
    """A value that GitHub refuses."""
    problem = {"resource": resource, "code": "custom", "field": field, "message": message}
    return error(422, "Validation Failed", errors=[problem])


def _found(items: Mapping[int, Any], number: int) -> Any:
    if number not in items:
        raise Missing
    return items[number]


def _query(values: Mapping[str, Any]) -> str:
    return urlencode({key: str(value) for key, value in values.items()})


@serves("repos/get", "metadata")
def _repository(call: Call) -> Answer:
    return Answer(200, call.payloads.repository())


@serves("pulls/list", "pull_requests")
def _pulls(call: Call) -> Answer:
    state, head = call.query.get("state", "open"), call.query.get("head", "")
    base = call.query.get("base", "")
    rising = call.query.get("direction") == "asc"
    # GitHub leaves the filter out where it does not name the owner.
    head = head if ":" in head else ""
    found = [
        pull
        for pull in call.repository.pulls.values()
        if state in ("all", pull.state)
        and head in ("", f"{(pull.head_repository or '/').split('/')[0]}:{pull.head_branch}")
        and base in ("", pull.base_branch)
    ]
    found.sort(key=lambda pull: (pull.created, pull.number), reverse=not rising)
    return call.listed(found, lambda pull: call.payloads.pull(pull, simple=True))


@serves("pulls/list-files", "pull_requests")
def _files_of_pull(call: Call) -> Answer:
    pull = call.pull("pull_number")
    return call.listed(list(pull.patches.items()), lambda item: call.payloads.changed_file(*item))


@serves("pulls/get", "pull_requests")
def _pull(call: Call) -> Answer:
    return Answer(200, call.payloads.pull(call.pull("pull_number")))


@serves("repos/list-pull-requests-associated-with-commit", "pull_requests")
def _pulls_of_commit(call: Call) -> Answer:
    """GitHub knows the pull request that was merged as a commit, and those of its own branches; of
    a fork's head it knows nothing here."""
    sha, own = call.path["commit_sha"], call.repository.full_name
    if call.repository.resolve(sha) is None:
        raise Missing(422, f"No commit found for SHA: {sha}")
    found = [
        pull
        for pull in call.repository.pulls.values()
        if pull.merge_commit_sha == sha or (pull.head_sha == sha and pull.head_repository == own)
    ]
    return call.listed(found, lambda pull: call.payloads.pull(pull, simple=True))


@serves("repos/get-commit", "contents")
def _commit(call: Call) -> Answer:
    return Answer(200, call.payloads.commit(call.commit()))


@serves("issues/list-labels-on-issue", "issues", "pull_requests")
def _labels(call: Call) -> Answer:
    return call.listed(call.pull().labels, lambda name: call.payloads.labels([name])[0])


@serves("issues/list-events", "issues", "pull_requests")
def _events(call: Call) -> Answer:
    return call.listed(call.pull().events, call.payloads.label_event)


@serves("issues/list-comments", "issues", "pull_requests")
def _comments(call: Call) -> Answer:
    found = call.repository.comments_on(call.pull().number)
    since = call.query.get("since", "")
    return call.listed([one for one in found if one.updated >= since], call.payloads.comment)


@serves("issues/create-comment", "issues", "pull_requests", level="write")
def _make_comment(call: Call) -> Answer:
    on, body = call.pull(), call.body["body"]
    refused = _body_refused(body)
    if refused:
        return refused
    comment = call.repository.add_comment(on.number, body, call.author)
    return Answer(201, call.payloads.comment(comment))


@serves("issues/update-comment", "issues", "pull_requests", level="write")
def _edit_comment(call: Call) -> Answer:
    comment = _found(call.repository.comments, call.path["comment_id"])
    refused = _body_refused(call.body["body"])
    if refused:
        return refused
    comment.body, comment.updated = call.body["body"], call.repository.clock.stamp()
    call.repository.clock.advance(1)
    return Answer(200, call.payloads.comment(comment))


@serves("issues/delete-comment", "issues", "pull_requests", level="write")
def _delete_comment(call: Call) -> Answer:
    _found(call.repository.comments, call.path["comment_id"])
    del call.repository.comments[call.path["comment_id"]]
    return Answer(204)


def _body_refused(body: str) -> Answer | None:
    if not body.strip():
        return invalid("IssueComment", "body", "body cannot be blank")
    if len(body) > LONGEST_BODY:
        said = f"body is too long (maximum is {LONGEST_BODY} characters)"
        return invalid("IssueComment", "body", said)
    return None


@serves("repos/get-collaborator-permission-level", "metadata")
def _permission(call: Call) -> Answer:
    login = call.path["username"]
    everyone = "none" if call.repository.private else "read"
    role = call.repository.permissions.get(login, everyone)
    return Answer(200, call.payloads.permission(login, role))


@serves("repos/create-commit-status", "statuses", level="write")
def _set_status(call: Call) -> Answer:
    sha, body = call.path["sha"], call.body
    context = body.get("context", "default")
    if sha not in call.repository.commits:
        return error(422, f"No commit found for SHA: {sha}")
    if len(body.get("description") or "") > LONGEST_DESCRIPTION:
        said = f"description is too long (maximum is {LONGEST_DESCRIPTION} characters)"
        return invalid("Status", "description", said)
    if len(context) > LONGEST_CONTEXT:
        return invalid("Status", "context", "context is too long (maximum is 255 characters)")
    if not (body.get("target_url") or "https:").startswith(("http:", "https:")):
        return invalid("Status", "target_url", "target_url must use http(s) scheme")
    same = [one for one in call.repository.statuses_of(sha) if one.context == context]
    if len(same) >= MOST_STATUSES:
        return invalid("Status", "base", "This SHA and context has reached the maximum of statuses")
    status = call.repository.add_status(
        sha,
        body["state"],
        context,
        description=body.get("description"),
        target_url=body.get("target_url"),
        creator=call.author,
    )
    return Answer(201, call.payloads.status(status))


@serves("repos/list-commit-statuses-for-ref", "statuses")
def _statuses(call: Call) -> Answer:
    return call.listed(call.repository.statuses_of(call.commit()), call.payloads.status)


@serves("repos/get-content", "contents")
def _contents(call: Call) -> Answer:
    ref = call.query.get("ref", call.repository.default_branch)
    sha = call.repository.resolve(ref)
    if sha is None:
        raise Missing(404, f"No commit found for the ref {ref}")
    found = call.payloads.contents(sha, call.path["path"].strip("/"))
    if found is None:
        raise Missing
    return Answer(200, found)


@serves("actions/get-workflow-run", "actions")
def _run(call: Call) -> Answer:
    return Answer(200, call.payloads.run(_found(call.repository.runs, call.path["run_id"])))


@serves("actions/list-workflow-run-artifacts", "actions")
def _artifacts(call: Call) -> Answer:
    run: Run = _found(call.repository.runs, call.path["run_id"])
    wanted = call.query.get("name")
    found = [one for one in reversed(run.artifacts) if wanted in (None, one.name)]
    shown, headers = call.page(found, lambda one: call.payloads.artifact(one, run))
    return Answer(200, {"total_count": len(found), "artifacts": shown}, headers)


@serves("actions/download-artifact", "actions")
def _artifact(call: Call) -> Answer:
    found = artifact_of(call.repository, call.path["artifact_id"])
    if found.expired:
        return error(410, "Artifact has expired")
    return Answer(302, None, {"Location": f"{call.blobs}/{call.repository.full_name}/{found.id}"})


def artifact_of(repository: Repository, number: int) -> Artifact:
    """An artifact by its number.

    Raises:
        Missing: there is none.
    """
    every = {one.id: one for run in repository.runs.values() for one in run.artifacts}
    found: Artifact = _found(every, number)
    return found


def user(payloads: Payloads, login: str) -> Answer:
    """Who the token belongs to; that of a workflow or an App is nobody's, and may not ask."""
    if login.endswith("[bot]"):
        return error(403, "Resource not accessible by integration")
    return Answer(200, payloads.myself(login))
