"""The script of the half that answers, from action.yml's own steps: what it installs, and who is
given the token."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.git_server import GitServer, git, serving
from tests.github.fixtures import description, github
from tests.github.gatehouse import BASE_CONFIG, CONFIG, NAME, pull_event, push_event, records_folder
from tests.github.server import GitHub
from tests.integration.action.composite import ROOT, Runner
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
    return beside_a_checkout(tmp_path, github, server)


def beside_a_checkout(root: Path, github: GitHub, server: GitServer) -> Runner:
    """A runner with a checkout whose origin has one commit."""
    checkout = root / "checkout"
    git(root, "init", "-q", "-b", "main", str(checkout))
    (checkout / CONFIG).write_text(BASE_CONFIG)
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "base")
    git(checkout, "push", "-q", str(server.make(NAME)), "main")
    content = {CONFIG: BASE_CONFIG.encode()}
    sha = git(checkout, "rev-parse", "HEAD")
    github.state.add_repository(NAME).add_commit(content, sha=sha, branch="main")
    return Runner(root, checkout)


def job(runner: Runner, github: GitHub, server: GitServer, event: str, payload: object) -> None:
    """The runner is in a job of this event."""
    path = runner.root / "event.json"
    path.write_text(json.dumps(payload))
    index = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    runner.extra = {
        **SECRETS,
        **index,
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
    assert holding(seen, github.token) == {"git-fetch", "git-ls-remote", "git-push"}
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
    done = runner.step("Plan", INPUTS | {"token": github.token})
    assert done.returncode == 0, done.stdout + done.stderr
    assert repository.statuses_of(pull.head_sha)[0].state == "pending"
    assert not holding(seen, github.token)


def action_with_lock(runner: Runner, lock: str) -> None:
    """The action with a lock of our own, in which HASH is that of the one file of our own index."""
    action, index = runner.root / "action", runner.root / "index"
    (action / "requirements").mkdir(parents=True)
    for name in ("scripts", "canary"):
        (action / name).symlink_to(ROOT / name)
    found = wheel(index / "told") if "told" in lock else source(index / "source")
    (action / "requirements" / "report.lock.txt").write_text(lock.replace("HASH", found))
    runner.extra = index_at(index) | {"GITHUB_ACTION_PATH": str(action)}


def index_at(folder: Path) -> dict[str, str]:
    return {"PIP_INDEX_URL": folder.as_uri(), "PIP_CONFIG_FILE": os.devnull}


def offered(path: Path, content: bytes) -> str:
    """Puts a file into an index, and returns its hash."""
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    (path.parent / "index.html").write_text(f'<a href="{path.name}">{path.name}</a>')
    return hashlib.sha256(content).hexdigest()


def source(folder: Path) -> str:
    return offered(folder / "source-1.0.tar.gz", b"")


def wheel(folder: Path) -> str:
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: told\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for name, text in about.items():
            packed.writestr(f"told-1.0.dist-info/{name}", text)
    return offered(folder / "told-1.0-py3-none-any.whl", content.getvalue())


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("lock", "said"),
    [
        ("told==1.0 --hash=sha256:HASH", "No module named"),
        ("told==1.0 --hash=sha256:" + "0" * 64, "DO NOT MATCH THE HASHES"),
        ("told==1.0", "Hashes are required"),
        ("source==1.0 --hash=sha256:HASH", "No matching distribution"),
    ],
    ids=["as locked", "another hash", "no hash", "no wheel"],
)
def test_a_package_is_installed_with_the_hash_that_the_lock_names_or_not_at_all(
    runner: Runner, lock: str, said: str
) -> None:
    """The first goes through, and then the command line lacks all but that one package."""
    action_with_lock(runner, lock)
    done = runner.step("Plan", INPUTS | {"token": "ghs_x"})
    assert said in done.stderr
    assert ("could not be installed" in done.stdout) == (said != "No module named")
    assert "ghs_x" not in done.stdout + done.stderr


@pytest.mark.slow
def test_on_a_runner_that_stays_the_wheels_stay_and_are_checked_each_time(runner: Runner) -> None:
    action_with_lock(runner, "told==1.0 --hash=sha256:HASH")
    tools, index, nowhere = (runner.root / name for name in ("tools", "index", "nowhere"))
    own = {"RUNNER_ENVIRONMENT": "self-hosted", "RUNNER_TOOL_CACHE": str(tools)}
    nowhere.mkdir()

    def installed(index: Path) -> bool:
        runner.extra = {**runner.extra, **own, **index_at(index)}
        done = runner.step("Plan", INPUTS)
        assert "No module named" in done.stderr or "could not be installed" in done.stdout
        return "No module named" in done.stderr

    assert installed(index)
    (kept,) = (tools / "rlhf-canary-wheels").iterdir()
    assert kept.name == "told-1.0-py3-none-any.whl", "and nothing beside it"
    assert installed(nowhere), "without the index"
    right = kept.read_bytes()
    kept.write_bytes(right + b"changed")
    assert not installed(nowhere)
    assert installed(index), "and the right one is back"
    assert kept.read_bytes() == right
    kept.unlink()
    kept.mkdir()
    assert installed(index), "whatever stands in its place"


@pytest.mark.slow
def test_an_environment_that_lay_there_is_not_used(runner: Runner) -> None:
    """Code that ran before on this machine could have changed it."""
    action_with_lock(runner, "told==1.0 --hash=sha256:HASH")
    runner.step("Plan", INPUTS)
    (left,) = runner.temp.glob("canary-venv*")
    for planted in (left, runner.temp / "canary-venv"):
        python = planted / "bin" / "python"
        python.unlink(missing_ok=True)
        python.parent.mkdir(parents=True, exist_ok=True)
        for name in ("python", "canary"):
            (python.parent / name).write_text(f"#!/bin/sh\ntouch {runner.root}/planted\n")
            (python.parent / name).chmod(0o755)
    runner.step("Plan", INPUTS)
    assert not (runner.root / "planted").exists()


def real_pip(runner: Runner) -> None:
    """The Python that the tests' own environment was made from."""
    runner.install("python3.13", f'exec "{sys.base_prefix}/bin/python3" "$@"')


def no_pip(runner: Runner) -> None:
    """A Python without pip, as Debian's is."""
    refuse = """[ "$*" != "-I -c import pip" ] || exit 1"""
    runner.install("python3.13", f'{refuse}\nexec "{sys.base_prefix}/bin/python3" "$@"')


@pytest.mark.slow
@pytest.mark.parametrize("python", [real_pip, no_pip])
def test_what_the_lock_installs_is_all_that_an_answer_needs(
    runner: Runner, github: GitHub, server: GitServer, python: Callable[[Runner], None]
) -> None:
    """Installed for real, from the package index."""
    python(runner)
    sha = git(runner.workspace, "rev-parse", "HEAD")
    records_folder(runner.temp / "canary-records", [record(1, 0.1)])
    job(runner, github, server, "push", push_event(sha))
    done = runner.step("Report", INPUTS | {"token": github.token})
    assert done.returncode == 0, done.stdout + done.stderr
    assert runner.outputs()["verdict"] == "no-baseline"
    (folder,) = (runner.temp / "canary-report").glob("*/comparison.json")
    assert folder.is_file()
    assert "<svg" in Path(runner.outputs()["report-file"]).read_text()
    (site,) = runner.temp.glob("canary-venv*/lib/python3*/site-packages")
    assert not (site / "torch").exists()
    assert "numpy" not in (ROOT / "requirements/report.lock.txt").read_text()


def test_charts_that_cannot_be_installed_cost_no_answer(
    runner: Runner, github: GitHub, server: GitServer
) -> None:
    action = runner.root / "action"
    (action / "requirements").mkdir(parents=True)
    for name in ("scripts", "canary", "configs", "templates"):
        (action / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "requirements/report.lock.txt", action / "requirements")
    fails = '[[ "$*" != *page.lock.txt* ]] || exit 1'
    runner.with_command_line(fails)
    sha = git(runner.workspace, "rev-parse", "HEAD")
    records_folder(runner.temp / "canary-records", [record(1, 0.1)])
    job(runner, github, server, "push", push_event(sha))
    runner.action = action
    done = runner.step("Report", INPUTS | {"token": github.token})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the packages that draw it could not be installed" in done.stdout
    assert runner.outputs()["verdict"] == "no-baseline"


@pytest.mark.slow
def test_what_its_lock_installs_is_all_that_filling_the_model_cache_needs(runner: Runner) -> None:
    """Installed for real; the config names nothing of the hub."""
    real_pip(runner)
    runner.extra = {name: text for name, text in os.environ.items() if name.startswith("PIP_")}
    cache = str(runner.root / "models")
    done = runner.step("Fill the model cache", INPUTS | {"model-cache": cache})
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cache} has what the configs name" in done.stderr
