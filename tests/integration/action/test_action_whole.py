"""Both halves of the action, by action.yml's own steps: a real training run becomes a comment."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from canary.runner.warm import WARM_SOCKET
from tests.contract.git_server import GitServer, git, serving
from tests.github.fixtures import description, github
from tests.github.gatehouse import NAME, pull_event, push_event
from tests.github.server import GitHub
from tests.github.state import Comment
from tests.integration.action.composite import Runner
from tests.integration.conftest import PATIENT, settings
from tests.integration.exec.user_scripts import sft_script, write_data

__all__ = ["description", "github"]

pytestmark = pytest.mark.usefixtures("own_warm")

SMALL: dict[str, object] = {"max_steps": 8, "dataset_size": 40, "thresholds": PATIENT}

INPUTS = {"gpus": "none", "image": "registry.example/canary@sha256:00", "config": "canary.yaml"}


@pytest.fixture
def runner(tmp_path: Path, github: GitHub) -> Iterator[Runner]:
    """A runner with docker's stand-in, a checkout, and its origin where the report looks for it."""
    with serving(tmp_path / "server", github.token) as server:
        yield made(tmp_path, github, server)


def made(root: Path, github: GitHub, server: GitServer) -> Runner:
    checkout = root / "checkout"
    origin = server.make(NAME)
    git(root, "init", "-q", "-b", "main", str(checkout))
    config = settings("sft", **SMALL)
    (checkout / "canary.yaml").write_text(yaml.safe_dump(config))
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "base")
    git(checkout, "push", "-q", str(origin), "main")
    runner = Runner(root, checkout)
    runner.with_docker()
    runner.with_command_line()
    runner.extra = {"GITHUB_SERVER_URL": server.address}
    repository = github.state.add_repository(NAME)
    content = {"canary.yaml": (checkout / "canary.yaml").read_bytes()}
    repository.add_commit(content, sha=git(checkout, "rev-parse", "HEAD"), branch="main")
    return runner


def on(runner: Runner, github: GitHub, event: str, payload: dict[str, object], run: int) -> Runner:
    """The same runner in a job of this event."""
    path = runner.root / f"{event}.json"
    path.write_text(json.dumps(payload))
    (runner.root / "output").unlink(missing_ok=True)
    (runner.root / "summary").unlink(missing_ok=True)
    runner.event = payload
    runner.extra = {
        **{name: text for name, text in os.environ.items() if name == WARM_SOCKET},
        "GITHUB_SERVER_URL": runner.extra["GITHUB_SERVER_URL"],
        "GITHUB_EVENT_NAME": event,
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_REPOSITORY": NAME,
        "GITHUB_API_URL": github.url,
        "GITHUB_RUN_ID": str(run),
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_SHA": git(runner.workspace, "rev-parse", "HEAD"),
        "GITHUB_REF": "refs/heads/main",
    }
    return runner


def pulled(runner: Runner, github: GitHub, code: int, verdict: str) -> tuple[Comment, str]:
    """A pull request that trains at twice the rate: its comment, and the state of its head."""
    repository = github.state.repositories[NAME]
    inputs = INPUTS | {"token": github.token}
    base = git(runner.workspace, "rev-parse", "HEAD")
    config = settings("sft", **SMALL, learning_rate=1e-3)
    (runner.workspace / "canary.yaml").write_text(yaml.safe_dump(config))
    git(runner.workspace, "commit", "-qam", "faster")
    head = git(runner.workspace, "rev-parse", "HEAD")
    git(runner.workspace, "push", "-q", str(origin_of(runner)), "HEAD:faster")
    pull = repository.add_pull(head, base_sha=base)

    on(runner, github, "pull_request", pull_event(pull, "opened", None), 2)
    assert runner.step("Plan", inputs).returncode == 0
    assert repository.statuses_of(head)[0].state == "pending"
    assert runner.train(INPUTS).returncode == 0
    done = runner.step("Report", inputs)
    assert github.token not in done.stdout + done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    assert runner.outputs()["verdict"] == verdict
    (comment,) = repository.comments_on(pull.number)
    assert runner.outputs()["comment-url"].endswith(f"issuecomment-{comment.id}")
    page = Path(runner.outputs()["report-file"]).read_text()
    assert 'id="steps"' in page, "the steps of the records are at hand"
    assert page.count("<svg") > 5
    return comment, repository.statuses_of(head)[0].state


def origin_of(runner: Runner) -> Path:
    return runner.root / "server" / f"{NAME}.git"


@pytest.mark.train
@pytest.mark.slow
@pytest.mark.end_to_end
def test_a_pull_request_goes_through_both_halves(runner: Runner, github: GitHub) -> None:
    comment, state = pulled(runner, github, 0, "no-baseline")
    assert "No baseline yet" in comment.body
    assert state == "success"


@pytest.mark.train
@pytest.mark.slow
def test_a_push_is_stored_and_a_pull_request_compared_with_it(
    runner: Runner, github: GitHub
) -> None:
    base = git(runner.workspace, "rev-parse", "HEAD")
    on(runner, github, "push", push_event(base), 1)
    assert runner.train(INPUTS).returncode == 0
    done = runner.step("Report", INPUTS | {"token": github.token})
    assert done.returncode == 0, done.stdout + done.stderr
    assert runner.outputs()["verdict"] == "no-baseline"
    stored = git(origin_of(runner), "ls-tree", "-r", "--name-only", "canary-baselines")
    assert stored.count(".json") == 1
    comment, state = pulled(runner, github, 1, "changed")
    assert "learning\\_rate 0.0005 -> 0.001" in comment.body
    assert state == "failure"


@pytest.mark.train
@pytest.mark.slow
def test_a_training_command_of_the_repository_goes_through_both_halves(
    runner: Runner, github: GitHub
) -> None:
    repository = github.state.repositories[NAME]
    config: dict[str, object] = {
        "name": "own",
        "training_type": "exec",
        "max_steps": 8,
        "look_steps": 3,
    }
    config["thresholds"] = PATIENT
    (runner.workspace / "canary.yaml").write_text(yaml.safe_dump(config))
    write_data(runner.workspace)
    sft_script(runner.workspace, steps=9)
    git(runner.workspace, "add", ".")
    git(runner.workspace, "commit", "-qm", "a script")
    base = git(runner.workspace, "rev-parse", "HEAD")
    origin = origin_of(runner)
    git(runner.workspace, "push", "-q", str(origin), "main")
    files = {"canary.yaml": (runner.workspace / "canary.yaml").read_bytes()}
    repository.add_commit(files, sha=base, branch="main")
    command = {"command": f"echo begins && {sys.executable} train.py"}
    inputs = INPUTS | command | {"token": github.token}
    on(runner, github, "push", push_event(base), 1)
    done = runner.train(INPUTS | command)
    assert done.returncode == 0, done.stdout + done.stderr
    done = runner.step("Report", inputs)
    assert runner.outputs()["verdict"] == "no-baseline", done.stdout + done.stderr

    sft_script(runner.workspace, steps=9, rate=1e-3)
    git(runner.workspace, "commit", "-qam", "faster")
    head = git(runner.workspace, "rev-parse", "HEAD")
    git(runner.workspace, "push", "-q", str(origin), "HEAD:faster")
    pull = repository.add_pull(head, base_sha=base)
    on(runner, github, "pull_request", pull_event(pull, "opened", None), 2)
    assert runner.train(INPUTS | command).returncode == 0
    assert runner.step("Report", inputs).returncode == 1
    (comment,) = repository.comments_on(pull.number)
    assert runner.outputs()["verdict"] == "changed", comment.body
    assert "learning\\_rate 0.0005 -> 0.001" in comment.body


def test_a_mode_that_there_is_not_fails(runner: Runner) -> None:
    assert runner.step("Refuse an unknown mode", {}).returncode == 2
