"""The script of the half that answers, from action.yml's own steps: what it installs, and who is
given the token."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.git_server import GitServer, serving
from tests.github.fixtures import description, github
from tests.github.gatehouse import (
    BASE_CONFIG,
    CONFIG,
    NAME,
    git,
    pull_event,
    push_event,
    records_folder,
)
from tests.github.server import GitHub
from tests.integration.composite import Runner
from tests.unit.comparing import record

__all__ = ["description", "github"]

INPUTS = {"config": CONFIG}
SECRETS = {"GITHUB_TOKEN": "ghs_theJobsOwn", "ACTIONS_RUNTIME_TOKEN": "theRunners"}
LOOK = """
import os
from pathlib import Path
given = Path("/proc/self/environ").read_text().replace("\\0", "\\n")
now = "\\n".join(f"{name}={value}" for name, value in os.environ.items())
Path(FOLDER, f"answering-{os.getpid()}").write_text(f"{given}\\n{now}")
"""


@pytest.fixture
def server(tmp_path: Path, github: GitHub) -> Iterator[GitServer]:
    with serving(tmp_path / "server", github.token) as server:
        yield server


@pytest.fixture
def runner(tmp_path: Path, github: GitHub, server: GitServer) -> Runner:
    """A runner beside a checkout whose origin has one commit."""
    checkout = tmp_path / "checkout"
    git(tmp_path, "init", "-q", "-b", "main", str(checkout))
    (checkout / CONFIG).write_text(BASE_CONFIG)
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "base")
    git(checkout, "push", "-q", str(server.make(NAME)), "main")
    content = {CONFIG: BASE_CONFIG.encode()}
    sha = git(checkout, "rev-parse", "HEAD")
    github.state.add_repository(NAME).add_commit(content, sha=sha, branch="main")
    return Runner(tmp_path, checkout)


def job(runner: Runner, github: GitHub, server: GitServer, event: str, payload: object) -> None:
    """The runner is in a job of this event."""
    path = runner.root / "event.json"
    path.write_text(json.dumps(payload))
    runner.extra = SECRETS | {
        "GITHUB_SERVER_URL": server.address,
        "GITHUB_EVENT_NAME": event,
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_REPOSITORY": NAME,
        "GITHUB_API_URL": github.url,
        "GITHUB_RUN_ID": "7",
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_SHA": git(runner.workspace, "rev-parse", "HEAD"),
        "GITHUB_REF": "refs/heads/main",
    }


def watched(runner: Runner) -> Path:
    """A folder in which the processes of a step leave the environment that they were given, and
    what the pipe gave them: every python and git, their parents, and the one that answers."""
    seen = runner.root / "seen"
    seen.mkdir()
    (runner.root / "look.py").write_text(LOOK.replace("FOLDER", repr(str(seen))))
    look = f"""
        name=${{0##*/}}
        env >"{seen}/$name-${{1#-}}-$$"
        tr '\\0' '\\n' <"/proc/$PPID/environ" >"{seen}/parent-of-$name-$$"
        if [ -e /proc/$$/fd/9 ]; then cat <&9 >"{seen}/pipe-of-$name-$$"; fi"""
    runner.with_command_line(look, str(runner.root), "import look")
    runner.install("git", f'{look}\nexec {shutil.which("git")} "$@"')
    return seen


def holding(seen: Path, secret: str) -> set[str]:
    """The processes, without their numbers, that were given a secret, as it is or in base64."""
    basic = base64.b64encode(f"x-access-token:{secret}".encode()).decode()
    files = {path.name: path.read_text() for path in seen.iterdir()}
    return {
        name.rpartition("-")[0] for name, text in files.items() if secret in text or basic in text
    }


def test_the_token_is_given_to_no_process_but_the_git_that_talks_to_the_server(
    runner: Runner, github: GitHub, server: GitServer
) -> None:
    """Neither a Python that is tried, nor pip, nor the process that answers, nor other git commands
    have it in their environment; and the job's other tokens are nowhere."""
    seen = watched(runner)
    sha = git(runner.workspace, "rev-parse", "HEAD")
    records_folder(runner.temp / "canary-records", [record(1, 0.1)])
    job(runner, github, server, "push", push_event(sha))
    done = runner.step("Report", INPUTS | {"token": github.token})
    assert done.returncode == 0, done.stdout + done.stderr
    assert runner.outputs()["verdict"] == "no-baseline", "it had the token"
    assert holding(seen, github.token) == {"git-fetch", "git-push"}
    for secret in SECRETS.values():
        assert not holding(seen, secret)
    looked = {path.name.rpartition("-")[0] for path in seen.iterdir()}
    assert {"python3.13-I", "answering", "parent-of-python3.13", "git-version"} <= looked
    assert not [name for name in looked if name.startswith("pipe-of")]


def test_the_pending_status_is_set_with_a_token_that_came_through_the_pipe(
    runner: Runner, github: GitHub, server: GitServer
) -> None:
    seen = watched(runner)
    repository = github.state.repositories[NAME]
    sha = git(runner.workspace, "rev-parse", "HEAD")
    pull = repository.add_pull("a" * 40, base_sha=sha)
    job(runner, github, server, "pull_request", pull_event(pull, "opened", None))
    done = runner.step("Pending status", INPUTS | {"token": github.token})
    assert done.returncode == 0, done.stdout + done.stderr
    assert repository.statuses_of(pull.head_sha)[0].state == "pending"
    assert not holding(seen, github.token)
