"""The repository of `canary demo`: a small training, and two pull requests that change a line."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from canary.campaign.worktrees import NO_HOOKS, checked_out, commit_of, git

SOURCES = Path(__file__).parent / "demo_project"
FILES = ("train.py", "canary.yaml")
IGNORE = ".gitignore"
MAIN = "main"
AUTHOR = ("-c", "user.name=canary demo", "-c", "user.email=demo@example.com")


@dataclass(frozen=True)
class PullRequest:
    """A branch that changes one line of `train.py`."""

    branch: str
    title: str
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The line before and after."""
        return f"  - {self.before}\n  + {self.after}"

    def applied(self, text: str) -> str:
        """Return `train.py` with the change."""
        assert text.count(self.before) == 1
        return text.replace(self.before, self.after)


HARMLESS = PullRequest(
    "tidy", "Copy the labels with torch.clone", "labels = ids.clone()", "labels = torch.clone(ids)"
)
BROKEN = PullRequest(
    "pad-with-eos",
    "Pad with EOS, because some tokenizers have no pad token",
    "pad = tokenizer.pad_token_id",
    "pad = tokenizer.eos_token_id",
)
"""The end token then counts as padding, so no label has it (huggingface/trl#3200)."""


@contextlib.contextmanager
def own_git() -> Iterator[None]:
    """Ignore the user's configuration and variables of git inside."""
    kept = {name: text for name, text in os.environ.items() if name.startswith("GIT_")}
    ours = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for name in kept:
        del os.environ[name]
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
        os.environ.update(kept)


@contextlib.contextmanager
def branches(project: Path) -> Iterator[dict[str, Path]]:
    """Make the repository; yield a checkout of main and of each branch.

    Raises:
        UsageError: git is not installed.
        MachineError: git failed.
    """
    project.mkdir()
    for name in FILES:
        shutil.copyfile(SOURCES / name, project / name)
    # A checkout with new files would count as changed.
    (project / IGNORE).write_text("out/\n__pycache__/\n", encoding="utf-8")
    with checked_out(project, _committed(project)) as found:
        yield found


def _committed(project: Path) -> dict[str, str]:
    """Commit main and both branches; return their commits."""
    git(project, "init", "--quiet", "--template=", f"--initial-branch={MAIN}")
    git(project, "add", "--", IGNORE, *FILES)
    _commit(project, "A training and its canary")
    for change in (HARMLESS, BROKEN):
        git(project, *NO_HOOKS, "checkout", "--quiet", "-b", change.branch, MAIN)
        script = project / "train.py"
        script.write_text(change.applied(script.read_text(encoding="utf-8")), encoding="utf-8")
        _commit(project, change.title)
    git(project, *NO_HOOKS, "checkout", "--quiet", MAIN)
    return {name: commit_of(project, name) for name in (MAIN, HARMLESS.branch, BROKEN.branch)}


def _commit(project: Path, title: str) -> None:
    git(project, *AUTHOR, *NO_HOOKS, "commit", "--quiet", "--all", "--message", title)
