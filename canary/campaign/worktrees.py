"""Check out commits beside the user's checkout, without touching it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from canary.campaign.side import undisturbed
from canary.errors import MachineError, UsageError
from canary.machine.git import GitMissing, run_git
from canary.machine.scratch import new_scratch, remove_scratch

NO_HOOKS = ("-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false")


def git(folder: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> str:
    """Return the standard output of a git command in the user's repository. `variables` are added
    to the environment.

    No time limit: git may fetch what a partial clone lacks, with the user's credentials.

    Raises:
        UsageError: git is not installed.
        MachineError: the command failed; the message has git's last line.
    """
    try:
        environ = os.environ | dict(variables or {})
        done = run_git(folder, *arguments, environ=environ, timeout_s=None, tokens=True)
    except GitMissing as error:
        raise GitMissing("git is needed to check out two commits") from error
    if done.code != 0:
        lines = os.fsdecode(done.err).strip().splitlines()
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


NEW_CODE = ("*.py", ":(exclude,glob)**/site-packages/**")
"""Files that git does not know yet. An environment may lie in the repository."""
AUTHOR = {
    f"GIT_{who}_{what}": said
    for who in ("AUTHOR", "COMMITTER")
    for what, said in (("NAME", "canary"), ("EMAIL", "canary@localhost"))
}


def working_tree(repository: Path) -> str | None:
    """Return a commit of the working tree: its tracked files as they are, and its new Python files
    that git does not ignore. None if that is the commit that is checked out.

    No branch, index or file of the repository changes; git removes such a commit after some weeks.

    Raises:
        MachineError: git cannot read or write the repository.
    """
    with tempfile.TemporaryDirectory(prefix="canary-index-") as folder:
        index = Path(folder, "index")
        own = Path(repository, git(repository, "rev-parse", "--git-path", "index"))
        if own.exists():  # with it, git need not read files that have not changed
            shutil.copy(own, index)
        variables = AUTHOR | {"GIT_INDEX_FILE": str(index)}
        git(repository, "add", "--update", variables=variables)
        if git(repository, "ls-files", "--others", "--exclude-standard", "--", *NEW_CODE):
            git(repository, "add", "--", *NEW_CODE, variables=variables)
        tree = git(repository, "write-tree", variables=variables)
        if tree == git(repository, "rev-parse", "HEAD^{tree}"):
            return None
        words = ("commit-tree", tree, "-p", "HEAD", "-m", "the working tree")
        return git(repository, *words, variables=variables)


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
