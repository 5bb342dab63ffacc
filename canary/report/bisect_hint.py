"""The command that would find the culprit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from canary.baseline.ancestry import commits_between
from canary.baseline.history import drawer, entries, is_history
from canary.compare.paths import Compared
from canary.compare.report import Comparison
from canary.record.types import RunRecord

Axis = Literal["commit", "package"]
SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
SHOWN_DIGITS = 9
PLAIN = re.compile(r"[\w./@%+=:, ()~-]{1,300}")
"""Paths that stay what they are in a shell's quotes, in Markdown and in a terminal."""
UNKNOWN_CONFIG = "CONFIG"
"""Stands for a config whose path is unknown, or that no command may hold."""
PACKAGES = "packages."


@dataclass(frozen=True)
class Hint:
    """A command to find the culprit with."""

    axis: Axis
    command: str

    @property
    def label(self) -> str:
        """What the command does."""
        return f"Find the {self.axis}"

    @property
    def sentence(self) -> str:
        """Label and command on one line."""
        return f"{self.label}: {self.command}"


def shell_word(text: str, instead: str) -> str:
    """Return a path as one word of a shell; `instead` for one that could do more than name a file.

    An option's look is taken from it by `./`.
    """
    if not PLAIN.fullmatch(text) or not text.isprintable():
        return instead
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def commits_command(config: str, good: str, bad: str, check: str = "") -> str:
    """Return the command that finds a commit; empty if an end is no full sha or both are one.

    `check`: the one to follow, instead of the first red one.
    """
    if not (SHA.fullmatch(good) and SHA.fullmatch(bad)) or good == bad:
        return ""
    ends = f"--good {good[:SHOWN_DIGITS]} --bad {bad[:SHOWN_DIGITS]}"
    follow = f" --check {check}" if check else ""
    return f"canary bisect {shell_word(config, UNKNOWN_CONFIG)} {ends}{follow}"


def packages_command(config: str, good: str, bad: str) -> str:
    """Return the command that finds a package between two records, given their paths."""
    shown = [shell_word(path, name) for path, name in ((good, "GOOD"), (bad, "BAD"))]
    return f"canary bisect {shell_word(config, UNKNOWN_CONFIG)} --packages {' '.join(shown)}"


@dataclass(frozen=True)
class Known:
    """What is known beside a comparison."""

    config: str = ""
    """Its path, as the user gives it."""
    commits: int | None = None
    """Commits that the newest stored run lacks and the judged one has; None if unknown."""
    commit: str = ""
    """Of the judged run, if it is known from elsewhere than its record."""
    paths: tuple[str, str] | None = None
    """Paths of the newest stored record and of the judged one."""


def known_of(compared: Compared, baseline: Sequence[Path], repository: Path) -> Known:
    """Return what the folders of compared runs and a repository tell.

    `baseline`: the paths that the user gave for it.
    """
    if not (compared.current and compared.baseline):
        return Known()
    good, bad = compared.baseline[-1], compared.current[-1]
    folder = compared.folders.get(bad.run_id)
    shas = (run.git.get("sha") for run in (good, bad))
    before = compared.folders.get(good.run_id) or _stored(baseline, bad, good.run_id)
    paths = (str(before), str(folder)) if before is not None and folder is not None else None
    return Known(bad.config_file or "", commits_between(repository, *shas), paths=paths)


def _stored(baseline: Sequence[Path], of: RunRecord, run_id: str) -> Path | None:
    """Return the file of a stored run; None if the baseline is no history or lacks it."""
    if len(baseline) != 1 or not is_history(baseline[0]):
        return None
    found = entries(drawer(baseline[0], of))
    return next((entry.path for entry in found if entry.run_id == run_id), None)


def hint_of(
    found: Comparison,
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord],
    known: Known,
) -> Hint | None:
    """Return the command that would find what made a comparison red; None if it is not red, or
    there is nothing to search."""
    red = found.verdict in ("regression", "changed") and not found.accepted
    if not (red and current and baseline and found.failed_checks):
        return None
    good, bad = baseline[-1], current[-1]
    changed = [
        change.key
        for change in found.environment_changes
        if change.key.startswith(PACKAGES) and not change.cosmetic
    ]
    if changed and known.paths is not None:
        return Hint("package", packages_command(known.config, *known.paths))
    few = known.commits is not None and known.commits < 2
    if few or good.git.get("dirty") or bad.git.get("dirty"):
        return None  # The one commit is the culprit, or what nobody committed may be.
    before, after = (str(run.git.get("sha") or "") for run in (good, bad))
    command = commits_command(known.config, before, known.commit or after)
    return Hint("commit", command) if command else None
