"""GitHub's own examples of payloads, each to what it asks of the gate.

The package holds no pull request from a fork, no run that a pull request set off, and no scheduled
run. Those here are its examples with the few values changed that make them so; where a scheduled
run's payload is documented only in words, the example of a dispatch gives its repository.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from canary.github.event import Intent, Kind, intent_of

Webhooks = dict[str, list[dict[str, Any]]]
SHA = "c" * 40
PULL_HEAD = "ec26c3e57ca3a959ca5aad62de7213c562f8c821"
PULL_BASE = "f95f852bd8fca8fcc58a9a2d6c842781e32a215e"
RUN_HEAD = "3484a3fb816e0859fd6e1cea078d76385ff50625"


def of(webhooks: Webhooks, name: str, action: str = "") -> list[dict[str, Any]]:
    """The examples of an event with this action; at least one."""
    found = [one for one in webhooks[name] if action in ("", one.get("action"))]
    assert found, f"no example of {name} {action}"
    return copy.deepcopy(found)


@pytest.mark.parametrize("action", ["opened", "synchronize"])
def test_pull_requests_are_judged(webhooks: Webhooks, action: str) -> None:
    for payload in of(webhooks, "pull_request", action):
        intent = intent_of("pull_request", payload, sha=SHA, ref="refs/pull/2/merge")
        assert intent == Intent(
            kind=Kind.JUDGE,
            reason=intent.reason,
            default_branch=payload["repository"]["default_branch"],
            head_sha=PULL_HEAD,
            head_repository="Codertocat/Hello-World",
            head_branch="changes",
            base_sha=PULL_BASE,
            base_branch=payload["pull_request"]["base"]["ref"],
            pull_request=2,
        )


def test_pushes_are_recorded_on_the_default_branch_alone(webhooks: Webhooks) -> None:
    recorded = []
    for payload in of(webhooks, "push"):
        intent = intent_of("push", payload)
        if payload["ref"] == "refs/heads/master":
            recorded.append(intent)
        else:
            assert intent.kind is Kind.IGNORE
    assert recorded
    for intent in recorded:
        assert (intent.kind, intent.writes_baseline) == (Kind.RECORD, True)
        assert intent.head_sha == "6113728f27ae82c7b1a177c8d03f9e96e0adf246"
        assert intent.pull_request is None


def test_merge_groups_are_judged_at_their_own_head(webhooks: Webhooks) -> None:
    for payload in of(webhooks, "merge_group", "checks_requested"):
        intent = intent_of("merge_group", payload)
        assert (intent.kind, intent.pull_request) == (Kind.JUDGE, None)
        assert intent.head_sha == payload["merge_group"]["head_sha"]
        assert intent.base_sha == payload["merge_group"]["base_sha"]
        assert (intent.base_branch, intent.writes_baseline) == ("main", False)
        gone = intent_of("merge_group", {**payload, "action": "destroyed"})
        assert gone.kind is Kind.IGNORE


def run_of(webhooks: Webhooks, action: str, trigger: str, head_repository: str) -> dict[str, Any]:
    """The example of a run, set off by another event."""
    payload = next(
        one for one in of(webhooks, "workflow_run") if one["workflow_run"]["head_sha"] == RUN_HEAD
    )
    run = payload["workflow_run"]
    payload["action"], run["event"] = action, trigger
    run["conclusion"] = "success" if action == "completed" else None
    run["head_repository"]["full_name"] = head_repository
    return payload


def test_a_forks_run_is_judged_and_names_no_pull_request(webhooks: Webhooks) -> None:
    payload = run_of(webhooks, "completed", "pull_request", "mona/octo-repo")
    payload["workflow_run"]["pull_requests"] = [{"number": 66}]
    intent = intent_of("workflow_run", payload)
    assert (intent.kind, intent.pull_request, intent.writes_baseline) == (Kind.JUDGE, None, False)
    assert (intent.run_id, intent.conclusion) == (289782451, "success")
    assert (intent.head_repository, intent.head_branch) == ("mona/octo-repo", "master")


def test_every_other_event_that_github_describes_is_ignored(webhooks: Webhooks) -> None:
    read = {"pull_request", "push", "merge_group", "workflow_run", "workflow_dispatch", "schedule"}
    others = set(webhooks) - read
    assert {"issue_comment", "release", "check_run"} <= others
    for name in others:
        for payload in webhooks[name]:
            assert intent_of(name, payload).kind is Kind.IGNORE
