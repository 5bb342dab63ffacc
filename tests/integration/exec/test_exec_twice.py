"""`canary exec` runs a command twice, or cuts it short: what it had written stays as it was."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from canary.baseline.comparability import probe_alone
from canary.record.folder import load_record
from tests.integration.exec.user_scripts import (
    FASTEST,
    PYTHON,
    QUIET,
    bare,
    sft_script,
    watched,
    write_data,
)

pytestmark = [pytest.mark.train, pytest.mark.slow]


SAVES = """
import json, torch
torch.save({"steps": trainer.state.global_step}, "final.pt")
json.dump({"steps": trainer.state.global_step}, open("metrics.json", "w"))
open("ledger.txt", "a").write("done\\n")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_data(tmp_path)
    return tmp_path


def test_a_training_cut_short_leaves_the_users_own_results_alone(place: Path) -> None:
    more = '{"save_strategy": "steps", "save_steps": 2, "save_total_limit": 1}'
    reload = "from transformers import AutoModelForCausalLM as A; A.from_pretrained('nowhere')"
    sft_script(place, steps=6, more=more, after=SAVES)
    left = bare(place, PYTHON, "train.py")
    assert left.code == 0, left.err
    sft_script(place, steps=6, more=more, after=SAVES + reload)

    before = {path: path.read_bytes() for path in (place / "out").rglob("*") if path.is_file()}
    weights = (place / "final.pt").read_bytes()
    options = ("--name", "cut", "--max-steps", "3", "--no-probe")
    done = watched(place, PYTHON, "train.py", options=options)
    # What it reloads was not saved by the canary's doing, not by its own.
    assert done.code == 0, done.err
    assert "it may have looked for files that were not saved" in done.err
    after = {path: path.read_bytes() for path in (place / "out").rglob("*") if path.is_file()}
    assert after == before
    assert (place / "final.pt").read_bytes() == weights
    assert "torch.save does nothing" in done.err


def begun(
    place: Path, *before: str, steps: int = 4000, options: tuple[str, ...] = FASTEST
) -> subprocess.Popen[bytes]:
    """A long training under `exec`, past its first step."""
    sft_script(place, steps=steps, before="\n".join(before))
    command = ["exec", *options, "-o", "runs", "--", PYTHON, "train.py"]
    child = subprocess.Popen(
        [PYTHON, "-m", "canary.cli", *command],
        cwd=place,
        env=QUIET,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        rows = list((place / "runs").glob("*/steps.jsonl"))
        if rows and rows[0].stat().st_size:
            return child
        time.sleep(0.1)
    raise AssertionError("it never began")


def test_signals_reach_the_command_and_its_own_ending_runs(place: Path) -> None:
    child = begun(
        place,
        "import signal",
        "signal.signal(signal.SIGUSR1, lambda *_: open('noticed', 'w').close())",
        "def last_words(*_):",
        "    open('saved', 'w').close(); sys.exit(42)",
        "signal.signal(signal.SIGTERM, last_words)",
    )
    child.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + 30
    while not (place / "noticed").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (place / "noticed").exists()
    assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 42
    assert (place / "saved").exists()
    record = load_record(next((place / "runs").glob("*/metrics.json")).parent)
    assert record.status == "interrupted"


def test_who_interrupts_the_probe_has_what_the_command_was(place: Path) -> None:
    """Its exit code, files and record: the probe is the canary's own matter."""
    lines = (
        "import os, signal, time",
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))",
        "if os.environ['_RLHF_CANARY_FILES'].startswith('protect'):",
        "    open('probing', 'w').close(); time.sleep(120)",
    )
    child = begun(place, *lines, steps=6, options=("--set", "probe_steps=3"))
    deadline = time.monotonic() + 90
    while not (place / "probing").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0
    assert not (place / "probing").exists()
    record = load_record(next((place / "runs").glob("*/metrics.json")).parent)
    assert record.status == "completed"
    assert [launch.status for launch in record.launches] == ["completed", "interrupted"]
    assert record.unmeasured["exact"] == "the probe was interrupted"


def test_nothing_trains_on_when_the_canary_is_killed(place: Path) -> None:
    child = begun(place)
    (training,) = psutil.Process(child.pid).children()
    child.kill()
    child.wait()
    assert psutil.wait_procs([training], timeout=20)[0] == [training]


def test_without_measured_launches_a_command_is_probed_alone_and_leaves_its_files(
    place: Path,
) -> None:
    """As for built-in canaries: the exact signals, nothing timed, and nothing else done."""
    sft_script(place, steps=6, before="log = open('train.log', 'w'); log.write('again')\n")
    (place / "train.log").write_text("of the last training\n")
    (place / "limits.yaml").write_text("repeats: 0\nprobe_steps: 3\n")
    done = watched(place, PYTHON, "train.py", options=("--config", "limits.yaml"))
    assert done.code == 0, done.err
    record = done.record()
    assert [launch.kind for launch in record.launches] == ["probe"]
    assert probe_alone(record)
    assert record.exact["steps"] == 3
    assert record.name == "train"
    assert record.config["learning_rate"] == 5e-4
    assert (place / "train.log").read_text() == "of the last training\n"
    assert not (place / "final").exists()
