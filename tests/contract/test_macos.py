"""What reads, compares and reports uses nothing that Linux alone has. It was not run on macOS."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.static_checks import program

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "baselines" / "examples"
EQUAL = (str(RECORDED / "sft_smoke_again.json"), str(RECORDED / "sft_smoke.json"))
EXPLAINED = tuple(str(RECORDED / "explained" / f"{side}.json") for side in ("current", "baseline"))
LOGGED = ROOT / "tests" / "data" / "imports" / "presets"

MATRIX = "matrix:\n  config: [configs/sft_smoke.yaml]\n"

LINUX_ALONE = "canary/(training|runner)/|canary/matrix/launchers/local.py"
"""What starts and watches a training."""


def canary(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line without what Linux alone has."""
    return subprocess.run(
        [sys.executable, str(ROOT / "tests" / "contract" / "without_linux.py"), *arguments],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("missing", "error"),
    [
        ("import os; os.sched_getaffinity(0)", "AttributeError"),
        ("import os; os.pidfd_open(1)", "AttributeError"),
        ("import select; select.epoll()", "AttributeError"),
        ("open('/proc/self/stat')", "FileNotFoundError"),
        ("from pathlib import Path; list(Path('/proc').iterdir())", "FileNotFoundError"),
        ("import sys; assert sys.platform == 'linux'", "AssertionError"),
    ],
)
def test_what_linux_alone_has_is_missing_in_these_tests(
    missing: str, error: str, tmp_path: Path
) -> None:
    done = canary(tmp_path, "-c", missing)
    assert done.returncode == 1
    assert f"\n{error}" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--help"], "Train and record:"),
        (["env"], "python "),
        (["config", "schema"], "max_steps"),
        (["compare", *EQUAL], "Learns the same"),
        (["compare", *EQUAL, "--format", "json"], '"verdict"'),
        (["explain", *EXPLAINED], "Likely cause: kernel"),
        (["report", *EXPLAINED, "-o", "page.html"], "wrote page.html"),
        (["import", str(LOGGED / "maxtext"), "-o", "imported"], "named"),
        (["import", str(LOGGED / "lightning"), "-o", "imported"], "13 metrics"),
        (["list", "."], "holds no runs"),
        (["baseline", "list", "."], ""),
        (["matrix", "matrix.yaml", "--dry-run"], "sft_smoke"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_verbs_that_train_nothing_need_nothing_of_linux(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    (tmp_path / "matrix.yaml").write_text(MATRIX, encoding="utf-8")
    done = canary(tmp_path, *arguments)
    assert "unexpected" not in done.stderr, done.stderr
    assert done.returncode in (0, 1, 2), done.stderr
    assert says in done.stdout + done.stderr


def test_a_history_is_kept_and_read(tmp_path: Path) -> None:
    for record in EQUAL:
        assert canary(tmp_path, "save-baseline", record, "history").returncode == 0
    done = canary(tmp_path, "history", "history")
    assert done.returncode == 0, done.stderr
    assert "Too few runs to judge" in done.stdout


@pytest.mark.slow
def test_types_of_macos_hold_outside_what_trains(tmp_path: Path) -> None:
    """mypy knows which functions of Python are on which system."""
    options = ["--platform", "darwin", "--no-error-summary", "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [program("mypy"), *options, "canary"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = [line for line in done.stdout.splitlines() if not re.match(LINUX_ALONE, line)]
    assert found == []
