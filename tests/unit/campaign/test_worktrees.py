"""Commits beside the user's checkout, and code that comes from the commit and nowhere else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from canary.campaign import environments
from canary.campaign.ab import AbRequest, _sides, run_ab
from canary.campaign.environments import (
    Editable,
    own_code_first,
    own_environment,
    refuse_foreign_code,
)
from canary.campaign.worktrees import (
    checked_out,
    commit_of,
    git,
    repository_of,
    uncommitted,
    working_tree,
)
from canary.errors import MachineError, UsageError
from tests.contract.git_server import git as git_run


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits of one package in a src folder."""
    root = (tmp_path / "repository").resolve()
    package = root / "src" / "theirs"
    package.mkdir(parents=True)
    git_run(root, "init", "-q", "-b", "main")
    for number in (1, 2):
        (package / "__init__.py").write_text(f"NUMBER = {number}\n")
        git_run(root, "add", "-A")
        git_run(root, "commit", "-qm", f"commit {number}")
    return root


def test_each_commit_lies_in_a_folder_of_its_own_and_nothing_stays(repository: Path) -> None:
    commits = {"base": commit_of(repository, "HEAD~1"), "head": commit_of(repository, "main")}
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text('#!/bin/sh\ntouch "$(git rev-parse --show-toplevel)/hooked"\n')
    hook.chmod(0o755)
    with checked_out(repository, commits) as trees:
        for role, number in (("base", 1), ("head", 2)):
            tree = trees[role]
            assert (tree / "src/theirs/__init__.py").read_text() == f"NUMBER = {number}\n"
            assert not (tree / "hooked").exists()
            assert not tree.is_relative_to(repository)
    assert not any(tree.exists() for tree in trees.values())
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert git(repository, "status", "--porcelain") == ""


def test_worktrees_go_even_when_the_work_in_them_fails(repository: Path) -> None:
    commits = {"base": commit_of(repository, "HEAD")}

    def fail() -> None:
        with checked_out(repository, commits) as trees:
            (trees["base"] / "left.txt").write_text("behind")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_a_ref_that_is_none_is_named_with_a_remedy(repository: Path) -> None:
    with pytest.raises(UsageError, match=r"no commit 'nowhere'.*fetch it"):
        commit_of(repository, "nowhere")
    with pytest.raises(UsageError, match="no commit '--help'"):
        commit_of(repository, "--help")


def test_outside_a_repository_two_configs_are_offered(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not in a git repository.*canary ab BASE.yaml HEAD.yaml"):
        repository_of(tmp_path)


def test_uncommitted_changes_are_counted(repository: Path) -> None:
    assert uncommitted(repository) == 0
    (repository / "src/theirs/__init__.py").write_text("NUMBER = 3\n")
    (repository / "untracked.txt").write_text("")
    assert uncommitted(repository) == 1


def test_the_working_tree_is_a_commit_that_changes_nothing(repository: Path) -> None:
    here = working_tree(repository)
    assert (here.commit, here.left_out) == (git(repository, "rev-parse", "HEAD"), ())
    package = repository / "src" / "theirs"
    (package / "__init__.py").write_text("NUMBER = 3\n")
    git(repository, "add", "-A")
    (package / "__init__.py").write_text("NUMBER = 4\n")
    (package / "new part.py").write_text("")
    (repository / "notes.txt").write_text("")
    installed = repository / "venv" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "theirs.py").write_text("")
    (package / "*.py").write_text("")  # a name, no pattern
    before = git(repository, "status", "--porcelain"), git(repository, "for-each-ref")
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    here = working_tree(repository)
    commit = here.commit
    assert here.left_out == ("notes.txt",)
    assert not (repository / "hooked").exists()
    hook.unlink()
    assert (git(repository, "status", "--porcelain"), git(repository, "for-each-ref")) == before
    assert git(repository, "show", f"{commit}:src/theirs/__init__.py") == "NUMBER = 4"
    assert git(repository, "rev-parse", f"{commit}^") == git(repository, "rev-parse", "HEAD")
    files = git(repository, "ls-tree", "-r", "--name-only", commit).splitlines()
    assert files == ["src/theirs/*.py", "src/theirs/__init__.py", "src/theirs/new part.py"]


def test_an_edit_in_the_second_of_a_commit_is_part_of_the_working_tree(repository: Path) -> None:
    """Git tells such an edit only by the time of its index."""
    file = repository / "src" / "theirs" / "__init__.py"
    time.sleep(1.0 - time.time() % 1.0)
    file.write_text("NUMBER = 3\n")
    git_run(repository, "commit", "-qam", "commit 3")
    with file.open("r+") as stream:
        stream.write("NUMBER = 9\n")
    time.sleep(1.0)
    commit = working_tree(repository).commit
    assert git(repository, "show", f"{commit}:src/theirs/__init__.py") == "NUMBER = 9"


def test_submodules_are_said_to_be_left_out(repository: Path) -> None:
    other = repository.parent / "other"
    shutil.copytree(repository, other)
    allowed = ("-c", "protocol.file.allow=always")
    git(repository, *allowed, "submodule", "--quiet", "add", str(other), "lib")
    assert working_tree(repository).left_out == ("lib",)


@pytest.mark.parametrize(("head", "number"), [(None, 3), ("HEAD", 2)])
def test_without_a_named_commit_the_head_is_the_working_tree(
    repository: Path, head: str | None, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    (repository / "canary.yaml").write_text("command: [python, -m, theirs]\n")
    (repository / "src" / "theirs" / "__init__.py").write_text("NUMBER = 3\n")
    said: list[str] = []
    request = AbRequest(Path("canary.yaml"), base="HEAD~1", head=head, trusts_folder=True)
    with _sides(request, said.append) as (sides, _):
        code = (sides["head"].folder / "src" / "theirs" / "__init__.py").read_text()
    assert code == f"NUMBER = {number}\n"
    assert sides["head"].label.startswith("HEAD" if head else "working tree on ")
    assert any("1 uncommitted file" in one for one in said) == bool(head)


def imported_number(python: Path, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [str(python), "-c", "import theirs; print(theirs.NUMBER)"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_what_lies_on_the_import_path_comes_from_the_worktree(repository: Path) -> None:
    base = {**os.environ, "PYTHONPATH": str(repository / "src")}
    with checked_out(repository, {"base": commit_of(repository, "HEAD~1")}) as trees:
        environment = own_code_first(repository, trees["base"], base)
        assert imported_number(Path(sys.executable), trees["base"], environment) == "1"


def test_an_editable_package_of_the_checkout_comes_from_the_worktree(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editable = [Editable(repository, ("theirs",))]
    monkeypatch.setattr(environments, "editable_packages", lambda _: editable)
    python = Path(sys.executable)
    with checked_out(repository, {"base": commit_of(repository, "HEAD~1")}) as trees:
        environment = own_code_first(repository, trees["base"], os.environ)
        assert imported_number(python, trees["base"], environment) == "1"
        refuse_foreign_code("base", python, trees["base"], environment, repository)
        foreign = {**os.environ, "PYTHONPATH": str(repository / "src")}
        with pytest.raises(UsageError, match=r"theirs is installed in editable mode.*--setup"):
            refuse_foreign_code("base", python, trees["base"], foreign, repository)


def test_an_editable_install_is_recognised(tmp_path: Path, repository: Path) -> None:
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    document = {"url": repository.as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(document))
    sys.path.insert(0, str(tmp_path))
    try:
        assert environments.editable_packages(repository) == [Editable(repository, ("theirs",))]
        assert environments.editable_packages(tmp_path / "elsewhere") == []
    finally:
        sys.path.remove(str(tmp_path))


@pytest.mark.slow
def test_setup_installs_into_an_environment_of_the_side_alone(
    tmp_path: Path, repository: Path
) -> None:
    write = "pathlib.Path(site.getsitepackages()[0], 'theirs.pth').write_text(os.getcwd() + '/src')"
    setup = f'python -c "import os, pathlib, site; {write}" && pip --version'
    log = tmp_path / "setup.log"
    python, environment = own_environment("base", tmp_path, repository, setup, {**os.environ}, log)
    assert str(tmp_path / "base-env") in log.read_text()
    assert imported_number(python, tmp_path, environment) == "2"
    found = subprocess.run(
        [str(python), "-c", "import canary, pydantic, sys; print(sys.prefix)"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(tmp_path / "base-env")
    own = subprocess.run([sys.executable, "-c", "import theirs"], capture_output=True, cwd=tmp_path)
    assert own.returncode != 0


@pytest.mark.slow
def test_a_setup_that_fails_is_one_line_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "setup.log"
    with pytest.raises(MachineError, match="head: setup ended with exit code 3: no such thing"):
        own_environment(
            "head", tmp_path, tmp_path, "echo no such thing >&2; exit 3", {**os.environ}, log
        )
    assert "no such thing" in log.read_text()


def test_the_action_takes_no_config_that_the_base_commit_lacks(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the pull request must not say what the base is trained with."""
    (repository / "new.yaml").write_text("training_type: sft\n")
    git_run(repository, "add", "-A")
    git_run(repository, "commit", "-qm", "a config of the pull request")
    monkeypatch.chdir(repository)
    with pytest.raises(UsageError, match=r"new\.yaml is not in base"):
        run_ab(AbRequest(config=Path("new.yaml"), base="HEAD~1", head="HEAD"), print)
