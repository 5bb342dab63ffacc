"""`canary exec` runs a command once: each effect happens once, and the training is the bare one."""

from __future__ import annotations

import hashlib
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from canary.record.jsonio import read_rows
from tests.integration.exec.user_scripts import PYTHON, Ended, bare, watched

pytestmark = [pytest.mark.train, pytest.mark.slow]

STEPS, LOOKED = 15, 4

SCRIPT = """
import ctypes, hashlib, os, random, signal, subprocess, sys, urllib.request
from pathlib import Path
import numpy, torch

elsewhere, url, listener = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
Path("pid").write_text(str(os.getpid()))

def post(text):
    urllib.request.urlopen(url, data=text.encode()).read()

with (elsewhere / "ledger.txt").open("a") as ledger:
    ledger.write("begins\\n")
post("begins")
os.kill(listener, signal.SIGUSR1)
late = f"sleep 1; echo outlived >> {elsewhere}/child.txt"
subprocess.Popen(["sh", "-c", late], start_new_session=True)
libc = ctypes.CDLL(None)

random.seed(1); numpy.random.seed(2); torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
rows = torch.utils.data.TensorDataset(torch.randn(64, 6), torch.randint(2, (64,)))
loader = torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True)
for step, (x, y) in enumerate(loader):
    if step == STEPS:
        break
    x = x + random.random() + float(numpy.random.rand())
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item().hex(), flush=True)
    native = libc.open(b"native.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    libc.write(native, b"step\\n", 5)
    libc.close(native)
    torch.save(model.state_dict(), "last.pt")

def told(name, value):
    print(name, hashlib.sha256(value).hexdigest())

told("weights", b"".join(value.numpy().tobytes() for value in model.state_dict().values()))
told("torch", torch.get_rng_state().numpy().tobytes())
told("numpy", repr(numpy.random.get_state()).encode())
told("random", repr(random.getstate()).encode())
print("modes", torch.are_deterministic_algorithms_enabled(), torch.get_num_threads())
with (elsewhere / "ledger.txt").open("a") as ledger:
    ledger.write("ends\\n")
post("ends")
sys.exit(3)
"""


class Posts(BaseHTTPRequestHandler):
    """Keeps what is posted."""

    kept: list[tuple[str, str]] = []  # noqa: RUF012 - one server, one list

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.kept.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server on this machine."""
    serving = HTTPServer(("127.0.0.1", 0), Posts)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{serving.server_port}"
    serving.shutdown()


@dataclass(frozen=True)
class Seen:
    """One ended command, and what it left in the world."""

    ended: Ended
    folder: Path
    effects: dict[str, list[str]]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def train(base: Path, name: str, server: str, *options: str) -> Seen:
    """Run the script in a folder of its own; with `options`, under `canary exec`."""
    folder, elsewhere = base / name, base / f"{name}-elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "train.py").write_text(SCRIPT.replace("STEPS", str(STEPS)))
    signals = elsewhere / "signals.txt"
    trap = f"trap 'echo got >> {signals}' USR1; echo ready; while :; do sleep 0.1; done"
    listener = subprocess.Popen(["bash", "-c", trap], stdout=subprocess.PIPE)
    assert listener.stdout is not None
    listener.stdout.readline()
    words = (PYTHON, "train.py", str(elsewhere), f"{server}/{name}", str(listener.pid))
    ended = watched(folder, *words, options=options) if options else bare(folder, *words)
    deadline = time.monotonic() + 20
    while not (elsewhere / "child.txt").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)  # for a second signal, which must not come
    listener.kill()
    listener.wait()
    effects = {
        "ledger": lines(elsewhere / "ledger.txt"),
        "posts": [body for path, body in Posts.kept if path == f"/{name}"],
        "signals": lines(signals),
        "child": lines(elsewhere / "child.txt"),
        "native": lines(folder / "native.txt"),
    }
    return Seen(ended, folder, effects)


OPTIONS = ("--name", "own", "--set", f"look_steps={LOOKED}")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, server: str) -> Seen:
    return train(tmp_path_factory.mktemp("bare"), "alone", server)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, server: str) -> Seen:
    return train(tmp_path_factory.mktemp("exec"), "watched", server, *OPTIONS)


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """Mode and content of each file; without the canary's runs and the number of the process."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] not in ("runs", "pid"):
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[name] = (path.stat().st_mode, content)
    return found


@pytest.mark.end_to_end
def test_each_effect_happens_once(alone: Seen, seen: Seen) -> None:
    assert seen.effects == {
        "ledger": ["begins", "ends"],
        "posts": ["begins", "ends"],
        "signals": ["got"],
        "child": ["outlived"],
        "native": ["step"] * STEPS,
    }
    assert seen.effects == alone.effects


@pytest.mark.end_to_end
def test_the_training_its_output_code_and_files_are_those_of_the_bare_command(
    alone: Seen, seen: Seen
) -> None:
    """Losses, weights and the states of all random generators are lines of the output."""
    assert len(alone.ended.out.splitlines()) == STEPS + 5
    assert seen.ended.out == alone.ended.out, seen.ended.err
    assert (seen.ended.code, alone.ended.code) == (3, 3)
    assert tree(seen.folder) == tree(alone.folder)


@pytest.mark.end_to_end
def test_the_record_has_a_look_and_timed_steps_of_the_one_process(seen: Seen) -> None:
    record = seen.ended.record()
    losses = [float.fromhex(line.split()[1]) for line in seen.ended.out.splitlines()[:STEPS]]
    assert record.stability.loss_values == losses
    (launch,) = record.launches
    assert (launch.steps, launch.look_steps) == (STEPS, LOOKED)
    assert record.exact["steps"] == LOOKED
    assert record.exact["trajectory"]["losses"] == losses[:LOOKED]
    assert record.exact["work"]["operator_total"] > 0
    assert record.exact["code"]["files"]["train.py"]["ran"]
    assert seen.ended.folder is not None
    rows = read_rows(seen.ended.folder / "steps.jsonl")
    assert [bool(row.get("look")) for row in rows] == [True] * LOOKED + [False] * (STEPS - LOOKED)


def test_exact_ends_the_process_after_the_look(
    tmp_path: Path, server: str, alone: Seen, seen: Seen
) -> None:
    cut = train(tmp_path, "exact", server, *OPTIONS, "--exact")
    assert cut.ended.code == 0, cut.ended.err
    assert cut.ended.out.splitlines() == alone.ended.out.splitlines()[: LOOKED - 1]
    assert (cut.effects["ledger"], cut.effects["posts"]) == (["begins"], ["begins"])
    assert not psutil.pid_exists(int((cut.folder / "pid").read_text()))
    record = cut.ended.record()
    assert record.status == "completed"
    assert record.perf.step_time.count == 0
    exact = {**record.exact, "calls": None}
    assert exact == {**seen.ended.record().exact, "calls": None}
