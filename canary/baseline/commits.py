"""What two commits of a repository differ in, asked of git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

MOST_CHARACTERS = 2_000_000
PATIENCE_S = 20


def diff_between(folder: Path, base: str | None, head: str | None, dirty: bool = False) -> str:
    """`git diff --unified=0` from one commit to another, or, where the current side had changes
    that are in no commit and its commit is still checked out, to the files as they are.

    Empty where git cannot tell: no repository, or a commit that it does not have.
    """
    if not base or not head or (base == head and not dirty):
        return ""
    range_ = [base]
    if not dirty or _git(folder, "rev-parse", "HEAD").strip() != head:
        range_.append(head)
    text = _git(folder, "diff", "--unified=0", "--no-color", "--no-ext-diff", *range_, "--")
    return text[:MOST_CHARACTERS]


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            capture_output=True,
            check=True,
            timeout=PATIENCE_S,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")
