"""Which of GitHub's jobs may write the baseline, and that a person may."""

from __future__ import annotations

from typing import Any

import pytest

from canary.baseline.origin import require_writer
from canary.errors import UsageError

REPOSITORY = {"full_name": "o/r", "default_branch": "main"}
MAIN = "refs/heads/main"


def on(ref: str) -> dict[str, Any]:
    return {"repository": REPOSITORY, "ref": ref}


ANY: dict[str, Any] = {"repository": REPOSITORY}

MAY: list[tuple[str, str, dict[str, Any] | None]] = [
    ("push", MAIN, on(MAIN)),
    ("workflow_dispatch", MAIN, on(MAIN)),
    ("schedule", MAIN, ANY),
    ("schedule", MAIN, {"schedule": "0 3 * * *"}),
]
MAY_NOT: list[tuple[str, str, dict[str, Any] | None, str]] = [
    ("pull_request", "refs/pull/7/merge", ANY, "event pull_request may not write"),
    ("pull_request", MAIN, on(MAIN), "event pull_request"),
    ("pull_request_target", MAIN, on(MAIN), "event pull_request_target"),
    ("merge_group", "refs/heads/gh-readonly-queue/main/pr-7", ANY, "event merge_group"),
    ("issue_comment", MAIN, ANY, "event issue_comment"),
    ("repository_dispatch", MAIN, ANY, "event repository_dispatch"),
    ("fork", MAIN, ANY, "event fork"),
    ("workflow_run", MAIN, ANY, "event workflow_run"),
    ("release", "refs/tags/v1", ANY, "event release"),
    ("push", "refs/heads/topic", on("refs/heads/topic"), "push on refs/heads/topic"),
    ("push", "refs/tags/main", on("refs/tags/main"), "push on refs/tags/main"),
    ("push", MAIN, on("refs/heads/topic"), "push on refs/heads/topic"),
    ("push", "refs/heads/topic", on(MAIN), "push on refs/heads/topic"),
    ("push", "", ANY, "push on no branch"),
    ("push", MAIN, None, "push without a known default branch"),
    ("push", MAIN, {"repository": {"default_branch": 3}}, "without a known default branch"),
    ("workflow_dispatch", "refs/heads/topic", on("refs/heads/topic"), "workflow_dispatch on"),
    ("schedule", "refs/heads/topic", ANY, "schedule on refs/heads/topic"),
    ("", MAIN, on(MAIN), "an event without a name"),
]


@pytest.mark.parametrize(("name", "ref", "event"), MAY)
def test_the_default_branch_writes(name: str, ref: str, event: dict[str, Any] | None) -> None:
    require_writer({"GITHUB_EVENT_NAME": name, "GITHUB_REF": ref}, event)


@pytest.mark.parametrize(("name", "ref", "event", "says"), MAY_NOT)
def test_everything_else_is_refused_in_one_line(
    name: str, ref: str, event: dict[str, Any] | None, says: str
) -> None:
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": name, "GITHUB_REF": ref}
    with pytest.raises(UsageError, match=says) as caught:
        require_writer(environ, event)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert "default branch" in str(caught.value)


def test_a_person_may_write() -> None:
    require_writer({}, None)
    require_writer({"CI": "", "GITHUB_REF": "refs/heads/topic"}, None)
