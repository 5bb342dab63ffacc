"""Pull requests on scripts of other people: their format, and the repository made of one."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.pull_requests import Kind, Script, committed, copied, git, load, make
from bench.pull_requests.__main__ import first_difference, judged, read

SOURCE = "github:owner/name@" + "a" * 40
FAULT: dict[str, Any] = {
    "name": "half_the_rate",
    "kind": "fault",
    "edits": [{"file": "train.py", "find": "rate = 1", "replace": "rate = 0.5"}],
    "file": "train.py",
    "line": "rate = 0.5",
    "causes": ["optimizer"],
    "why": "Half the learning rate.",
}
BENIGN: dict[str, Any] = {
    "name": "a_comment",
    "kind": "benign",
    "edits": [{"file": "train.py", "find": "rate = 1", "replace": "# slow\nrate = 1"}],
    "why": "A comment.",
}
ENTRIES: dict[str, Any] = {
    "source": SOURCE,
    "license": "MIT",
    "files": ["train.py"],
    "setup": "open('data.txt', 'w').write('data')",
    "edits": [{"file": "train.py", "find": "steps = 1000", "replace": "steps = 30"}],
    "command": ["python", "train.py"],
    "steps": 30,
    "changes": [FAULT, BENIGN],
}


def script(**entries: Any) -> Script:
    return Script(name="made_up", **(ENTRIES | entries))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources" / "owner+name" / ("a" * 40)
    folder.mkdir(parents=True)
    (folder / "train.py").write_text("rate = 1\nsteps = 1000\n")
    return tmp_path / "sources"


def test_every_script_has_faults_and_a_benign_change() -> None:
    for one in load():
        kinds = [change.kind for change in one.changes]
        assert kinds.count(Kind.FAULT) >= 3, one.name
        assert kinds.count(Kind.BENIGN) >= 1, one.name


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ({"step": 30}, "step"),
        ({"source": "github:owner/name@main"}, "source"),
        ({"files": ["../train.py"]}, "files"),
        ({"requires": ["gymnasium"]}, "requires"),
        ({"changes": [FAULT | {"causes": ["luck"]}]}, "causes"),
        ({"changes": [FAULT | {"line": None}]}, "needs file, line and causes"),
        ({"changes": [FAULT, FAULT]}, "two changes have one name"),
    ],
)
def test_a_file_that_is_not_in_the_format_is_named(
    tmp_path: Path, entries: dict[str, Any], named: str
) -> None:
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(ENTRIES | entries))
    with pytest.raises(ValueError, match=rf"wrong\.yaml(.|\n)*{named}"):
        load(tmp_path)


def test_main_is_the_shrunk_script_and_each_change_a_branch(tmp_path: Path, sources: Path) -> None:
    folder = tmp_path / "made"
    make(script(), sources, folder)
    assert git(folder, "show", "main:train.py") == b"rate = 1\nsteps = 30\n"
    assert git(folder, "show", "main:data.txt") == b"data"
    assert git(folder, "show", "half_the_rate:train.py") == b"rate = 0.5\nsteps = 30\n"
    assert git(folder, "show", "a_comment:train.py") == b"# slow\nrate = 1\nsteps = 30\n"


def test_files_come_from_a_bare_clone_too(tmp_path: Path, sources: Path) -> None:
    origin = sources / "owner+name"
    work = origin / ("a" * 40)
    git(work, "init", "-q")
    committed(work, "first")
    commit = git(work, "rev-parse", "HEAD").decode().strip()
    git(origin, "clone", "-q", "--bare", str(work), "repo")
    folder = tmp_path / "copy"
    folder.mkdir()
    copied(script(source=f"github:owner/name@{commit}"), sources, folder)
    assert (folder / "train.py").read_text() == "rate = 1\nsteps = 1000\n"


def test_an_edit_finds_its_text_exactly_once(tmp_path: Path, sources: Path) -> None:
    twice = {"file": "train.py", "find": "=", "replace": "=="}
    with pytest.raises(ValueError, match="2 times, not once"):
        make(script(edits=[twice]), sources, tmp_path / "made")


def test_a_change_keeps_its_word_or_not(tmp_path: Path, sources: Path) -> None:
    one = script()
    fault, benign = one.changes
    folder = tmp_path / "made"
    make(one, sources, folder)
    main = read("loss 1.5 time 3 s\n#optimizer-stepaa\nloss 1.25\n", 0)
    slower = read("loss 1.5 time 9 s\n#optimizer-stepaa\nloss 1.25\n", 0)
    other_weights = read("loss 1.5\n#optimizer-stepbb\nloss 1.25\n", 0)
    other_loss = read("loss 1.5\n#optimizer-stepbb\nloss 1.375\n", 0)
    assert (first_difference(main, slower), first_difference(main, other_loss)) == (None, 1)
    assert judged(benign, main, slower, folder) is None
    assert judged(benign, main, other_weights, folder) == "trained weights differ"
    assert judged(fault, main, slower, folder) == "no printed number differs"
    assert judged(fault, main, other_loss, folder) is None
    elsewhere = fault.model_copy(update={"line": "steps = 30"})
    assert judged(elsewhere, main, other_loss, folder) is not None
