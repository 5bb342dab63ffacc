"""After TEST_DEADLINE only what `make test` runs still starts, and the rest is named."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CASES = """
import pytest

@pytest.mark.train
@pytest.mark.end_to_end
def test_first(): pass

@pytest.mark.train
def test_rare(): pass

@pytest.fixture(scope="module")
def trained():
    raise RuntimeError("trains after the deadline")

@pytest.mark.slow
def test_slow(trained): pass

def test_plain(): pass
"""


def test_rare_trainings_do_not_start_after_the_deadline(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_cases.py").write_text(CASES)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"TEST_DEADLINE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(r"\n2 passed, 2 skipped", done.stdout), done.stdout + done.stderr
    assert "2 tests not run, because TEST_DEADLINE has passed: test_cases.py" in done.stdout
