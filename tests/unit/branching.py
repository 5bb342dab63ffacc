"""Runs on branches of real repositories, for the tests of the baseline branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from canary.baseline.branch import BRANCH, Remote, pull
from canary.baseline.entry import Context
from canary.baseline.history import drawer, entries, save
from tests.contract.git_server import git
from tests.unit.comparing import record

REF = f"refs/heads/{BRANCH}"


def sha_of(number: int) -> str:
    """The commit of a run, made from its number."""
    return 10 * f"{number:04x}"


def adding(*numbers: int, verdict: str = "pass") -> Callable[[Path], None]:
    """A change that stores runs of these numbers."""

    def change(folder: Path) -> None:
        for number in numbers:
            context = Context.model_validate({"commit": sha_of(number), "verdict": verdict})
            save(folder, record(number), context=context)

    return change


def stored(remote: Remote, into: Path) -> list[str]:
    """Run ids on the branch, oldest first."""
    assert pull(remote, into) is not None
    return [entry.run_id for entry in entries(drawer(into, record()))]


def run_ids(*numbers: int) -> list[str]:
    return [f"run-{number:05d}" for number in numbers]


def parents_and_count(bare: Path) -> tuple[str, str]:
    """(parents of the branch's commit, commits on the branch)."""
    return (
        git(bare, "log", "-1", "--format=%P", REF),
        git(bare, "rev-list", "--count", REF),
    )


def write_branch(bare: Path, files: Mapping[str, str], *, modes: Mapping[str, str] = {}) -> str:
    """Puts a commit of these files on the branch, whatever they are; returns it."""
    lines = []
    for path, content in files.items():
        mode = modes.get(path, "100644")
        known = mode != "160000"
        sha = git(bare, "hash-object", "-w", "--stdin", given=content) if known else "1" * 40
        lines.append(f"{mode} {sha}\t{path}")
    for name in ("user.name", "user.email"):
        git(bare, "config", name, "test")
    tree = tree_of(bare, "\n".join(lines))
    commit = git(bare, "commit-tree", tree, "-m", "broken")
    git(bare, "update-ref", REF, commit)
    return commit


def tree_of(bare: Path, listing: str) -> str:
    """A tree of `mode sha<TAB>path` lines, folders made as needed; no name is checked."""
    folders: dict[str, list[str]] = {}
    rows = []
    for line in listing.splitlines():
        facts, path = line.split("\t")
        first, _, rest = path.partition("/")
        if rest:
            folders.setdefault(first, []).append(f"{facts}\t{rest}")
        else:
            mode, sha = facts.split()
            kind = "commit" if mode == "160000" else "blob"
            rows.append(f"{mode} {kind} {sha}\t{first}")
    rows += [
        f"040000 tree {tree_of(bare, chr(10).join(inner))}\t{name}"
        for name, inner in folders.items()
    ]
    return git(bare, "mktree", "--missing", given="".join(f"{row}\n" for row in rows))
