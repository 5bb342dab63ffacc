"""Events of GitHub and what each asks of the gate."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from canary.errors import InputError, UsageError
from canary.github.event import Intent, Kind, intent_of

HEAD = "a" * 40
BASE = "b" * 40
REPOSITORY = {"full_name": "octo/models", "default_branch": "main"}


def pull_request(action: str = "opened", **changes: Any) -> dict[str, Any]:
    payload = {
        "action": action,
        "repository": REPOSITORY,
        "sender": {"login": "mona"},
        "pull_request": {
            "number": 7,
            "draft": False,
            "head": {"sha": HEAD, "ref": "faster", "repo": {"full_name": "octo/models"}},
            "base": {"sha": BASE, "ref": "main"},
            "merge_commit_sha": "c" * 40,
        },
    }
    return {**copy.deepcopy(payload), **changes}


def push(ref: str = "refs/heads/main", after: str = HEAD) -> dict[str, Any]:
    return {"ref": ref, "after": after, "repository": REPOSITORY}


def workflow_run(action: str = "completed", **changes: Any) -> dict[str, Any]:
    run = {
        "id": 99,
        "event": "pull_request",
        "head_sha": HEAD,
        "head_branch": "faster",
        "head_repository": {"full_name": "mona/models"},
        "conclusion": "success",
        "pull_requests": [{"number": 1}],
    }
    return {"action": action, "repository": REPOSITORY, "workflow_run": {**run, **changes}}


ACCEPT = "canary:accept"


def by(login: str, repository: str = "octo/models", **values: Any) -> dict[str, Any]:
    """A pull request by somebody, from a repository."""
    payload = pull_request(**values)
    payload["pull_request"]["user"] = {"login": login}
    payload["pull_request"]["head"]["repo"] = {"full_name": repository}
    return payload


def draft(action: str = "opened", **values: Any) -> dict[str, Any]:
    payload = pull_request(action, **values)
    payload["pull_request"]["draft"] = True
    return payload


NEW_BASE = {"base": {"ref": {"from": "main"}}}
PULL_REQUESTS = [
    (pull_request("opened"), ""),
    (pull_request("synchronize"), ""),
    (pull_request("reopened"), ""),
    (pull_request("ready_for_review"), ""),
    (pull_request("labeled", label={"name": ACCEPT}), ""),
    (pull_request("edited", changes=NEW_BASE), ""),
    (pull_request("labeled", label={"name": "bug"}), "was labeled: no new comparison"),
    (pull_request("unlabeled", label={"name": ACCEPT}), "was unlabeled: no new"),
    (pull_request("edited", changes={"title": {"from": "old"}}), "was edited: no new"),
    (pull_request("closed"), "was closed: no new comparison"),
    (draft(), "nothing is trained while it is a draft"),
    (draft("labeled", label={"name": ACCEPT}), "while it is a draft"),
    (by("mona", "mona/models"), "`canary init --forks`"),
    (by("dependabot[bot]"), "`canary init --forks`"),
]


@pytest.mark.parametrize(("payload", "nothing"), PULL_REQUESTS)
def test_a_pull_request_is_judged_or_left_with_one_reason(
    payload: dict[str, Any], nothing: str
) -> None:
    intent = intent_of("pull_request", payload)
    assert intent.kind is (Kind.IGNORE if nothing else Kind.JUDGE)
    assert nothing in intent.reason
    assert (intent.head_sha, intent.base_sha, intent.base_branch) == (HEAD, BASE, "main")
    assert intent.pull_request == 7
    assert not intent.writes_baseline


def test_another_label_may_be_the_one_that_accepts() -> None:
    payload = pull_request("labeled", label={"name": "fine"})
    assert intent_of("pull_request", payload, label="fine").kind is Kind.JUDGE
    payload = pull_request("labeled", label={"name": ACCEPT})
    assert intent_of("pull_request", payload, label="fine").kind is Kind.IGNORE


def test_the_status_never_goes_to_the_merge_commit() -> None:
    intent = intent_of("pull_request", pull_request(), sha="c" * 40, ref="refs/pull/7/merge")
    assert intent.head_sha == HEAD


def test_a_fork_is_known_by_its_repository_even_when_its_branch_is_called_main() -> None:
    payload = pull_request()
    payload["pull_request"]["head"].update(ref="main", repo={"full_name": "mona/models"})
    intent = intent_of("pull_request", payload)
    assert intent.fork
    assert intent.head_repository == "mona/models"
    assert not intent.writes_baseline


def test_a_deleted_fork_is_still_a_fork() -> None:
    payload = pull_request()
    payload["pull_request"]["head"]["repo"] = None
    intent = intent_of("pull_request", payload)
    assert intent.fork
    assert intent.head_repository == ""


def test_pull_request_target_is_refused_with_the_safe_way() -> None:
    with pytest.raises(UsageError, match="pull_request_target") as caught:
        intent_of("pull_request_target", pull_request())
    assert "`canary init --forks`" in str(caught.value)


@pytest.mark.parametrize(
    "payload",
    [
        push("refs/heads/faster"),
        push("refs/heads/other/main"),
        push("refs/tags/main"),
        push(after="0" * 40),
    ],
    ids=["other branch", "branch that ends alike", "tag of that name", "deleted"],
)
def test_no_other_push_is_recorded(payload: dict[str, Any]) -> None:
    intent = intent_of("push", payload)
    assert intent.kind is Kind.IGNORE
    assert not intent.writes_baseline


def dispatched(ref: str = "refs/heads/main", **inputs: str) -> Intent:
    payload = {"repository": REPOSITORY, "ref": ref, "inputs": inputs or None}
    return intent_of("workflow_dispatch", payload, sha=HEAD)


@pytest.mark.parametrize("name", ["schedule", "workflow_dispatch"])
def test_runs_on_the_default_branch_are_recorded(name: str) -> None:
    intent = intent_of(name, {"repository": REPOSITORY}, sha=HEAD, ref="refs/heads/main")
    assert (intent.kind, intent.head_sha, intent.writes_baseline) == (Kind.RECORD, HEAD, True)
    assert intent.nightly == (name == "schedule")


@pytest.mark.parametrize("task", ["", "train", "nightly", "bootstrap"])
def test_a_task_on_the_default_branch_is_recorded_with_the_reason_that_was_given(
    task: str,
) -> None:
    intent = dispatched(task=task, accept="  a new\ndriver ")
    assert (intent.kind, intent.writes_baseline) == (Kind.RECORD, True)
    assert (intent.nightly, intent.accept_reason) == (task == "nightly", "a new driver")


def test_the_cache_is_filled_for_the_default_branch_alone() -> None:
    intent = dispatched(task="prefetch")
    assert (intent.kind, intent.writes_baseline) == (Kind.PREFETCH, False)
    assert dispatched("refs/heads/other", task="prefetch").kind is Kind.IGNORE


@pytest.mark.parametrize("inputs", [{}, {"task": "bootstrap"}, {"accept": "x"}])
def test_a_dispatch_on_another_branch_does_nothing(inputs: dict[str, str]) -> None:
    intent = dispatched("refs/heads/other", **inputs)
    assert (intent.kind, intent.writes_baseline) == (Kind.IGNORE, False)
    assert "not on the default branch" in intent.reason


def test_a_task_that_nobody_offers_is_an_error() -> None:
    with pytest.raises(InputError, match=r"inputs\.task"):
        dispatched(task="deploy")


def test_a_dispatch_on_a_tag_called_as_the_default_branch_writes_nothing() -> None:
    assert dispatched("refs/tags/main").kind is Kind.IGNORE


def test_a_dispatch_that_does_not_say_where_it_ran_is_an_error() -> None:
    with pytest.raises(InputError, match="GITHUB_REF"):
        intent_of("workflow_dispatch", {"repository": REPOSITORY}, sha=HEAD)


def test_a_schedule_without_a_commit_is_an_error() -> None:
    with pytest.raises(InputError, match="GITHUB_SHA"):
        intent_of("schedule", {"repository": REPOSITORY, "schedule": "0 3 * * *"})


def test_the_report_of_a_fork_names_no_pull_request_from_the_event() -> None:
    intent = intent_of("workflow_run", workflow_run())
    assert intent.kind is Kind.JUDGE
    assert intent.pull_request is None
    assert intent.fork
    assert (intent.run_id, intent.conclusion, intent.base_sha) == (99, "success", "")
    assert (intent.head_sha, intent.head_repository) == (HEAD, "mona/models")


@pytest.mark.parametrize("action", ["requested", "in_progress"])
def test_a_run_that_begins_is_announced(action: str) -> None:
    intent = intent_of("workflow_run", workflow_run(action, conclusion=None))
    assert (intent.kind, intent.conclusion, intent.writes_baseline) == (Kind.ANNOUNCE, "", False)


def test_a_run_that_waits_for_approval_is_no_failure() -> None:
    intent = intent_of("workflow_run", workflow_run(conclusion="action_required"))
    assert intent.kind is Kind.ANNOUNCE
    assert "approval" in intent.reason


def test_the_workflow_for_forks_leaves_branches_of_the_repository_to_the_other() -> None:
    own: dict[str, Any] = {"head_repository": {"full_name": "octo/models"}}
    begun = intent_of("workflow_run", workflow_run("requested", conclusion=None, **own))
    skipped = intent_of("workflow_run", workflow_run(conclusion="skipped", **own))
    dependabots = intent_of("workflow_run", workflow_run(**own))
    assert (begun.kind, skipped.kind) == (Kind.IGNORE, Kind.IGNORE)
    assert dependabots.kind is Kind.JUDGE


@pytest.mark.parametrize(
    "changes",
    [
        {"event": "push", "head_branch": "main"},
        {"event": "schedule", "head_branch": "main", "head_repository": REPOSITORY},
        {"event": "pull_request_target"},
        {"event": "repository_dispatch"},
    ],
)
def test_other_runs_are_ignored(changes: dict[str, Any]) -> None:
    intent = intent_of("workflow_run", workflow_run(**changes))
    assert (intent.kind, intent.writes_baseline) == (Kind.IGNORE, False)


def test_a_pull_request_run_of_a_branch_called_main_writes_nothing() -> None:
    intent = intent_of("workflow_run", workflow_run(head_branch="main"))
    assert (intent.kind, intent.writes_baseline) == (Kind.JUDGE, False)


BAD_VALUES: list[tuple[str, Any]] = [
    ("pull_request.head.sha", HEAD[:39]),
    ("pull_request.head.sha", HEAD.upper()),
    ("pull_request.head.sha", HEAD + "\n"),
    ("pull_request.head.sha", None),
    ("pull_request.head.ref", "a\n::set-env name=x::y"),
    ("pull_request.head.repo", "octo/models"),
    ("pull_request.number", "7"),
    ("pull_request.number", True),
    ("pull_request.number", 0),
    ("pull_request.draft", "no"),
    ("pull_request.base", []),
    ("repository.full_name", "octo/models/../other"),
    ("repository.full_name", "octo"),
    ("repository.default_branch", 3),
    ("action", "opened\n::error::x"),
]


@pytest.mark.parametrize(("key", "value"), BAD_VALUES)
def test_a_value_that_github_never_sends_is_an_error_that_names_the_key(
    key: str, value: Any
) -> None:
    payload = copy.deepcopy(pull_request())
    *parents, last = key.split(".")
    part = payload
    for parent in parents:
        part = part[parent]
    part[last] = value
    with pytest.raises(InputError, match=key.replace(".", r"\.")) as caught:
        intent_of("pull_request", payload)
    assert "\n" not in str(caught.value)
    assert "::" not in str(caught.value)


@pytest.mark.parametrize("key", ["action", "repository", "pull_request"])
def test_a_missing_key_is_named(key: str) -> None:
    payload = pull_request()
    del payload[key]
    with pytest.raises(InputError, match=rf"{key}\S* is missing"):
        intent_of("pull_request", payload)


def test_a_sha256_repository_is_served() -> None:
    payload = pull_request()
    payload["pull_request"]["head"]["sha"] = "d" * 64
    assert intent_of("pull_request", payload).head_sha == "d" * 64


@pytest.mark.parametrize("branch", ["::error", "a b", "a\u2028b", "a\x85b", "a\x7f", ""])
def test_a_name_that_git_does_not_allow_is_refused(branch: str) -> None:
    with pytest.raises(InputError, match="head_branch"):
        intent_of("workflow_run", workflow_run(head_branch=branch))


def test_a_branch_may_be_named_in_any_script() -> None:
    intent = intent_of("workflow_run", workflow_run(head_branch="功能/é-1"))
    assert intent.head_branch == "功能/é-1"
