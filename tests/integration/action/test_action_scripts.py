"""The half of the action that trains, from action.yml's own steps: engines, arguments, refusals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from canary.gate.records import load_records
from tests.integration.action.composite import Runner
from tests.integration.conftest import settings

IMAGE = f"registry.example/canary@sha256:{'0' * 64}"
CPU = {"gpus": "none", "image": IMAGE, "config": "canary.yaml"}


def git(folder: Path, *words: str) -> str:
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(
        ["git", *author, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a canary of a few steps at its base, and a change of its steps on top."""
    folder = tmp_path_factory.mktemp("theirs") / "checkout"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    config = settings("sft", max_steps=8, look_steps=3, dataset_size=40)
    (folder / "canary.yaml").write_text(yaml.safe_dump(config))
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "base")
    (folder / "canary.yaml").write_text(yaml.safe_dump(config | {"max_steps": 6}))
    git(folder, "commit", "-qam", "head")
    return folder


@pytest.fixture(scope="module")
def base(checkout: Path) -> str:
    return git(checkout, "rev-parse", "HEAD~1")


@pytest.fixture
def runner(tmp_path: Path, checkout: Path, base: str) -> Runner:
    workspace = tmp_path / "checkout"
    shutil.copytree(checkout, workspace)
    return Runner(tmp_path, workspace, {"pull_request": {"base": {"sha": base}}})


def calls(runner: Runner) -> list[dict[str, Any]]:
    path = runner.root / "docker" / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def runs(runner: Runner) -> list[list[str]]:
    return [call["argv"] for call in calls(runner) if call["argv"][0] == "run"]


@pytest.mark.train
@pytest.mark.slow
def test_the_docker_half_trains_without_token_socket_or_network(runner: Runner) -> None:
    runner.with_docker()
    cache = runner.root / "cache"
    (cache / "hub").mkdir(parents=True)
    (cache / "token").write_text("hf_secret")
    setup = 'python -c \'import sys; open(sys.prefix + "/made", "w").close()\''
    done = runner.train(
        CPU | {"setup": setup, "env": "MODE=fast\nLEVEL=2", "model-cache": str(cache)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = runs(runner)

    everything = json.dumps(runs(runner))
    assert "docker.sock" not in everything
    assert "oken" not in everything
    assert "ghs_" not in everything
    for argv in (first, second):
        text = " ".join(argv)
        assert "--cap-drop ALL" in text
        assert "--security-opt no-new-privileges" in text
        assert "--read-only" in argv
        assert "--privileged" not in text
        assert f"{runner.workspace}:/workspace:ro" in argv
        assert not [word for word in argv if word.startswith(f"{cache}:")]
        assert argv[argv.index("--user") + 1].count(":") == 1
    assert f"{cache}/hub:/models/hub:ro" in second
    assert first[-2:] == ["gate", "setup"]
    assert second[-2:] == ["gate", "run"]
    assert "--network" not in first
    assert second[second.index("--network") + 1] == "none"
    assert "--gpus" not in second
    assert second[-3] == CPU["image"]

    records = load_records(runner.temp / "canary-records")
    part = records.manifest.parts[0]
    (record,) = records.runs(part, "current")
    assert record.status == "completed"
    assert record.config["max_steps"] == 8, "the base branch's steps hold"
    assert part.notes == ["max_steps: this run used the base branch's 8; 6 counts once merged"]
    assert runner.outputs()["record-path"] == str(runner.temp / "canary-records")
    assert git(runner.workspace, "status", "--porcelain") == "", "the checkout is untouched"
    assert [path.name for path in runner.temp.iterdir()] == ["canary-records"], "nothing else stays"


def test_the_log_of_the_training_cannot_speak_to_the_runner(runner: Runner) -> None:
    runner.with_docker()
    (runner.root / "docker" / "refuse").write_text("::set-output name=verdict::pass")
    done = runner.train(CPU)
    lines = done.stdout.splitlines()
    begin = next(line for line in lines if line.startswith("::stop-commands::"))
    token = begin.removeprefix("::stop-commands::")
    said = next(line for line in lines if "set-output" in line)
    assert len(token) == 32
    assert lines.index(begin) < lines.index(said)
    assert f"::{token}::" not in lines, "a process that was left running could speak after it"


def silent_docker(runner: Runner) -> None:
    runner.with_docker()
    (runner.root / "docker" / "info").write_text("permission denied")


def no_gpu(runner: Runner) -> None:
    runner.with_docker()
    runner.install("nvidia-smi", "exit 9")


def no_toolkit(runner: Runner) -> None:
    runner.with_docker()
    runner.with_gpu()
    (runner.root / "docker" / "info").write_text("Server Version: 28\n Runtimes: runc\n")


def toolkit_fails(runner: Runner) -> None:
    runner.with_docker()
    runner.with_gpu()
    said = 'could not select device driver "" with capabilities: [[gpu]].'
    (runner.root / "docker" / "refuse").write_text(said)


def broken_image(runner: Runner) -> None:
    runner.with_docker()
    runner.with_gpu()
    (runner.root / "docker" / "refuse").write_text("manifest unknown")


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (silent_docker, "docker does not answer; start it"),
        (no_gpu, "install the NVIDIA driver"),
        (no_toolkit, "install the NVIDIA Container Toolkit"),
        (toolkit_fails, "install the NVIDIA Container Toolkit"),
        (broken_image, "docker could not start the image"),
    ],
)
def test_a_machine_that_cannot_train_is_an_error_that_says_what_to_install(
    runner: Runner, machine: Callable[[Runner], None], said: str
) -> None:
    machine(runner)
    done = runner.train(CPU | {"gpus": "all"})
    assert done.returncode == 4
    assert said in done.stderr
    assert said in load_records(runner.temp / "canary-records").manifest.error


def extraheader(folder: Path) -> None:
    git(folder, "config", "http.https://github.com/.extraheader", "AUTHORIZATION: basic x")


def included(folder: Path) -> None:
    path = folder.parent / "credentials.config"
    path.write_text('[http "https://github.com/"]\n\textraheader = AUTHORIZATION: basic x\n')
    git(folder, "config", f"includeIf.gitdir:{folder}/.git.path", str(path))


def helper(folder: Path) -> None:
    git(folder, "config", "credential.helper", "store")


def in_the_url(folder: Path) -> None:
    git(folder, "remote", "add", "origin", "https://x-access-token:abc@github.com/o/r.git")


def in_a_folder(folder: Path) -> None:
    inner = folder / "src"
    inner.mkdir()
    git(inner, "init", "-q")
    extraheader(inner)


def in_a_submodule(folder: Path) -> None:
    module = folder / ".git" / "modules" / "lib"
    module.mkdir(parents=True)
    (module / "config").write_text("[http]\n\textraheader = AUTHORIZATION: basic x\n")


def of_a_worktree(folder: Path) -> None:
    (folder / ".git" / "config.worktree").write_text("[http]\n\textraHeader = x\n")


def elsewhere(folder: Path) -> None:
    outside = folder.parent / "outside"
    (folder / ".git").rename(outside)
    (folder / ".git").write_text(f"gitdir: {outside}\n")
    (outside / "config").write_text("[http]\n\textraheader = x\n")


def of_a_cloud(folder: Path) -> None:
    (folder / "gha-creds-0123456789abcdef.json").write_text("{}")


def ssh_key(folder: Path) -> None:
    git(folder, "config", "core.sshCommand", "ssh -i /home/runner/key")


def unreadable_to_git(folder: Path) -> None:
    with (folder / ".git" / "config").open("a") as stream:
        stream.write("[http\n  extraheader = x\n")


def of_another_user(folder: Path) -> None:
    """git itself would refuse to look into it."""
    extraheader(folder)
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, 12345, 12345, follow_symlinks=False)


NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="chown needs root")


@pytest.mark.spread(4)
@pytest.mark.parametrize(
    "leave",
    [
        *(extraheader, included, helper, in_the_url, in_a_folder, in_a_submodule, of_a_worktree),
        *(elsewhere, ssh_key, unreadable_to_git, of_a_cloud),
        pytest.param(of_another_user, marks=NEEDS_ROOT),
    ],
)
def test_a_checkout_that_kept_its_credentials_is_refused(
    runner: Runner, leave: Callable[[Path], None]
) -> None:
    runner.with_docker()
    leave(runner.workspace)
    done = runner.train(CPU)
    assert done.returncode == 2
    assert "persist-credentials: false" in done.stderr
    assert not runs(runner)


@pytest.mark.spread(8)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("docker-args", "--privileged"),
        ("docker-args", "--volume=/var/run/docker.sock:/var/run/docker.sock"),
        ("docker-args", "--volume=/:/host"),
        ("docker-args", "--network=host"),
        ("docker-args", "-v /a:/b"),
        ("docker-args", "--volume=/etc:/x:ro"),
        ("docker-args", "--volume=//:/host:ro"),
        ("docker-args", "--volume=/data/../run:/x:ro"),
        ("docker-args", "--volume=/data:/x"),
        ("docker-args", "--env=GITHUB_TOKEN"),
        ("docker-args", "--log-opt=syslog-address=tcp://evil.example:514"),
        ("docker-args", "--log-opt=max-size=10m --privileged"),
        ("docker-args", "--label=rlhf-canary.runner=another"),
        ("docker-args", "--volume=/srv:/workspace:ro"),
        ("docker-args", "--volume=/srv:/x/../records:ro"),
        ("docker-args", "--volume=/srv:/opt:ro"),
        ("docker-args", "--volume=/srv:/tmp/x:ro"),
        ("network", "host"),
        ("network", "container:abc"),
        ("image", "--privileged"),
        ("image", "name@sha256:00 --privileged"),
        ("env", "GITHUB_TOKEN=x"),
        ("env", "hf_token=x"),
        ("env", "ACTIONS_RUNTIME_URL=x"),
        ("env", "INDEX=https://user:word@example.org/simple"),
        ("env", "PATH"),
        ("engine", "podman"),
        ("timeout-minutes", "soon"),
        ("timeout-minutes", "000"),
        ("timeout-minutes", "99999999999999999999"),
        ("model-cache", "/nowhere"),
        ("image", ""),
    ],
)
def test_inputs_that_open_the_container_or_cannot_be_are_refused(
    runner: Runner, name: str, value: str
) -> None:
    runner.with_docker()
    done = runner.train(CPU | {name: value})
    assert done.returncode == 2, done.stderr
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("canary: ")
    assert not runs(runner)
    error = load_records(runner.temp / "canary-records").manifest.error
    assert error == said.removeprefix("canary: "), "the reason reaches the answer"


def test_further_docker_arguments_reach_docker(runner: Runner) -> None:
    runner.with_docker()
    (runner.root / "docker" / "refuse").write_text("enough")
    given = "--shm-size=16g\n--memory=8g\n--cpus=2\n--log-opt=max-size=10m\n--volume=/srv:/data:ro"
    harmless = "TOKENIZERS_PARALLELISM=false\nMAX_TOKENS=512\nAUTHOR=ada\nMONKEY=1"
    done = runner.train(CPU | {"docker-args": given, "env": harmless})
    assert done.returncode == 4, done.stderr
    (argv,) = runs(runner)
    place = argv.index("--shm-size=16g")
    assert argv[place : place + 5] == given.split("\n")
    assert argv.index("--shm-size") < place, "docker takes the last"


@pytest.mark.train
@pytest.mark.slow
def test_without_docker_the_command_line_runs_in_a_short_environment(runner: Runner) -> None:
    runner.install("canary", f'env > "{runner.root}/seen"; exec python3 -m canary.cli "$@"')
    python = Path(__import__("sys").executable)
    runner.install("python3", f'exec "{python}" "$@"')
    done = runner.train(CPU | {"engine": "none", "image": ""})
    seen = (runner.root / "seen").read_text()
    assert "ghs_" not in seen
    assert "neverSeen" not in seen
    assert "GITHUB_" not in seen
    assert done.returncode == 0, done.stdout + done.stderr
    records = load_records(runner.temp / "canary-records")
    assert records.runs(records.manifest.parts[0], "current")[0].status == "completed"


def test_files_of_the_workspace_are_no_modules_of_the_half_that_has_the_token(
    runner: Runner,
) -> None:
    """`python -m venv` and `-m pip` would take them from the working directory."""
    seen = runner.root / "hijacked"
    for name in ("venv.py", "pip.py", "token.py", "sitecustomize.py"):
        (runner.workspace / name).write_text(f"open({str(seen)!r}, 'w').close()\n")
    runner.extra = {"PIP_NO_INDEX": "1", "PYTHONPATH": str(runner.workspace)}
    done = runner.step("Plan", {"token": "ghs_x"})
    assert done.returncode == 4, "without an index nothing can be installed"
    assert "could not be installed" in done.stdout
    assert not seen.exists()


def test_the_run_half_starts_without_any_input_but_the_image(runner: Runner) -> None:
    runner.with_docker()
    (runner.root / "docker" / "refuse").write_text("enough")
    script = Path(__file__).parents[3] / "scripts" / "run.sh"
    environment = {
        "PATH": f"{runner.root / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "STANDIN": str(runner.root / "docker"),
        "RUNNER_TEMP": str(runner.temp),
        "CANARY_IMAGE": CPU["image"],
    }
    runner.with_gpu()
    done = subprocess.run(
        ["bash", str(script)],
        cwd=runner.workspace,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "unbound" not in done.stderr
    (argv,) = runs(runner)
    assert argv[argv.index("--gpus") + 1] == "all"
