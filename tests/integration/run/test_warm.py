"""Launches that begin as forks of one warm Python are what fresh processes would be."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from canary.runner import warm
from canary.runner.warm import WARM_FOLDER, WarmChild, warm_child, warm_starts
from tests.integration.conftest import run_config, settings

pytestmark = pytest.mark.train

WORKER = """
import json, os, random, signal, sys
import numpy

class Thing: pass

def facts():
    things = [Thing() for _ in range(300)]
    place = {id(thing): n for n, thing in enumerate(things)}
    return {
        "environment": dict(os.environ), "path": sys.path, "cwd": os.getcwd(),
        "argv": sys.argv, "orig_argv": sys.orig_argv, "main": __name__, "file": __file__,
        "hash": hash("a"), "own": os.getsid(0) == os.getpid(), "torch": "torch" in sys.modules,
        "drawn": [random.random(), float(numpy.random.random())],
        "order": [place[id(thing)] for thing in set(things)],
        "handlers": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM)],
        "open": sorted(int(n) for n in os.listdir("/proc/self/fd")),
        "state": __import__("mine").STATE,
    }

print("begun")
text = open(sys.argv[1]).read()
if text == "facts":
    json.dump(facts(), open(sys.argv[1] + ".facts", "w"))
elif text == "long":
    import time
    time.sleep(300)
elif text == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdout.flush()
os._exit(7)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A worker that tells what it finds, and a module of the user's own beside it."""
    folder = tmp_path_factory.mktemp("project")
    package = folder / "canary" / "training"
    package.mkdir(parents=True)
    for path in (package, package.parent):
        (path / "__init__.py").touch()
    (package / "worker.py").write_text(WORKER)
    (folder / "mine.py").write_text("STATE = 1\n")
    return folder


@pytest.fixture(scope="module")
def environment(project: Path) -> dict[str, str]:
    """As a launch of one thread on the CPU has it."""
    own = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}
    own["TORCHINDUCTOR_CACHE_DIR"] = str(project / "inductor")
    return {**os.environ, **own, "PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture(scope="module", autouse=True)
def _own_place() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(WARM_FOLDER, raising=False)
        with warm_starts():
            yield


def start(folder: Path, job: str, environment: dict[str, str]) -> WarmChild | None:
    """A fork of the warm Python, in a working directory of its own."""
    file = folder / f"{job}.job"
    file.write_text(job)
    with pytest.MonkeyPatch.context() as patch, (folder / "log").open("ab") as log:
        patch.chdir(folder)
        latest = time.monotonic() + 60
        return warm_child(file, environment, log, lambda: time.monotonic() < latest)


def forked(folder: Path, job: str, environment: dict[str, str]) -> WarmChild:
    child = start(folder, job, environment)
    assert child is not None
    return child


def stranger(folder: Path) -> socket.socket:
    """A connection to the warm Python whose sockets are here, by no launch."""
    (path,) = [one for one in folder.iterdir() if one.is_socket() and one.name != warm.LIFE]
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(str(path))
    return connection


def told(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "facts.job.facts").read_text()))


def test_a_fork_finds_what_a_fresh_process_finds(
    tmp_path: Path, environment: dict[str, str], project: Path
) -> None:
    mine = environment | {"CANARY_MINE": "yes", "TRITON_CACHE_DIR": str(tmp_path)}
    warm_facts = []
    for _ in range(2):
        assert forked(tmp_path, "facts", mine).wait() == 7
        warm_facts.append(told(tmp_path))
    command = [sys.executable, "-P", "-m", "canary.training.worker", str(tmp_path / "facts.job")]
    subprocess.run(
        command,
        env=warm.without_warm_start(mine),
        cwd=tmp_path,
        check=False,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    fresh = told(tmp_path)
    first, second = warm_facts
    assert first["torch"]
    assert not fresh["torch"]
    assert first["drawn"][0] != second["drawn"][0]  # type: ignore[index]
    assert first["drawn"][1] != second["drawn"][1]  # type: ignore[index]
    assert first["order"] != second["order"], "forks have the addresses of their siblings"
    for facts in (first, fresh):
        for varying in ("drawn", "order", "torch"):
            facts.pop(varying)
    assert first == fresh


def test_a_module_of_the_users_is_imported_anew_by_each_launch(
    tmp_path: Path, environment: dict[str, str], project: Path
) -> None:
    (project / "mine.py").write_text("STATE = 'another'\n")
    forked(tmp_path, "facts", environment).wait()
    assert told(tmp_path)["state"] == "another"


def test_a_fork_ends_as_a_process_does_and_its_output_is_in_the_log(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    assert forked(tmp_path, "nothing", environment).wait() == 7
    assert forked(tmp_path, "kill", environment).wait() == -signal.SIGKILL
    child = forked(tmp_path, "long", environment)
    assert child.poll() is None
    shown = [sys.executable, "-P", "-m", "canary.training.worker", str(tmp_path / "long.job")]
    while [word for word in psutil.Process(child.pid).cmdline() if word] != shown:
        time.sleep(0.05)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.1)
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == -signal.SIGTERM
    assert not psutil.pid_exists(child.pid)
    assert (tmp_path / "log").read_text().count("begun") == 3


@pytest.mark.parametrize(
    "name",
    [
        *("trl.py", "sitecustomize.py", "numpy/__init__.py"),
        *("mine.egg-info/entry_points.txt", "transformers-9.0.dist-info/METADATA"),
    ],
)
def test_a_file_that_goes_before_an_installed_package_needs_a_process_of_its_own(
    tmp_path: Path, environment: dict[str, str], name: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(
        "[torch.backends]\nmine = mine:autoload\n" if "mine" in name else ""
    )
    first = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"}
    assert start(tmp_path, "facts", environment | first) is None


def test_a_launch_ends_with_whoever_asked_for_it(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    child = forked(tmp_path, "long", environment)
    process = psutil.Process(child.pid)
    child.close()  # as the kernel does for a process that was killed
    process.wait(30)
    assert not process.is_running()


@pytest.mark.parametrize("text", ["{", '{"path": [[]]}', "[" * 100_000, None])
def test_a_request_that_cannot_be_read_harms_no_other_launch(
    tmp_path: Path, environment: dict[str, str], text: str | None
) -> None:
    child = forked(tmp_path, "long", environment)
    connection = stranger(Path(os.environ[WARM_FOLDER]))
    with tempfile.TemporaryFile("w+") as file:
        file.write(text or "")
        file.flush()
        numbers = [file.fileno()] * (2 if text else 1)
        socket.send_fds(connection, [b"."], numbers)
    assert connection.recv(1) == b""
    assert forked(tmp_path, "nothing", environment).wait(10) == 7
    assert child.poll() is None
    child.kill()
    assert child.wait(10) == -signal.SIGKILL


OWNER = """
import os, sys, time
from pathlib import Path
from canary.runner.warm import warm_child, warm_starts
with warm_starts():
    with open("log", "ab") as log:
        child = warm_child(Path("long.job"), dict(os.environ), log, lambda: True)
    print(child.pid, flush=True)
    if sys.argv[1] == "wait":
        time.sleep(300)
"""


@pytest.mark.parametrize("way", ["wait", "end"])
def test_nothing_is_left_when_the_owner_ends_or_is_killed(
    tmp_path: Path, environment: dict[str, str], way: str
) -> None:
    (tmp_path / "long.job").write_text("long")
    temporary = Path(tempfile.mkdtemp())  # short: the name of a socket has 108 characters at most
    # The canary's own client here; its launch is the worker above.
    given = warm.without_warm_start(environment) | {"TMPDIR": str(temporary), "PYTHONPATH": ""}
    code = f"import os; os.environ['PYTHONPATH'] = {environment['PYTHONPATH']!r}\n{OWNER}"
    with subprocess.Popen(
        [sys.executable, "-c", code, way], cwd=tmp_path, env=given, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        launch = psutil.Process(int(owner.stdout.readline()))
        server = launch.parent()
        assert server is not None
        silent = None
        if way == "wait":
            (sockets,) = temporary.iterdir()
            silent = stranger(sockets)
            time.sleep(0.5)  # the warm Python has accepted it
            owner.kill()
    for process in (launch, server):
        process.wait(30)
    if silent is not None:
        silent.close()
    assert not list(temporary.iterdir())
    temporary.rmdir()


def test_a_warm_run_is_the_cold_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = run_config(tmp_path / "warm", settings("grpo"))
    monkeypatch.setenv(WARM_FOLDER, "/nowhere")
    alone = run_config(tmp_path / "cold", settings("grpo"))
    assert shared.code == alone.code == 0, shared.err + alone.err
    first, second = shared.record(), alone.record()
    assert first.exact == second.exact
    assert first.stability.loss_values == second.stability.loss_values
    resident = [record.memory.peak_rss_bytes or 0 for record in (first, second)]
    assert resident[0] == pytest.approx(resident[1], rel=0.05)
    assert first.io == second.io
    assert shared.log().count("\n") == alone.log().count("\n")
