"""What does not train never imports what trains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = (
    *("torch", "transformers", "trl", "peft", "datasets", "accelerate"),
    *("numpy", "scipy", "pandas"),
)

EXAMPLES = Path(__file__).parents[2] / "baselines" / "examples"
BASELINE = str(EXAMPLES / "sft_smoke.json")
CURRENT = str(EXAMPLES / "sft_smoke_again.json")

VERBS = [
    ["--help"],
    ["--version"],
    ["run", "--help"],
    ["config", "show"],
    ["config", "schema"],
    ["env"],
    ["ab", "--help"],
    ["ladder", "--help"],
    ["history", "--help"],
    ["compare", CURRENT, BASELINE],
    ["compare", CURRENT, BASELINE, "--format", "markdown"],
    ["compare", CURRENT, BASELINE, "--format", "json"],
]
PROGRAM = """
import sys
from canary.cli import main
for arguments in {verbs!r}:
    sys.argv = ["canary", *arguments]
    try:
        main()
    except SystemExit as done:
        assert not done.code, (arguments, done.code)
    loaded = [name for name in {heavy!r} if name in sys.modules]
    assert not loaded, (arguments, loaded)
"""


def test_the_command_line_does_not_load_the_training_stack() -> None:
    program = PROGRAM.format(verbs=VERBS, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_reading_a_record_does_not_load_the_training_stack() -> None:
    program = (
        "import sys, canary.record.folder, canary.runner.run\n"
        f"assert not [n for n in {HEAVY!r} if n in sys.modules]"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
