"""The command that would find the culprit: when it is named, and that it does no harm."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from canary.baseline.history import Context, save
from canary.bisect.packages import read_pins
from canary.cli import main
from canary.compare.stats import compare_to_baseline
from canary.record import jsonio
from canary.record.types import RunRecord
from canary.report.bisect_hint import (
    Hint,
    Known,
    commits_command,
    hint_of,
    packages_command,
    shell_word,
)
from canary.report.escape import markdown_code
from canary.report.render import render
from tests.contract.git_server import git
from tests.unit.comparing import history, record

GOOD, BAD = "1a2b3c4d5" + "0" * 31, "5d6e7f8aa" + "0" * 31


def at(run: RunRecord, sha: str) -> RunRecord:
    """The run at a commit."""
    git = {"sha": sha, "branch": "main", "dirty": False}
    return run.model_copy(update={"git": git})


def red(known: Known, *, sha: str = BAD, dirty: bool = False, torch: str = "") -> Hint | None:
    """The hint of a run that is twice as slow as five stored ones."""
    before = [at(run, GOOD) for run in history(count=5)]
    after = at(record(100, 0.2), sha)
    after.git["dirty"] = dirty
    if torch:
        after.env["packages"] = {**after.env["packages"], "torch": torch}
    found = compare_to_baseline(after, before, history=True)
    assert found.verdict in ("regression", "changed")
    return hint_of(found, [after], before, known)


def test_a_red_history_names_the_command() -> None:
    hint = red(Known("canary.yaml", 20))
    assert hint is not None
    assert hint.command == "canary bisect canary.yaml --good 1a2b3c4d5 --bad 5d6e7f8aa"
    assert hint.sentence == f"Find the commit: {hint.command}"


@pytest.mark.parametrize("sha", [GOOD, "", "HEAD; rm -rf ~", "5d6e7f8aa"])
def test_without_several_commits_nothing_is_searched(sha: str) -> None:
    assert red(Known("canary.yaml", 5), sha=sha) is None
    assert red(Known("canary.yaml", 1)) is None
    assert red(Known("canary.yaml", 5), dirty=True) is None, "nobody committed the change"


def test_a_run_that_is_not_red_has_no_command() -> None:
    before = [at(run, GOOD) for run in history(count=5)]
    after = at(record(100), BAD)
    found = compare_to_baseline(after, before, history=True)
    assert hint_of(found, [after], before, Known("canary.yaml", 9)) is None


def test_where_packages_differ_the_package_is_searched() -> None:
    hint = red(Known("canary.yaml", 20, paths=("out/good", "out/bad")), torch="9.9.9")
    assert hint is not None
    assert hint.label == "Find the package"
    assert hint.command == "canary bisect canary.yaml --packages out/good out/bad"
    elsewhere = red(Known("canary.yaml", 20), torch="9.9.9")
    assert elsewhere is not None
    assert elsewhere.label == "Find the commit", "without the records the commits are left"


HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "a'; touch pwned; '",
    'a"; touch pwned; "',
    "a`'; touch pwned #",
    "a\ntouch pwned",
    "a\x1b[2Jb",
    "a\u202eb",
    "a|touch pwned",
    "a\\",
    "x" * 400,
    "",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_path_never_stands_in_a_command(path: str) -> None:
    for command in (commits_command(path, GOOD, BAD), packages_command("c.yaml", path, path)):
        assert "pwned" not in command
        assert command.isprintable()
        assert shlex.split(command)[:2] == ["canary", "bisect"]


@pytest.mark.parametrize(
    "path", ["canary.yaml", "my configs/a (1).yaml", "-rf", "~/c.yaml", "größe.yaml", "a=b,c.yaml"]
)
def test_a_path_is_one_word_of_a_shell_as_it_is_shown(path: str, tmp_path: Path) -> None:
    """Read by a real shell, out of Markdown's code span too."""
    shown = markdown_code(f"printf %s {shell_word(path, 'CONFIG')}").strip("`")
    done = subprocess.run(["sh", "-c", shown], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout.decode().removeprefix("./") == path


def test_the_command_stays_on_one_line_of_a_narrow_terminal() -> None:
    before = [at(run, GOOD) for run in history(count=5)]
    after = at(record(100, 0.2), BAD)
    found = compare_to_baseline(after, before, history=True)
    hint = hint_of(found, [after], before, Known("canary.yaml", 20))
    assert hint is not None
    assert f"\n  {hint.command}\n" in render(found, "text", 40, hint=hint)
    assert f"`{hint.command}`" in render(found, "markdown", hint=hint)
    assert json.loads(render(found, "json", hint=hint))["bisect"]["command"] == hint.command


def test_compare_names_the_users_config_and_counts_the_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q")
    shas = []
    for number in range(6):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", f"change {number}")
        shas.append(git(tmp_path, "rev-parse", "HEAD"))
    for run in history(count=5):
        save(tmp_path / "history", at(run, shas[0]), context=Context(commit=shas[0]))
    folder = tmp_path / "out" / "run-00100"
    folder.mkdir(parents=True)
    after = at(record(100, 0.2), shas[-1]).model_copy(update={"config_file": "my canary.yaml"})
    (folder / "metrics.json").write_text(jsonio.dumps(after.model_dump()))
    (tmp_path / "my canary.yaml").write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["compare", "out/run-00100", "history"])
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert f"canary bisect 'my canary.yaml' --good {shas[0][:9]} --bad {shas[-1][:9]}\n" in said
    assert "Find the commit\n" in said


def test_compare_names_the_records_between_which_packages_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bisect reads both, also the file of a history."""
    monkeypatch.chdir(tmp_path)
    for run in history(count=5):
        save(Path("history"), at(run, GOOD), context=Context(commit=GOOD))
    folder = Path("out") / "run-00100"
    folder.mkdir(parents=True)
    after = at(record(100, 0.2), BAD)
    after.env["packages"] = {**after.env["packages"], "torch": "9.9.9"}
    (folder / "metrics.json").write_text(jsonio.dumps(after.model_dump()))
    with pytest.raises(SystemExit):
        main(["compare", "out/run-00100", "history"])
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("  canary bisect")]
    assert lines[lines.index(line) - 1].startswith("Find the package")
    words = shlex.split(line)
    assert words[3] == "--packages"
    assert Path(words[5]) == folder
    for path in words[4:]:
        assert read_pins(Path(path)).versions["torch"]
