"""Launches that begin as forks of one warm Python are what fresh processes would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from canary.machine.scratch import remove_left_scratches
from canary.runner import warm
from canary.runner.warm import WARM_SOCKET, WarmChild, warm_child, warm_starts
from tests.integration.conftest import run_config, settings

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("own_warm")]

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
        "handlers": [str(signal.getsignal(n)) for n in (2, 15, signal.SIGCHLD)],
        "open": {n: os.path.exists(f"/proc/self/fd/{n}") for n in range(64)},
        "input": sys.stdin.read(), "inherited": [os.get_inheritable(n) for n in range(3)],
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
elif text == "error":
    raise RuntimeError("broken")
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
    (folder / "datasets").mkdir()  # a folder of files, no package
    return folder


@pytest.fixture(scope="module")
def environment(project: Path) -> dict[str, str]:
    """As a launch of one thread on the CPU has it."""
    own = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}
    own["TORCHINDUCTOR_CACHE_DIR"] = str(project / "inductor")
    own |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(project)}
    return warm.without_warm_start(os.environ) | own


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


def told(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "facts.job.facts").read_text()))


def test_a_fork_finds_what_a_fresh_process_finds(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    mine = environment | {"CANARY_MINE": "yes", "TRITON_CACHE_DIR": str(tmp_path)}
    warm_facts = []
    for _ in range(2):
        assert forked(tmp_path, "facts", mine).wait() == 7
        warm_facts.append(told(tmp_path))
    command = [sys.executable, "-P", "-m", "canary.training.worker", str(tmp_path / "facts.job")]
    subprocess.run(
        command,
        env=mine,
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
    assert forked(tmp_path, "error", environment).wait() == 1
    said = (tmp_path / "log").read_text()
    assert said.count("begun") == 3
    assert said.count("RuntimeError: broken") == 1
    child = forked(tmp_path, "long", environment)
    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.1)
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(30) == -signal.SIGTERM
    assert not psutil.pid_exists(child.pid)
    child = forked(tmp_path, "long", environment)
    child.kill()
    assert child.wait(30) == child.poll() == -signal.SIGKILL
    assert not psutil.pid_exists(child.pid)


@pytest.mark.parametrize(
    "name",
    [
        *("trl.py", "sitecustomize.py", "numpy/__init__.py", "mine.egg-info/PKG-INFO"),
        "transformers-9.0.dist-info/METADATA",
    ],
)
def test_a_file_that_goes_before_an_installed_package_needs_a_process_of_its_own(
    tmp_path: Path, environment: dict[str, str], name: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    first = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"}
    assert start(tmp_path, "facts", environment | first) is None


def test_another_environment_needs_a_process_of_its_own(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    assert forked(tmp_path, "nothing", environment).wait() == 7
    assert start(tmp_path, "nothing", environment | {"OMP_NUM_THREADS": "2"}) is None
    assert start(tmp_path, "nothing", environment | {"LONG": "x" * 500_000}) is None
    assert forked(tmp_path, "nothing", environment).wait() == 7


def test_a_launch_ends_with_whoever_asked_for_it(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    child, other = (forked(tmp_path, "long", environment) for _ in range(2))
    process = psutil.Process(child.pid)
    child.close()  # as the kernel does for a process that was killed
    process.wait(30)
    assert other.poll() is None
    guard = psutil.Process(other.pid).parent()
    assert guard is not None
    guard.kill()
    assert other.wait(30) == -signal.SIGKILL


OWNER = """
import os, sys
from pathlib import Path
from canary.runner.warm import warm_child, warm_starts
with warm_starts():
    with open("log", "ab") as log:
        child = warm_child(Path("long.job"), dict(os.environ), log, lambda: True)
    print(child.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["kill", "end"])
def test_nothing_is_left_when_the_owner_ends_or_is_killed(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    (tmp_path / "long.job").write_text("long")
    temporary = Path(tempfile.mkdtemp())  # short: the name of a socket has 108 characters at most
    # The canary's own client here; its launch is the worker above.
    given = environment | {"TMPDIR": str(temporary), "PYTHONPATH": ""}
    code = f"import os; os.environ['PYTHONPATH'] = {environment['PYTHONPATH']!r}\n{OWNER}"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=given,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        launch = psutil.Process(int(owner.stdout.readline()))
        family = [launch, *launch.parents()[:2]]
        assert all("forking.py" in " ".join(process.cmdline()) for process in family)
        if way == "kill":
            owner.kill()
        owner.stdin.close()
    for process in family:
        process.wait(30)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    remove_left_scratches()
    assert not list(temporary.iterdir())
    temporary.rmdir()


def test_a_warm_run_is_the_cold_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WARM_SOCKET)
    with warm_starts():
        shared = run_config(tmp_path / "warm", settings("grpo"))
    monkeypatch.setenv(WARM_SOCKET, "/nowhere")
    alone = run_config(tmp_path / "cold", settings("grpo"))
    assert shared.code == alone.code == 0, shared.err + alone.err
    first, second = shared.record(), alone.record()
    imports = [float(record.perf.startup_seconds["imports"]) for record in (first, second)]
    assert imports[0] < imports[1] / 2
    assert first.exact == second.exact
    assert first.stability.loss_values == second.stability.loss_values
    resident = [record.memory.peak_rss_bytes or 0 for record in (first, second)]
    assert resident[0] == pytest.approx(resident[1], rel=0.05)
    assert first.io == second.io
    assert shared.log().count("\n") == alone.log().count("\n")
