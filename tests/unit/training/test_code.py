"""What a run says of the user's code that ran: phases, functions, and hashes that ignore prose."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

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
    assert found["ran"] == {"setup": "4", "forward": "7,9,11-13"}, "with its arguments"
    assert {name: one[:2] for name, one in found["functions"].items()} == {
        "<module>": (1, 20),
        "loss": (7, 13),
    }


def test_without_lines_all_of_a_called_function_ran_and_the_rest_was_loaded() -> None:
    found = described(SOURCE, {}, {19: "data"})
    assert found["ran"]["data"] == "19-20"
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
    found = described(loop, {3: "forward", 5: "backward", 7: "optimizer"}, {0: "loop"})
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
        ("scale=1", "scale=2", {"loss"}),
        ("class Rows:", "class Rows(list):", {"Rows"}),
        ("def loss", "@torch.no_grad()\ndef loss", {"<module>"}),
        ("x > LIMIT", "x >= LIMIT", {"loss"}),
        ("size = 4", "size = 5", {"Rows"}),
        ("range(self.size)", "range(4)", {"Rows.__iter__"}),
    ],
)
def test_a_hash_is_of_code_alone(old: str, new: str, changed: set[str]) -> None:
    before, after = digests(SOURCE), digests(SOURCE.replace(old, new))
    assert {name for name in before if before[name] != after[name]} == changed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if a:\n    b()\n    c()", "if a:\n    b()\nc()"),
        ("for a in b:\n    c()\nelse:\n    d()", "for a in b:\n    c()\n    d()"),
        ("try:\n    a()\nexcept KeyError:\n    b()", "try:\n    a()\nexcept OSError:\n    b()"),
        ("match a:\n    case 1 if b:\n        c()", "match a:\n    case 1 if d:\n        c()"),
        ("a = {**b, 'c': d}", "a = {'c': d, **b}"),
        ("a = b - (c - d)", "a = b - c - d"),
    ],
)
def test_a_hash_tells_where_a_statement_stands(old: str, new: str) -> None:
    """A line that leaves its block is one of the worst changes, and only its spaces change."""
    assert digests(old) != digests(new)


def test_conditions_of_except_and_case_are_lines_that_ran() -> None:
    tried = "try:\n    a()\nexcept (\n    KeyError\n):\n    b()\n"
    assert described(tried, {2: "loss", 3: "loss"})["ran"] == {"loss": "2-5"}
    matched = "match a:\n    case 1:\n        b()\n    case 2 if c:\n        d()\n"
    assert described(matched, {1: "data", 4: "loss"})["ran"] == {"data": "1-2", "loss": "4"}


def test_a_decorated_function_was_called_though_its_code_begins_at_the_decorator() -> None:
    found = described("\n@wrapped\ndef of(x):\n    return x\n", {}, {2: "loss"})
    assert found["ran"] == {"setup": "2-3", "loss": "3-4"}


def test_a_module_that_begins_with_a_function_ran_in_the_set_up() -> None:
    found = described("def of(x):\n    return x\n\n\nlimit = 1\n", {}, {1: "loss"})
    assert found["ran"] == {"setup": "1,5", "loss": "1-2"}


def test_modules_that_answer_no_question_and_a_lost_folder_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lazy(ModuleType):
        def __getattribute__(self, name: str) -> object:
            raise ImportError(name)

    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    lost = tmp_path / "lost"
    lost.mkdir()
    monkeypatch.chdir(lost)
    lost.rmdir()
    assert ran_code(RanCode())["noted"] == "functions"


def test_a_docstring_is_no_line_that_ran() -> None:
    found = described('\ndef of(x):\n    """Doc."""\n    return x\n', {}, {2: "loss"})
    assert found["ran"]["loss"] == "2,4"


def test_deep_code_is_described() -> None:
    deep = f"a = {' + '.join(['b'] * 1500)}\n"
    assert digests(deep) != digests(deep.replace("a =", "c ="))


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


HELPED = """
import importlib.util, os, subprocess, sys
spec = importlib.util.spec_from_file_location("ran", sys.argv[1])
ran = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ran)
sys.path.insert(0, os.getcwd())
notes = ran.RAN
notes.begin(os.getcwd())
if len(sys.argv) == 2:
    subprocess.run([sys.executable, __file__, sys.argv[1], "helps"], check=True)
    notes.training_begins()
    notes.end()
    print({os.path.basename(file): lines for file, lines in notes.lines.items()})
    print({os.path.basename(file) for file in notes.loaded})
    print(sorted(name for name in os.listdir() if name.startswith("ran")))
else:
    os.closerange(3, 50)
    import mine
    mine.loss(1)
"""


def test_a_program_that_helps_leaves_its_notes(tmp_path: Path) -> None:
    """A training script that starts another one, which makes its data."""
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "train.py").write_text(HELPED)
    words = [sys.executable, "train.py", ran.__file__]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines, loaded, left = done.stdout.splitlines()
    if sys.version_info >= (3, 12):
        assert "11: 'setup'" in lines
    else:
        assert "mine.py" in loaded
        assert "train.py" in loaded
    assert left.count("ran.") == 1, "the process that trains leaves none"


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


def first() -> None: ...


def second() -> None: ...


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="lines are noted instead")
def test_a_phase_of_many_calls_leaves_the_calls_of_the_next_one_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when a step evaluates or plays: millions of calls, and then a loss."""
    monkeypatch.setattr(ran, "MOST_OF_PHASE", 100)
    notes = RanCode()
    before = sys.getprofile()
    sys.setprofile(None)
    try:
        notes.training_begins()
        for _ in range(200):
            len("")
        assert sys.getprofile() is None
        first()
        notes.phase_is("loss")
        second()
        notes.end()
        assert sys.getprofile() is None
    finally:
        sys.setprofile(before)
    phases = notes.calls[__file__]
    assert phases[second.__code__.co_firstlineno] == "loss"
    assert first.__code__.co_firstlineno not in phases


def test_functions_that_did_not_run_are_described_apart() -> None:
    tree = ast.parse("def f():\n    return 1\n\n\ndef g():\n    return 2\n\n\ng()\n")
    found = _described(tree, {1: "setup", 5: "setup", 6: "loss", 9: "setup"}, None)
    assert set(found["functions"]) == {"<module>", "g"}
    assert found["idle"]["f"][:2] == (1, 2)
