"""A self-hosted runner of a user without rights, and a stranger's code in its container."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.github import packages
from tests.integration.action.composite import ROOT, Runner

UPLOAD = Path(__file__).with_name("upload")
USER = 23456
"""Nobody's uid: root would pass by the modes that a stranger sets."""
SECRET = "the runner's own credentials"
CPU = {"gpus": "none", "image": f"registry.example/canary@sha256:{'0' * 64}"}
MANIFEST = '{"manifest_version": 1, "error": "", "parts": []}'


class OwnRunner(Runner):
    """With its temporary folder where the runner itself is installed, as it is on a real one."""

    @property
    def temp(self) -> Path:
        return self.root / "actions-runner" / "_work" / "_temp"


class Packer:
    """A process with the upload action's own libraries, which take a moment to load."""

    def __init__(self, modules: Path) -> None:
        self._node = subprocess.Popen(
            ["node", str(UPLOAD / "pack.mjs"), str(modules)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def pack(self, folder: Path, target: Path) -> bool:
        """Pack a folder as the upload would; return False where it sends nothing."""
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(json.dumps([str(folder), str(target)]) + "\n")
        self._node.stdin.flush()
        said = next((line for line in self._node.stdout if line.startswith("answer: ")), "")
        answer = said.removeprefix("answer: ").strip()
        assert answer in ("packed", "nothing"), answer
        return answer == "packed"

    def close(self) -> None:
        """End the process."""
        self._node.kill()
        self._node.communicate()


class Machine:
    """The runner, and what is asked of it."""

    def __init__(self, root: Path, packer: Packer) -> None:
        self.root = root
        self.packer = packer
        action = root / "action"
        shutil.copytree(ROOT / "scripts", action / "scripts")
        (action / "image.txt").write_text("")
        checkout = root / "actions-runner" / "_work" / "repo" / "repo"
        checkout.mkdir(parents=True)
        user = USER if os.getuid() == 0 else None
        for name in ("home", "shared", "actions-runner/_work/_temp"):
            (root / name).mkdir()
        extra = {"HOME": str(root / "home")}
        self.runner = OwnRunner(root, checkout, extra=extra, action=action, user=user)
        self.runner.install("docker", f'exec bash "{root}/docker/daemon.sh" "$@"')
        shutil.copy(Path(__file__).with_name("standin_daemon.sh"), root / "docker" / "daemon.sh")
        self.credentials = root / "actions-runner" / ".credentials"
        self.credentials.write_text(SECRET)
        for path in [root, *root.rglob("*")] if user else []:
            os.chown(path, USER, USER, follow_symlinks=False)

    def gives_up_after(self, seconds: int) -> None:
        """Lets the scripts wait less long for a docker that does not remove a container."""
        script = self.root / "action" / "scripts" / "traces.sh"
        text, times = re.subn(r"(?m)^removal_s=\d+$", f"removal_s={seconds}", script.read_text())
        assert times == 1
        script.write_text(text)

    @property
    def standin(self) -> Path:
        return self.root / "docker"

    @property
    def records(self) -> Path:
        return self.runner.temp / "canary-records"

    def stranger(self, script: str) -> None:
        """What runs in the container; it knows RECORDS, SCRATCH, WORKSPACE and VERB."""
        (self.standin / "stranger.sh").write_text(script)

    def job(self, inputs: Mapping[str, str] = CPU) -> subprocess.CompletedProcess[str]:
        """The steps of `mode: run`, but for the upload."""
        (self.root / "output").unlink(missing_ok=True)
        return self.runner.train(CPU | dict(inputs) | {"mode": "run"})

    def uploaded(self) -> dict[str, bytes]:
        """What the upload step would send, packed by the action's own libraries."""
        kept = self.runner.kept(CPU | {"mode": "run"})
        folder = kept[1] if kept else None
        if folder is None or not folder.exists():
            return {}
        target = self.root / "sent.zip"
        target.unlink(missing_ok=True)
        if not self.packer.pack(folder, target):
            return {}
        with zipfile.ZipFile(target) as packed:
            names = [item.filename for item in packed.infolist() if not item.is_dir()]
            return {name.lstrip("/"): packed.read(name) for name in names}

    def reason(self) -> str:
        """The error in the manifest that is uploaded."""
        document: dict[str, Any] = json.loads(self.uploaded()["gate.json"])
        return str(document["error"])

    def containers(self) -> list[str]:
        folder = self.standin / "containers"
        return sorted(path.name for path in folder.glob("*")) if folder.exists() else []

    def processes(self) -> list[str]:
        """Command lines of what still runs of this machine's jobs."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                environ = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
                line = (entry / "cmdline").read_bytes() if environ else b""
            except OSError:
                continue
            if str(self.standin).encode() in environ and line:
                found.append(line.replace(b"\0", b" ").decode())
        return found

    def calls(self) -> list[str]:
        """What docker was called with."""
        path = self.standin / "called"
        return path.read_text().splitlines() if path.exists() else []


def cancelled(
    machine: Machine,
    inputs: Mapping[str, str],
    when: Path,
    before_collecting: Callable[[], object] = lambda: None,
) -> None:
    """A job that is cancelled once a file is there: the runner signals the outer shell alone, first
    SIGINT, then SIGTERM, then SIGKILL, and goes on to the steps that always run."""
    (machine.root / "output").unlink(missing_ok=True)
    child = machine.runner.start("Train", CPU | dict(inputs) | {"mode": "run"})
    until(when.exists)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        child.send_signal(number)
        try:
            child.wait(0.5)
            break
        except subprocess.TimeoutExpired:
            continue
    before_collecting()
    asked = CPU | dict(inputs) | {"mode": "run"}
    assert machine.runner.due("Collect the records", asked, cancelled=True), "it always runs"
    machine.runner.step("Collect the records", CPU | dict(inputs) | {"mode": "run"})
    for stream in (child.stdout, child.stderr):
        assert stream is not None
        stream.close()


def until(holds: Any, seconds: float = 20.0) -> None:
    """Waits for something; fails where it does not come."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def upload_libraries(cache: Path) -> Path:
    """node_modules of the upload action's own libraries, by the lock file beside them."""
    lock = (UPLOAD / "package-lock.json").read_bytes()
    folder = cache / base64.b32encode(hashlib.sha256(lock).digest())[:16].decode().lower()
    modules = folder / "node_modules"
    if (folder / "whole").exists():
        return modules
    if shutil.which("npm") is None:
        raise packages.Unavailable(
            "the upload action's libraries cannot be fetched: there is no npm"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(UPLOAD / name, folder)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
    if done.returncode:
        raise packages.Unavailable(
            f"npm cannot fetch the upload action's libraries: {done.stderr[-300:]}"
        )
    (folder / "whole").touch()
    return modules


@pytest.fixture(scope="session")
def packer(request: pytest.FixtureRequest) -> Iterator[Packer]:
    """What packs the artifact."""
    cache = getattr(request.config, "cache", None)
    assert cache is not None
    try:
        modules = upload_libraries(Path(cache.mkdir("upload")))
    except packages.Unavailable as why:
        from tests.github.fixtures import left_out

        left_out(str(why))
    made = Packer(modules)
    yield made
    made.close()


@pytest.fixture
def machine(packer: Packer) -> Iterator[Machine]:
    """A machine in a folder that every user may enter, removed whatever its modes are."""
    with tempfile.TemporaryDirectory(prefix="canary-stranger-") as name:
        Path(name).chmod(0o755)
        machine = Machine(Path(name), packer)
        try:
            yield machine
        finally:
            subprocess.run(["chmod", "-R", "u+rwX", name], check=False)
