"""State as GitHub's answers: its own examples, with what the state says in their place."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import Any

from tests.github.openapi import Description
from tests.github.state import BOT, Artifact, Comment, LabelEvent, Pull, Repository, Run, Status

API = "https://api.github.com"
SITE = "https://github.com"


class Payloads:
    """Answers about one repository, with addresses under `base`."""

    def __init__(self, description: Description, base: str, repository: Repository) -> None:
        self._description = description
        self._base = base
        self._repository = repository
        self.api = f"{base}/repos/{repository.full_name}"
        self.site = f"{SITE}/{repository.full_name}"

    def _example(self, name: str) -> Any:
        """GitHub's example, moved to our address."""
        text = json.dumps(self._description.example(name)).replace(API, self._base)
        return json.loads(text.replace("octocat/Hello-World", self._repository.full_name))

    def user(self, login: str, **more: Any) -> dict[str, Any]:
        """A person or a bot."""
        found = self._example("issue-comment")["user"]
        found.update(
            login=login,
            id=_id(login),
            type="Bot" if login.endswith("[bot]") else "User",
            url=f"{self._base}/users/{login}",
            html_url=f"{SITE}/{login.removesuffix('[bot]')}",
            **more,
        )
        return found

    def myself(self, login: str) -> dict[str, Any]:
        """The owner of a personal token."""
        found: dict[str, Any] = self._example(
            "private-user-response-with-public-and-private-profile-information"
        )
        found.update(self.user(login))
        return found

    def app(self) -> dict[str, Any]:
        """The app that a workflow's token belongs to."""
        found = self._example("check-run")["app"]
        found.update(id=15368, slug="github-actions", name="GitHub Actions")
        return found

    def repository(self, full_name: str = "") -> dict[str, Any]:
        """A repository; ours unless another is named."""
        full_name = full_name or self._repository.full_name
        owner, _, name = full_name.partition("/")
        text = json.dumps(self._description.example("full-repository-default-response"))
        text = text.replace(API, self._base).replace("octocat/Hello-World", full_name)
        found = json.loads(text)
        found.update(
            id=_id(full_name),
            name=name,
            full_name=full_name,
            owner=self.user(owner),
            private=self._repository.private,
            fork=full_name != self._repository.full_name,
            default_branch=self._repository.default_branch,
            language="Python",
            has_discussions=False,
        )
        for other in ("source", "parent", "template_repository", "organization"):
            found.pop(other, None)
        return found

    def changed_file(self, path: str, patch: str) -> dict[str, Any]:
        """A file of a pull request."""
        found = self._example("diff-entry-items")[0]
        return {**found, "filename": path, "patch": patch}

    def pull(self, pull: Pull, *, simple: bool = False) -> dict[str, Any]:
        """A pull request; `simple` as in a list."""
        found = self._example("pull-request-simple-items" if simple else "pull-request")
        found = found[0] if simple else found
        text = json.dumps(found).replace("/1347", f"/{pull.number}")
        found = json.loads(text)
        found.update(
            id=_id(f"pull {pull.number}"),
            number=pull.number,
            state=pull.state,
            draft=pull.draft,
            locked=False,
            active_lock_reason=None,
            title=f"Pull request {pull.number}",
            user=self.user(pull.author),
            labels=self.labels(pull.labels),
            created_at=pull.created,
            updated_at=pull.created,
            closed_at=pull.merged,
            merged_at=pull.merged,
            merge_commit_sha=pull.merge_commit_sha or "e5bd3914e2e596debea16f433f57875b5b90bcd6",
            head=self._side(pull.head_repository, pull.head_branch, pull.head_sha),
            base=self._side(self._repository.full_name, pull.base_branch, pull.base_sha),
            requested_teams=[],
            requested_reviewers=[],
            assignees=[],
            assignee=None,
            milestone=None,
        )
        if not simple:
            found.update(merged=bool(pull.merged), merged_by=None, commits=pull.commits)
        return found

    def _side(self, full_name: str | None, branch: str, sha: str) -> dict[str, Any]:
        owner = (full_name or "ghost/none").partition("/")[0]
        repository = self.repository(full_name) if full_name else None
        return {
            "label": f"{owner}:{branch}",
            "ref": branch,
            "sha": sha,
            "user": self.user(owner),
            "repo": repository,
        }

    def labels(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Labels by name."""
        first = self._example("label-items")[0]
        return [
            {**first, "id": _id(name), "name": name, "url": f"{self.api}/labels/{name}"}
            for name in names
        ]

    def comment(self, comment: Comment) -> dict[str, Any]:
        """A comment; a bot's is by its app."""
        found = self._example("issue-comment")
        bot = comment.author == BOT
        place = "pull"
        found.update(
            id=comment.id,
            url=f"{self.api}/issues/comments/{comment.id}",
            html_url=f"{self.site}/{place}/{comment.number}#issuecomment-{comment.id}",
            issue_url=f"{self.api}/issues/{comment.number}",
            body=comment.body,
            user=self.user(comment.author),
            created_at=comment.created,
            updated_at=comment.updated,
            author_association="NONE" if bot else "COLLABORATOR",
            performed_via_github_app=self.app() if bot else None,
        )
        return found

    def label_event(self, event: LabelEvent) -> dict[str, Any]:
        """A label set or taken off, as in the events of an issue."""
        found = self._example("issue-event-for-issue-items")[0]
        found.update(
            id=event.id,
            url=f"{self.api}/issues/events/{event.id}",
            actor=self.user(event.actor),
            event=event.event,
            commit_id=None,
            commit_url=None,
            created_at=event.created,
            label={"name": event.label, "color": "f29513"},
        )
        return found

    def commit(self, sha: str) -> dict[str, Any]:
        """A commit, without what it changed."""
        known = self._repository.commits[sha]
        text = json.dumps(self._example("commit"))
        found = json.loads(text.replace("6dcb09b5b57875f334f61aebed695e2e4193db5e", sha))
        found.update(sha=sha, files=[], parents=[])
        found["author"] = self.user(known.author) if known.author else {}
        found["commit"]["message"] = known.message
        for person in ("author", "committer"):
            found["commit"][person]["date"] = known.created
        return found

    def status(self, status: Status) -> dict[str, Any]:
        """A commit status."""
        found = self._example("status")
        found.update(
            id=status.id,
            url=f"{self.api}/statuses/{status.sha}",
            state=status.state,
            description=status.description,
            target_url=status.target_url,
            context=status.context,
            created_at=status.created,
            updated_at=status.created,
            creator=self.user(status.creator),
        )
        return found

    def permission(self, login: str, role: str) -> dict[str, Any]:
        """What somebody may do; the two roles that GitHub added later are told as older ones."""
        older = {"maintain": "write", "triage": "read"}.get(role, role)
        return {
            "permission": older,
            "role_name": role,
            "user": self.user(login, role_name=role),
        }

    def run(self, run: Run) -> dict[str, Any]:
        """A workflow run."""
        text = json.dumps(self._example("workflow-run"))
        text = text.replace("octo-org/octo-repo", self._repository.full_name)
        found = json.loads(text.replace("30433642", str(run.id)))
        found.update(
            id=run.id,
            event=run.event,
            head_sha=run.head_sha,
            head_branch=run.head_branch,
            status="completed" if run.conclusion else "in_progress",
            conclusion=run.conclusion,
            created_at=run.created,
            updated_at=run.created,
            run_started_at=run.created,
            pull_requests=[],
            repository=self._small_repository(self._repository.full_name),
            head_repository=self._small_repository(run.head_repository)
            if run.head_repository
            else None,
        )
        return found

    def _small_repository(self, full_name: str) -> dict[str, Any]:
        shown = self._description.example("workflow-run")["repository"]
        return {key: value for key, value in self.repository(full_name).items() if key in shown}

    def artifact(self, artifact: Artifact, run: Run) -> dict[str, Any]:
        """An artifact of a run."""
        found = self._example("artifact-paginated")["artifacts"][0]
        url = f"{self.api}/actions/artifacts/{artifact.id}"
        found.update(
            id=artifact.id,
            name=artifact.name,
            size_in_bytes=len(artifact.content),
            url=url,
            archive_download_url=f"{url}/zip",
            expired=artifact.expired,
            digest=f"sha256:{hashlib.sha256(artifact.content).hexdigest()}",
            created_at=artifact.created,
            updated_at=artifact.created,
        )
        found["workflow_run"].update(id=run.id, head_sha=run.head_sha, head_branch=run.head_branch)
        return found

    def contents(self, sha: str, path: str) -> dict[str, Any] | None:
        """A file of a commit; None where there is none."""
        content = self._repository.commits[sha].files.get(path)
        if content is None:
            return None
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        url = f"{self.api}/contents/{path}?ref={sha}"
        html = f"{self.site}/blob/{sha}/{path}"
        git = f"{self.api}/git/blobs/{blob}"
        return {
            "type": "file",
            "encoding": "base64",
            "content": base64.encodebytes(content).decode(),
            "name": path.rpartition("/")[2],
            "path": path,
            "sha": blob,
            "size": len(content),
            "url": url,
            "html_url": html,
            "git_url": git,
            "download_url": f"{self.site}/raw/{sha}/{path}",
            "_links": {"self": url, "html": html, "git": git},
        }


def _id(name: str) -> int:
    """A number that always belongs to a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
