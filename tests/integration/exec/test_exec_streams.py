"""The standard streams that `canary exec` hands to a command: closed ones, and one file for two.
Nothing here trains."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.exec.user_scripts import FASTEST, PYTHON, QUIET

OPEN = """
import os, sys
def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
found = [is_open(number) for number in range(3)]
open(sys.argv[1], "w").write(repr(found))
"""
BY_TURNS = "".join(f"os.write({1 + n % 2}, b'{n}\\n');" for n in range(40))


def shell(folder: Path, redirected: str, *words: str) -> int:
    """Runs the command under `canary exec` as a shell does whose line ends with `redirected`."""
    line = [PYTHON, "-m", "canary.cli", "exec", *FASTEST, "-o", "runs", "--", *words]
    script = f'"$@" {redirected}'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *line], cwd=folder, env=QUIET, timeout=120, check=False
    )
    return done.returncode


@pytest.mark.parametrize(
    ("redirected", "left"),
    [
        (">&-", [True, False, True]),
        ("<&- >&- 2>&-", [False, False, False]),
    ],
)
def test_a_command_with_a_closed_stream_runs_with_that_stream_closed(
    tmp_path: Path, redirected: str, left: list[bool]
) -> None:
    assert shell(tmp_path, redirected, PYTHON, "-c", OPEN, "seen") == 2, "it does not train"
    assert (tmp_path / "seen").read_text() == repr(left)


def test_what_a_command_prints_on_two_descriptors_of_one_file_stays_in_order(
    tmp_path: Path,
) -> None:
    shell(tmp_path, "> all.txt 2>&1", PYTHON, "-c", f"import os; {BY_TURNS}")
    lines = [line for line in (tmp_path / "all.txt").read_text().splitlines() if line.isdigit()]
    assert lines == [str(n) for n in range(40)]


INPUT = """
from pathlib import Path
from canary.runner.exec.streams import passed_on
with passed_on(["cat"], {}, Path("log.txt")) as child:
    child.wait()
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no disk is always full here")  # noqa: PTH110
def test_a_log_that_cannot_be_written_ends_nobodys_output(tmp_path: Path) -> None:
    (tmp_path / "log.txt").symlink_to("/dev/full")
    done = subprocess.run(
        [PYTHON, "-c", INPUT],
        cwd=tmp_path, input="x" * 300_000, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert len(done.stdout) == 300_000
