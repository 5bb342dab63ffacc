"""What two commits of a repository differ in, asked of git."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeGuard

from canary.machine.checkout import Unread, read_git

MOST_CHARACTERS = 2_000_000
SHA = re.compile(r"[0-9a-f]{7,64}")
DIFF = (
    *("diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-textconv"),
    *("--submodule=short", "--ignore-submodules=dirty"),
)


def diff_between(folder: Path, base: str | None, head: str | None, dirty: bool = False) -> str:
    """`git diff --unified=0` from one commit to another, or, where the current side had changes
    that are in no commit and its commit is still checked out, to the files as they are.

    Empty where git cannot tell: no repository, or a commit that it does not have. No program that
    the repository names runs (`canary.machine.checkout`).
    """
    if not _is_commit(base) or not _is_commit(head) or (base == head and not dirty):
        return ""
    try:
        files = dirty and read_git(folder, "rev-parse", "HEAD").strip() == head
        range_ = [base] if files else [base, head]
        return read_git(folder, *DIFF, *range_, "--", files=files)[:MOST_CHARACTERS]
    except Unread:
        return ""


def _is_commit(sha: str | None) -> TypeGuard[str]:
    """A record's own word goes to git only where it cannot be an option."""
    return isinstance(sha, str) and SHA.fullmatch(sha) is not None
