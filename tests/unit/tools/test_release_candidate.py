"""Faults that are planted in a candidate: each check finds its own."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tools.release_candidate import __main__ as command
from tools.release_candidate import installs
from tools.release_candidate.agreement import action_problems, changelog_problems, tag_problems
from tools.release_candidate.artifacts import Artifacts
from tools.release_candidate.commands import run
from tools.release_candidate.contents import sdist_files, sdist_problems, wheel_problems
from tools.release_candidate.environments import Environment, Interpreter, interpreter
from tools.release_candidate.outcomes import CheckFailed, Ledger
from tools.release_candidate.papers import sbom_problems, write_hashes, write_provenance
from tools.release_candidate.source import Source
from tools.release_candidate.trials import Trial

INFO = "rlhf_canary-1.2.3.dist-info/"
IMAGE = f"ghcr.io/rlhf-canary/rlhf-canary@sha256:{'a' * 64}"
CHANGELOG = """# Changelog
## [Unreleased]
## [1.2.3] - 2026-11-26
### Added
- A verb.
## [1.2.0] - 2026-11-20
### Fixed
- A fault.
"""

Files = dict[str, bytes]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """The files of a commit; canary/templates is a link, as in the repository."""
    root = tmp_path / "source"
    for name, text in {
        "canary/__init__.py": '__version__ = "1.2.3"\n',
        "canary/inputs/model.safetensors": "weights",
        "templates/report.css": "body {}",
        "tools/build_model.py": "print('a builder')\n",
        "tests/__init__.py": "",
        "LICENSE": "MIT",
        "README.md": "uses: rlhf-canary/rlhf-canary@v1\n",
        "pyproject.toml": "[project]\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "canary" / "templates").symlink_to("../templates")
    return Source(root, commit="c" * 40, committed_s=0, left_out=0)


@pytest.fixture
def wheel(source: Source) -> Files:
    """The files of a wheel without a fault."""
    described = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt")
    return {
        **source.package,
        **{f"{INFO}{name}": b"" for name in described},
        f"{INFO}licenses/LICENSE": b"MIT",
    }


def added(name: str, text: bytes = b"1") -> Callable[[Files], object]:
    return lambda files: files.update({name: text})


def removed(name: str) -> Callable[[Files], object]:
    return lambda files: files.pop(name)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (added("canary/test_it.py"), "it holds tests: canary/test_it.py"),
        (added("canary/tests/data.json"), "it holds tests: canary/tests/data.json"),
        (added("tests/__init__.py"), "it holds files of no commit: tests/__init__.py"),
        (added("canary/build_model.py"), "it holds builders: canary/build_model.py"),
        (
            added("canary/model.py", b"print('a builder')\n"),
            "it holds copies: canary/model.py of tools/build_model.py",
        ),
        (
            added("canary/more.py", b"def it():\n    from tests import comparing\n"),
            "these import what is not shipped: canary/more.py",
        ),
        (removed(f"{INFO}licenses/LICENSE"), "it has no licence"),
        (added(f"{INFO}licenses/LICENSE"), "its licence is not the file LICENSE"),
        (removed("canary/templates/report.css"), "it lacks canary/templates/report.css"),
        (removed("canary/inputs/model.safetensors"), "it lacks canary/inputs/model.safetensors"),
        (added("canary/__init__.py"), "these differ from the commit: canary/__init__.py"),
        (removed(f"{INFO}entry_points.txt"), "its dist-info lacks entry_points.txt"),
    ],
)
def test_a_fault_of_the_wheel_is_found(
    wheel: Files, source: Source, fault: Callable[[Files], object], says: str
) -> None:
    assert wheel_problems(wheel, source) == []
    fault(wheel)
    assert says in wheel_problems(wheel, source)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (removed("pyproject.toml"), "it lacks pyproject.toml"),
        (removed("LICENSE"), "it has no licence"),
        (removed("canary/templates/report.css"), "it lacks canary/templates/report.css"),
        (added("tests/test_it.py"), "it holds tests"),
        (added("tools/build_model.py"), "it holds tools"),
    ],
)
def test_a_fault_of_the_sdist_is_found(
    source: Source, tmp_path: Path, fault: Callable[[Files], object], says: str
) -> None:
    names = ("README.md", "pyproject.toml", "LICENSE")
    files = {**source.package, **{name: (source.root / name).read_bytes() for name in names}}
    assert sdist_problems(files, source) == []
    fault(files)
    packed = tmp_path / "rlhf_canary-1.2.3.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"rlhf_canary-1.2.3/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    assert says in sdist_problems(sdist_files(packed), source)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[1.2.3]", "[1.2.2]", "canary/__init__.py says 1.2.3, but the newest section is [1.2.2]"),
        (" - 2026-11-26", "", "[1.2.3] has no date such as 2026-11-26"),
        ("2026-11-26", "26.11.2026", "[1.2.3] has no date such as 2026-11-26"),
        ("## [Unreleased]", "", "its first section is not [Unreleased]"),
        ("[Unreleased]", "[Unreleased]\n### Added\n- More.", "[Unreleased] is not empty"),
        ("### Added", "### New", "[1.2.3]: no group of Keep a Changelog is called New"),
        ("- A verb.", "", "[1.2.3] has no entry"),
        ("[1.2.0]", "[1.3.0]", "[1.2.3] is above [1.3.0]"),
    ],
)
def test_a_changelog_that_does_not_agree_is_found(old: str, new: str, says: str) -> None:
    assert changelog_problems(CHANGELOG, "1.2.3") == []
    problems = changelog_problems(CHANGELOG.replace(old, new, 1), "1.2.3")
    assert any(problem.startswith(says) for problem in problems), problems


def test_pages_that_use_another_moving_tag_are_found(source: Source) -> None:
    assert action_problems(source) == []
    (source.root / "canary" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    (problem,) = action_problems(source)
    assert problem.startswith("1 files use the action @v1, but version 0.1.0 moves v0")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"commits": {"v1.2.3": "a", "v1": "b"}}, "v1.2.3 and v1 are different commits"),
        ({"commits": {"v1.2.3": "a"}}, "there is no tag v1"),
        ({"version": "1.2.4"}, "canary/__init__.py does not say 1.2.4"),
        ({"image": IMAGE.replace("a" * 64, "b" * 64)}, "image.txt does not name the image"),
        ({"changed": ["canary/cli/verbs.py", "image.txt"]}, "not image.txt alone"),
    ],
)
def test_tags_that_do_not_agree_are_found(fault: dict[str, Any], says: str) -> None:
    whole: dict[str, Any] = {
        "version": "1.2.3",
        "image": IMAGE,
        "commits": {"v1.2.3": "a", "v1": "a"},
        "files": {"image.txt": IMAGE, "canary/__init__.py": '__version__ = "1.2.3"\n'},
        "changed": ["image.txt"],
    }
    assert tag_problems(**whole) == []
    assert says in "; ".join(tag_problems(**{**whole, **fault}))


def test_an_sbom_that_lacks_a_package_is_found() -> None:
    own = {"name": "rlhf-canary", "version": "1.2.3"}
    sbom = {"metadata": {"component": own}, "components": [{"name": "PyYAML", "version": "6.0.3"}]}
    installed = [own, {"name": "pyyaml", "version": "6.0.3"}]
    assert sbom_problems(sbom, installed, "1.2.3") == []
    assert sbom_problems(sbom, installed, "1.2.4") == ["the SBOM is of rlhf-canary 1.2.3"]
    more = [*installed, {"name": "rich", "version": "15.0.0"}]
    assert sbom_problems(sbom, more, "1.2.3") == ["the SBOM lacks rich"]


def test_provenance_and_hashes_name_each_file_and_the_commit(
    source: Source, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "one.whl").write_bytes(b"1")
    file = write_provenance(source, folder, datetime.now(UTC), {"build": "1.6.1"})
    statement = json.loads(file.read_text())
    assert [one["name"] for one in statement["subject"]] == ["one.whl"]
    made_of = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert made_of[0]["digest"] == {"gitCommit": "c" * 40}
    assert made_of[1] == {"uri": "pkg:pypi/build@1.6.1"}
    hashes = write_hashes(folder)
    check = ["sha256sum", "--check", "--strict", hashes.name]
    assert subprocess.run(check, cwd=folder, check=False, capture_output=True).returncode == 0
    assert hashes.read_text().count("\n") == 2
    (folder / "one.whl").write_bytes(b"2")
    assert subprocess.run(check, cwd=folder, check=False, capture_output=True).returncode == 1


def test_a_command_that_does_not_say_what_it_must_fails_the_check(
    source: Source, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "one", source, tmp_path / "log")
    environment.programs.mkdir(parents=True)
    (tmp_path / "one" / "work").mkdir()
    canary = environment.programs / "canary"
    canary.write_text('#!/bin/sh\necho "rlhf-canary 1.2.3 $PYTHONPATH"\nexit "$1"\n')
    canary.chmod(0o755)
    environment.try_all([Trial(("canary", "0"), r"^rlhf-canary VERSION $")])
    with pytest.raises(CheckFailed, match="does not say 'other'"):
        environment.try_all([Trial(("canary", "0"), "other")])
    with pytest.raises(CheckFailed, match=r"ended with exit code 3: rlhf-canary 1\.2\.3"):
        environment.try_all([Trial(("canary", "3"), "rlhf")])
    assert "[exit code 3]" in (tmp_path / "log").read_text()


def test_a_training_leaves_out_an_extra_that_its_python_cannot_have(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for name in ("create", "try_all", "remove"):
        monkeypatch.setattr(Environment, name, lambda *_: None)
    monkeypatch.setattr(Environment, "install", lambda *words: asked.extend(map(str, words[2:])))
    monkeypatch.setattr(installs, "write_sbom", lambda *_: None)
    ledger = Ledger(lambda line: None)
    artifacts = Artifacts(tmp_path, tmp_path / "w.whl", tmp_path / "s.tar.gz")
    shop = installs.Workshop(source, artifacts, Path(sys.executable), tmp_path, ledger)
    for release in ((3, 13, 0), (3, 14, 8)):
        installs.on_training_python(shop, Interpreter("python", release))
    assert [word.partition("[")[2] for word in asked if "[train" in word] == [
        "train,report]",
        "train]",
    ]


def test_a_strangers_command_has_no_variable_of_this_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/checkout")
    monkeypatch.setenv("CANARY_IMAGE", "other")
    said = run(["env"], tmp_path / "log")
    assert "PYTHONPATH" not in said
    assert "CANARY_IMAGE" not in said


def test_a_name_that_is_no_python_is_none(tmp_path: Path) -> None:
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    assert interpreter(str(shim)) is None
    assert interpreter("no-such-python") is None


def test_the_table_counts_what_failed_and_what_did_not_run() -> None:
    said: list[str] = []
    ledger = Ledger(said.append)
    with ledger.check("one"):
        raise CheckFailed("a fault | of two\nlines")
    ledger.find("two", [], "fine")
    ledger.skip("three", "no docker")
    assert [one.check for one in ledger.failed] == ["one"]
    assert said[0] == "failed  one: a fault | of two\nlines"
    assert "| one | failed |  | a fault \\| of two lines |" in ledger.table()
    assert "| three | not run |  | no docker |" in ledger.table()


def test_a_candidate_that_cannot_be_made_fails_and_leaves_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "TOOLS", ())
    subprocess.run(["git", "init", "-q", str(tmp_path / "empty")], check=True)
    given = ["--repository", str(tmp_path / "empty"), "-o", str(tmp_path / "out")]
    assert command.main(given) == 1
    assert "| candidate | failed |" in (tmp_path / "out" / "checks.md").read_text()
    assert "1 checks, 1 failed, 0 not run" in capsys.readouterr().out


def test_without_its_tools_it_names_the_command_that_brings_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "TOOLS", ("no_such_tool",))
    assert command.main([]) == 2
    assert capsys.readouterr().out == (
        "no_such_tool not installed here: use make release-candidate\n"
    )
