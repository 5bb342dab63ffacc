"""What reads, compares and reports uses nothing that Linux alone has. It was not run on macOS."""

from __future__ import annotations

import json
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

LINUX_ALONE = "canary/(training|runner)/|canary/matrix/local.py"
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


VERBS = [
    (["--help"], "Train and record:"),
    (["env"], "python "),
    (["config", "schema"], "max_steps"),
    (["compare", *EQUAL], "Learns the same"),
    (["compare", *EQUAL, "--format", "json"], '"verdict"'),
    (["compare", *EXPLAINED], "1. kernel (9"),
    (["report", *EXPLAINED, "-o", "page.html"], "wrote page.html"),
    (["import", str(LOGGED / "maxtext"), "-o", "imported"], "named"),
    (["import", str(LOGGED / "lightning"), "-o", "imported"], "13 metrics"),
    (["list", "."], "holds no runs"),
    (["baseline", "history", "."], ""),
    (["matrix", "matrix.yaml", "--dry-run"], "sft_smoke"),
    *((["save-baseline", record, "history"], "") for record in EQUAL),
    (["history", "history"], "Too few runs to judge"),
]
ALL = """
import contextlib, io, json, sys
from canary.cli import main
said = []
for arguments in json.loads(%r):
    sys.argv, out, code = ["canary", *arguments], io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main()
        except SystemExit as done:
            code = done.code or 0
    said.append([code, out.getvalue()])
print(json.dumps(said))
"""


def test_verbs_that_train_nothing_need_nothing_of_linux(tmp_path: Path) -> None:
    (tmp_path / "matrix.yaml").write_text(MATRIX, encoding="utf-8")
    done = canary(tmp_path, "-c", ALL % json.dumps([words for words, _ in VERBS]))
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    for (words, says), (code, text) in zip(VERBS, answers, strict=True):
        assert "unexpected" not in text, (words, text)
        assert code in (0, 1, 2), (words, text)
        assert says in text, (words, text)


@pytest.mark.slow
def test_types_of_macos_hold_outside_what_trains(tmp_path: Path) -> None:
    """mypy knows which functions of Python are on which system."""
    options = ["--platform", "darwin", "--no-error-summary", "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [program("mypy"), *options, "canary"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = [line for line in done.stdout.splitlines() if not re.match(LINUX_ALONE, line)]
    assert found == []
