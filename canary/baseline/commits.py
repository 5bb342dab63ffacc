"""The difference between two commits, and the commits between them, from git."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeGuard

from canary.machine.git import Unread, read_git

MOST_CHARACTERS = 2_000_000
SHA = re.compile(r"[0-9a-f]{7,64}")
DIFF = (
    *("diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-textconv"),
    *("--submodule=short", "--ignore-submodules=dirty"),
    # A user's configuration must not change what is read.
    *("--src-prefix=a/", "--dst-prefix=b/", "--no-relative", "--find-renames"),
    *("--inter-hunk-context=0", "--ignore-cr-at-eol"),
)
CODE = "*.py"


def diff_between(folder: Path, base: str | None, head: str | None, dirty: bool = False) -> str:
    """Return `git diff --unified=0` from one commit to another: first code, then other files. The
    diff ends at the checkout's files if the current side was dirty and its commit is still checked
    out.

    It is empty without a repository or one of the commits. No program that the repository's
    configuration names runs (see `canary.machine.git`).
    """
    if not _is_commit(base) or not _is_commit(head) or (base == head and not dirty):
        return ""
    try:
        files = dirty and read_git(folder, "rev-parse", "HEAD").strip() == head
        range_ = [base] if files else [base, head]
        parts = (
            read_git(folder, *DIFF, *range_, "--", f":(top{kind}){CODE}", files=files)
            for kind in ("", ",exclude")
        )
        return "".join(part[:MOST_CHARACTERS] for part in parts)
    except Unread:
        return ""


def _is_commit(sha: str | None) -> TypeGuard[str]:
    """Return whether a record's text is a sha, and so cannot be taken for an option of git."""
    return isinstance(sha, str) and SHA.fullmatch(sha) is not None


def commits_between(folder: Path, base: str | None, head: str | None) -> int | None:
    """Return how many commits `head` has and `base` lacks; None without a repository or one of the
    commits, or if `head` does not descend from `base`."""
    if not _is_commit(base) or not _is_commit(head):
        return None
    try:
        if read_git(folder, "merge-base", base, head).strip() != base:
            return None
        counted = read_git(folder, "rev-list", "--count", f"{base}..{head}", "--").strip()
    except Unread:
        return None
    return int(counted) if counted.isdigit() else None
