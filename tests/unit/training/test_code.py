"""What a run says of the user's code that ran: phases, functions, and hashes that ignore prose."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from canary.record.exact import FileCode
from canary.training.collectors import ran
from canary.training.collectors.ran import RanCode
from canary.training.exact.code import _described, ran_code

SOURCE = '''"""A module."""
import os

LIMIT = 3


def loss(x, scale=1):
    """Doc."""
    if x > LIMIT:
        return x * scale
    return (
        -x
    )


class Rows:
    size = 4

    def __iter__(self):
        yield from range(self.size)
'''


def described(text: str, lines: dict[int, str], calls: dict[int, str] | None = None) -> FileCode:
    return _described(ast.parse(text), lines, calls)


def digests(text: str) -> dict[str, str]:
    return {name: one[2] for name, one in described(text, {}, {})["functions"].items()}


def test_a_statement_of_several_lines_ran_as_a_whole() -> None:
    found = described(SOURCE, {9: "forward", 12: "forward", 4: "setup"})
    assert found["ran"] == {"setup": "4", "forward": "9,11-13"}
    assert {name: one[:2] for name, one in found["functions"].items()} == {
        "<module>": (1, 20),
        "loss": (7, 13),
    }


def test_without_lines_all_of_a_called_function_ran_and_the_rest_was_loaded() -> None:
    found = described(SOURCE, {}, {19: "data"})
    assert found["ran"]["data"] == "20"
    assert set(found["functions"]) == {"<module>", "loss", "Rows", "Rows.__iter__"}


def test_lines_of_a_loop_follow_the_lines_that_entered_phases() -> None:
    steps = [
        "x = of(row)",
        "y = model(x)",
        "l = f(y)",
        "l.backward()",
        "clip()",
        "opt.step()",
        "log(l)",
    ]
    loop = "\n    ".join(("for row in rows:", *steps))
    found = described(loop, {3: "forward", 5: "backward", 7: "optimizer"}, {1: "loop"})
    assert found["ran"] == {
        "setup": "1-2",
        "forward": "3",
        "loss": "4",
        "backward": "5",
        "optimizer": "6-7",
        "other": "8",
    }


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ('    """Doc."""\n', "", set()),
        ("return x * scale", "return x * scale  # a remark", set()),
        ("        -x\n", "        -x - 1\n", {"loss"}),
        ("scale=1", "scale=2", {"<module>"}),
        ("x > LIMIT", "x >= LIMIT", {"loss"}),
        ("size = 4", "size = 5", {"Rows"}),
        ("range(self.size)", "range(4)", {"Rows.__iter__"}),
    ],
)
def test_a_hash_is_of_code_alone(old: str, new: str, changed: set[str]) -> None:
    before, after = digests(SOURCE), digests(SOURCE.replace(old, new))
    assert {name for name in before if before[name] != after[name]} == changed


def test_only_files_of_the_users_repository_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path / "src")
    notes = RanCode()
    notes.from_start = True
    notes.lines = {str(tmp_path / "src" / "mine.py"): {9: "loss"}, __file__: {1: "loss"}}
    found = ran_code(notes)["files"]
    assert "src/mine.py" in found
    assert not [name for name in found if name.endswith("test_code.py")]


WATCHED = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("ran", sys.argv[1])
ran = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ran)
sys.path.insert(0, os.getcwd())
notes = ran.RAN
notes.begin(os.getcwd())
import mine
mine.loss(1)
notes.training_begins()
notes.phase_is("forward")
mine.loss(5)
notes.phase_is("other")
list(mine.Rows())
if os.fork() == 0:
    mine.loss(1)
    import worker
    worker.fetch()
    os._exit(0)
os.wait()
notes.end()
print({os.path.basename(file): lines for file, lines in notes.lines.items()})
print({os.path.basename(file): calls for file, calls in notes.calls.items()})
assert sys.getprofile() is None
"""


def noted(tmp_path: Path, python: str) -> str:
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "worker.py").write_text("\n\ndef fetch():\n    return 1\n")
    done = subprocess.run(
        [python, "-c", WATCHED, ran.__file__], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 tells no lines")
def test_lines_are_noted_in_the_phase_of_the_first_step(tmp_path: Path) -> None:
    lines = noted(tmp_path, sys.executable).splitlines()[0]
    assert "9: 'forward', " in lines
    assert "10: 'forward'" in lines
    assert "20: 'loss'" in lines
    assert "11: 'data'" in lines, "a forked process left its lines"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="lines are noted instead")
def test_calls_of_functions_are_noted_in_steps_and_in_forked_processes(tmp_path: Path) -> None:
    assert noted(tmp_path, sys.executable).splitlines()[1] == (
        "{'mine.py': {7: 'forward', 19: 'loss'}, 'worker.py': {1: 'data', 3: 'data'}}"
    )


def test_a_profiler_of_the_users_stays() -> None:
    def mine(*_: object) -> None:
        return None

    notes = RanCode()
    before = sys.getprofile()
    sys.setprofile(mine)
    try:
        notes.training_begins()
        notes.end()
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(before)
