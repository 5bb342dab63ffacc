"""A folder may lie in a stranger's repository: no verb runs a program that its git names."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from canary.baseline.ancestry import diff_between
from canary.cli import main
from canary.compare.diagnosis.source_changes import parse_diff
from canary.errors import CanaryError
from canary.gate.init import default_branch, require_root
from canary.machine.environment import git_state
from canary.machine.git import read_git
from canary.record import jsonio
from tests.unit.comparing import record

PROGRAMS = (
    *("core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass"),
    *("core.gitProxy", "core.alternateRefsCommand", "credential.helper", "gpg.program"),
    *("gpg.ssh.defaultKeyCommand", "gpg.ssh.program", "gpg.x509.program", "sequence.editor"),
    *("diff.external", "diff.evil.command", "diff.evil.textconv", "merge.evil.driver"),
    *("filter.evil.clean", "filter.evil.smudge", "filter.evil.process"),
    *("uploadpack.packObjectsHook", "trailer.evil.command"),
    *("remote.origin.uploadpack", "remote.origin.receivepack", "interactive.diffFilter"),
    *("pager.diff", "pager.status", "pager.rev-parse", "submodule.evil.update"),
)
"""Keys whose value git runs, in this or that command."""
OTHERS = (
    ("core.hooksPath", "{hooks}"),
    ("filter.evil.required", "true"),
    ("core.repositoryFormatVersion", "1"),
    ("extensions.partialClone", "origin"),
    ("extensions.worktreeConfig", "true"),
    ("remote.origin.promisor", "true"),
    ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
    ("protocol.allow", "always"),
    ("protocol.ext.allow", "always"),
    ("log.showSignature", "true"),
    ("status.submoduleSummary", "true"),
    ("diff.submodule", "diff"),
    ("diff.ignoreSubmodules", "none"),
    ("include.path", "{included}"),
)
FILTERS = ("clean", "smudge", "process")
ELSEWHERE = ("inc", "tree")
"""Filters that an included file and the worktree's own configuration define."""


@dataclass(frozen=True)
class Foreign:
    """A repository that tries to run what it can, and what it has run."""

    root: Path
    ran: Path
    commits: tuple[str, str]
    whole: bool
    """Whether git can tell something of it without its programs."""

    def has_run(self) -> list[str]:
        """The programs that were started."""
        return sorted(path.name for path in self.ran.iterdir())


def git(folder: Path, *arguments: str) -> str:
    # No configuration of the repository has been set while this is used.
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().strip()


def begun(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    for key in ("user.name", "user.email"):
        git(root, "config", key, "a@example.org")


def written(root: Path, text: str) -> str:
    (root / "train.py").write_text(text)
    (root / "odd.py").write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "-qm", text)
    return git(root, "rev-parse", "HEAD")


class Planter:
    """Sets programs that say that they ran."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.ran = folder / "programs", folder / "ran"
        self.programs.mkdir()
        self.ran.mkdir()

    def program(self, name: str) -> str:
        path = self.programs / str(len(list(self.programs.iterdir())))
        path.write_text(f"#!/bin/sh\n: > '{self.ran}/{name}'\nexit 1\n")
        path.chmod(0o755)
        return str(path)

    def plant(self, root: Path, where: str, name: str, by: str) -> None:
        """Sets every key of a repository, and touches its files, so that git reads them again."""
        folder = root / ".git"
        included = folder / "included"
        named = () if name in ELSEWHERE else FILTERS
        keys = [*PROGRAMS, *(f"filter.{name}.{part}" for part in named)]
        values = {key: self.program(f"{where}{key}") for key in keys}
        hooks = self.hooks(root)
        others = {key: value.format(hooks=hooks, included=included) for key, value in OTHERS}
        url = f"ext::{self.program(f'{where}url')}" if by == "ext" else f"file://{folder}"
        setting(folder / "config", {**values, **others, "remote.origin.url": url})
        setting(included, {f"filter.inc.{part}": self.program(f"inc {part}") for part in FILTERS})
        setting(folder / "config.worktree", {"filter.tree.clean": self.program("worktree")})
        for file in ("train.py", "odd.py"):
            os.utime(root / file, (1, 1))

    def hooks(self, root: Path) -> Path:
        folder = root / "hooks"
        folder.mkdir()
        for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
            (folder / name).symlink_to(self.program(name))
        return folder


def setting(file: Path, values: dict[str, str]) -> None:
    """Adds to a file of git's configuration."""
    with file.open("a") as stream:
        for key, value in values.items():
            section, _, rest = key.partition(".")
            middle, _, last = rest.rpartition(".")
            quoted = middle.replace("\\", "\\\\")
            heading = f'[{section} "{quoted}"]' if middle else f"[{section}]"
            stream.write(f'{heading}\n\t{last} = "{value}"\n')


KINDS = (
    *((name, "") for name in ("evil", "a=b", "Ev il\\.*", "inc", "tree")),
    *(("evil", by) for by in ("ext", "file")),
)
"""The filter of a file, and how the one file is fetched that the commits lack."""


@pytest.fixture(scope="session")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, str]]:
    """Two commits, changed files and a submodule, before anything is planted."""
    root = tmp_path_factory.mktemp("harmless") / "foreign"
    begun(root)
    begun(root / "sub")
    written(root / "sub", "below")
    attributes = "* filter=evil diff=evil merge=evil\n"
    (root / ".gitattributes").write_text(attributes)
    (root / "sub" / ".gitattributes").write_text(attributes)
    return root, (written(root, "x = 1\n"), written(root, "x = 2\n"))


@pytest.fixture(params=KINDS, ids=str)
def foreign(
    request: pytest.FixtureRequest, tmp_path: Path, harmless: tuple[Path, tuple[str, str]]
) -> Foreign:
    """The same with all that is planted; and one file of a commit that must be fetched."""
    name, by = request.param
    template, commits = harmless
    root, planter = tmp_path / "foreign", Planter(tmp_path)
    shutil.copytree(template, root)
    (root / ".git" / "info" / "attributes").write_text(
        f'odd.py "filter={name}"\nodd.py filter={name}\n'
    )
    missing = git(root, "rev-parse", f"{commits[0]}:train.py") if by else ""
    planter.plant(root, "", name, by)
    planter.plant(root / "sub", "sub ", name, by)
    if by:
        (root / ".git" / "objects" / missing[:2] / missing[2:]).unlink()
    return Foreign(root, planter.ran, commits, whole=name != "a=b" and not by)


def ignoring(act: Callable[[], object]) -> None:
    with contextlib.suppress(CanaryError, SystemExit):
        act()


@pytest.mark.spread(6)
@pytest.mark.parametrize("dirty", [False, True])
def test_comparing_in_a_strangers_repository_runs_none_of_its_programs(
    foreign: Foreign, monkeypatch: pytest.MonkeyPatch, dirty: bool
) -> None:
    for name, sha in zip(("base", "head"), foreign.commits, strict=True):
        made = record(len(name), run_id=name).model_copy(update={"git": {"sha": sha}})
        made.git["dirty"] = dirty
        (foreign.root / f"{name}.json").write_text(jsonio.dumps(made.model_dump()))
    monkeypatch.chdir(foreign.root)
    ignoring(lambda: main(["compare", "head.json", "base.json"]))
    assert foreign.has_run() == []


def test_the_facts_of_a_commit_run_none_of_its_programs(foreign: Foreign) -> None:
    said = git_state(foreign.root)
    git_state(foreign.root / ".git")
    assert foreign.has_run() == []
    if foreign.whole:
        assert said["sha"] == foreign.commits[1]


@pytest.mark.parametrize("dirty", [False, True])
def test_a_change_is_told_without_its_programs(foreign: Foreign, dirty: bool) -> None:
    said = diff_between(foreign.root, *foreign.commits, dirty)
    assert foreign.has_run() == []
    assert ("+x = 2" in said) or not foreign.whole


def test_the_verbs_that_look_into_a_checkout_run_none_of_its_programs(
    foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(foreign.root)
    ignoring(lambda: require_root(foreign.root / "sub"))
    default_branch(foreign.root)
    ignoring(lambda: main(["baseline", "history", "--remote", "origin"]))
    assert foreign.has_run() == []


@pytest.mark.parametrize("option", ["--output={}", "--ext-diff", "--textconv", "-O{}"])
def test_a_commit_in_a_record_is_no_option_of_git(tmp_path: Path, option: str) -> None:
    begun(tmp_path)
    head = written(tmp_path, "x = 1\n")
    given = option.format(tmp_path / "made")
    assert diff_between(tmp_path, given, head) == ""
    assert diff_between(tmp_path, head, given, dirty=True) == ""
    assert not (tmp_path / "made").exists()


def test_a_change_is_told_between_commits_and_to_the_files(tmp_path: Path) -> None:
    begun(tmp_path)
    base, head = written(tmp_path, "x = 1\n"), written(tmp_path, "x = 2\n")
    assert "+x = 2" in diff_between(tmp_path, base, head)
    (tmp_path / "train.py").write_text("x = 3\n")
    assert "+x = 3" in diff_between(tmp_path, base, head, dirty=True)
    assert "+x = 3" in diff_between(tmp_path, head, head, dirty=True)
    assert git_state(tmp_path)["changed_files"] == 1


def test_a_users_configuration_and_much_data_do_not_hide_a_change_of_code(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / "data.txt").write_text("a\n")
    base = written(tmp_path, "x = 1\ny = 2\n")
    for setting in ("diff.mnemonicPrefix", "diff.noprefix", "diff.relative"):
        git(tmp_path, "config", setting, "true")
    git(tmp_path, "config", "diff.renames", "false")
    (tmp_path / "data.txt").write_text("b\n" * 1_200_000)
    head = written(tmp_path, "x = 1\r\ny = 3\r\n")
    _, code, data = parse_diff(diff_between(tmp_path, base, head)).files
    assert (code.path, data.path) == ("train.py", "data.txt")
    assert [(hunk.line, hunk.added) for hunk in code.hunks] == [(2, ("y = 3\r",))]


HIDDEN = {
    "a condition that another file meets": (
        b"evil",
        {
            "config": b"[extensions]\n\tworktreeConfig = true\n"
            b'[includeIf "hasconfig:remote.*.url:https://x/**"]\n\tpath = more\n',
            "config.worktree": b'[remote "o"]\n\turl = https://x/y\n',
            "more": b'[filter "evil"]\n\tclean = PROGRAM\n',
        },
    ),
    "a name that is not UTF-8": (
        b"ev\xffil",
        {"config": b'[filter "ev\xffil"]\n\tclean = PROGRAM\n'},
    ),
}


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_filter_that_hides_in_the_configuration_does_not_run(hidden: str, tmp_path: Path) -> None:
    root, planter = tmp_path / "repository", Planter(tmp_path)
    begun(root)
    written(root, "one")
    name, files = HIDDEN[hidden]
    (root / ".gitattributes").write_bytes(b"* filter=" + name + b"\n")
    program = planter.program("filter").encode()
    for file, text in files.items():
        with (root / ".git" / file).open("ab") as stream:
            stream.write(text.replace(b"PROGRAM", program))
    (root / "train.py").write_text("two")
    assert "+two" in read_git(
        root, "diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", files=True
    )
    assert not list(planter.ran.iterdir())
