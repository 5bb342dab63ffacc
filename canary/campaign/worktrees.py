"""Check out commits beside the user's checkout, without touching it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from canary.campaign.side import undisturbed
from canary.errors import MachineError, UsageError
from canary.machine.git import GitMissing, run_git
from canary.machine.scratch import new_scratch, remove_scratch

NO_HOOKS = ("-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false")


def git(
    folder: Path, *arguments: str, variables: Mapping[str, str] | None = None, given: str = ""
) -> str:
    """Return the standard output of a git command in the user's repository. `variables` are added
    to the environment; `given` is its standard input.

    No time limit: git may fetch what a partial clone lacks, with the user's credentials.

    Raises:
        UsageError: git is not installed.
        MachineError: the command failed; the message has git's last line.
    """
    try:
        environ = os.environ | dict(variables or {})
        text = os.fsencode(given)
        done = run_git(folder, *arguments, environ=environ, given=text, timeout_s=None, tokens=True)
    except GitMissing as error:
        raise GitMissing("git is needed to check out commits") from error
    if done.code != 0:
        said = os.fsdecode(done.err).strip().splitlines()
        lines = [line for line in said if not line.startswith("hint:")]
        reason = lines[-1] if lines else f"exit code {done.code}"
        raise MachineError(f"git {arguments[0]} failed: {reason}")
    return os.fsdecode(done.out).strip()


def repository_of(folder: Path) -> Path:
    """Return the root of the repository that contains a folder.

    Raises:
        UsageError: the folder is not in a repository.
    """
    try:
        return Path(git(folder, "rev-parse", "--show-toplevel")).resolve()
    except MachineError as error:
        raise UsageError(
            f"{folder} is not in a git repository",
            "compare two configs instead: canary ab BASE.yaml HEAD.yaml",
        ) from error


def commit_of(repository: Path, ref: str) -> str:
    """Return the commit of a branch, tag or abbreviated hash.

    Raises:
        UsageError: no such commit.
    """
    try:
        return git(
            repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )
    except MachineError as error:
        raise UsageError(
            f"no commit {ref!r} in {repository}",
            "fetch it first; a shallow clone holds only the newest commits",
        ) from error


def uncommitted(repository: Path) -> int:
    """Count the tracked files with uncommitted changes."""
    return len(git(repository, "status", "--porcelain", "--untracked-files=no").splitlines())


NOT_INSTALLED = ":(exclude,glob)**/site-packages/**"
"""An environment may lie in the repository."""
PLAIN = (*NO_HOOKS, "-c", "core.splitIndex=false", "-c", "advice.updateSparsePath=false")
AUTHOR = {
    f"GIT_{who}_{what}": said
    for who in ("AUTHOR", "COMMITTER")
    for what, said in (("NAME", "canary"), ("EMAIL", "canary@localhost"))
}


@dataclass(frozen=True)
class Tree:
    """The working tree of a repository."""

    commit: str
    """A commit of it: tracked files as they are, and new Python files that git does not ignore."""
    left_out: tuple[str, ...]
    """What lies there and is no part of the commit: other new files, and submodules."""


def working_tree(repository: Path) -> Tree:
    """Make a commit of the working tree, or take the one that is checked out if they are equal.

    No branch, index or file of the repository changes; git removes such a commit after some weeks.

    Raises:
        MachineError: git cannot read or write the repository.
    """
    with tempfile.TemporaryDirectory(prefix="canary-index-") as folder:
        index = Path(folder, "index")
        own = Path(repository, git(repository, "rev-parse", "--git-path", "index"))
        if own.exists():  # With its time: git reads what changed in the second of its last write.
            shutil.copy2(own, index)
        variables = AUTHOR | {"GIT_INDEX_FILE": str(index), "GIT_LITERAL_PATHSPECS": "0"}

        def run(*words: str, given: str = "") -> str:
            return git(repository, *PLAIN, *words, variables=variables, given=given)

        sparse = ("--sparse",) if run("config", "--default=", "core.sparseCheckout") else ()
        run("add", "--update", *sparse)
        others = ("ls-files", "--others", "--exclude-standard", "-z", "--", ".", NOT_INSTALLED)
        new = [name for name in run(*others).split("\0") if name]
        code = [name for name in new if name.endswith(".py")]
        if code:
            variables["GIT_LITERAL_PATHSPECS"] = "1"
            from_input = ("--pathspec-from-file=-", "--pathspec-file-nul")
            run("add", *sparse, *from_input, given="\0".join(code))
        tracked = run("ls-files", "--stage").splitlines()
        modules = [line.partition("\t")[2] for line in tracked if line.startswith("160000 ")]
        left = (*modules, *(name for name in new if not name.endswith(".py")))
        tree = run("write-tree")
        if tree == run("rev-parse", "HEAD^{tree}"):
            return Tree(commit_of(repository, "HEAD"), left)
        return Tree(run("commit-tree", tree, "-p", "HEAD", "-m", "the working tree"), left)


def add_worktree(repository: Path, path: Path, commit: str) -> Path:
    """Check out a commit into a new folder; no hook of the repository runs."""
    git(repository, *NO_HOOKS, "worktree", "add", "--quiet", "--detach", str(path), commit)
    return path


@contextlib.contextmanager
def checked_out(repository: Path, commits: Mapping[str, str]) -> Iterator[dict[str, Path]]:
    """Check out each commit into a worktree in a scratch folder; remove them at the end.

    No hook of the repository runs. Yields the worktree of each name.
    """
    scratch = new_scratch("ab", repository)
    try:
        yield {
            name: add_worktree(repository, scratch / name, commit)
            for name, commit in commits.items()
        }
    finally:
        with undisturbed():
            remove_scratch(scratch, repository)
