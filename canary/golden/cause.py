"""What changed between a golden file's run and a new one: commits, packages, config, and the likely
cause by the canary's diagnosis.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary.compare.diagnosis.source_changes import source_between
from canary.compare.report import KeyChange
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import Thresholds
from canary.golden.formats.canary import without_times
from canary.machine.git import Unread, read_git
from canary.record.types import RunRecord

MOST_COMMITS = 5
MOST_SUSPECTS = 3
PACKAGES = "packages."
SHA = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True)
class Cause:
    """What is known about why values moved."""

    before: str | None = None
    """The commit of the golden values."""
    after: str | None = None
    uncommitted: str = ""
    """Whose code had uncommitted changes, so that its commit does not say what ran."""
    commits: tuple[str, ...] = ()
    """`sha subject` of the newest commits between, at most MOST_COMMITS."""
    commit_count: int | None = None
    files: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """`name old -> new`."""
    config: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    """The likely causes, the likeliest first, with the strongest evidence."""
    first_difference: str = ""
    unrecorded: str = ""
    """What a run does not say, so that it cannot be compared; empty: it says all."""
    unknown: str = ""
    """Why the cause could not be looked for."""

    def sentences(self) -> list[str]:
        """Return what is known, one fact per sentence."""
        found = [f"likely cause: {one}" for one in self.suspects]
        if self.packages:
            found.append(f"packages: {', '.join(self.packages)}")
        if self.config:
            found.append(f"config: {', '.join(self.config)}")
        if self.environment:
            found.append(f"environment: {', '.join(self.environment)}")
        if self.first_difference:
            found.append(f"first difference of the probes: {self.first_difference}")
        found.append(self.since())
        if self.unrecorded:
            found.append(self.unrecorded)
        elif not (self.packages or self.config or self.environment or self.unknown):
            found.append("packages and config are those of the golden values")
        return [*found, *([self.unknown] if self.unknown else [])]

    def since(self) -> str:
        """Return between which commits the values moved."""
        changed = f"{self.uncommitted} had uncommitted changes" if self.uncommitted else ""
        if self.before is None or self.after is None:
            sides = {"the run": self.after, "the golden values": self.before}
            missing = " and ".join(side for side, sha in sides.items() if sha is None)
            return f"commit: not known of {missing}{'; ' + changed if changed else ''}"
        if self.before == self.after:
            differ = f", but {changed}, so the code may differ" if changed else ""
            return f"commit: {self.after[:9]} on both sides{differ}"
        count = self.commit_count
        size = "" if count is None else f" ({count} commit{'' if count == 1 else 's'}"
        size += f", {len(self.files)} file{'' if len(self.files) == 1 else 's'})" if size else ""
        since = f"since commit {self.before[:9]}, now commit {self.after[:9]}{size}"
        return f"{since}; {changed}" if changed else since


def cause_of(before: RunRecord | None, after: RunRecord, repository: Path) -> Cause:
    """Compare the golden values' record with a run's.

    `repository`: a folder of the git repository with both commits; without them, only the commits'
    names are known.
    """
    sha = after.git.get("sha")
    if before is None:
        return Cause(
            after=sha,
            uncommitted=_uncommitted(None, after),
            unknown="the golden file does not say of which run its values are: name that run "
            "with --baseline to see the cause",
        )
    if before.run_id == after.run_id:
        return Cause(sha, sha, unknown="the golden values are of this run")
    unrecorded = _unrecorded(before, after)
    if (before.source is None) != (after.source is None):
        # What an import does not record would look like a change.
        return Cause(before.git.get("sha"), sha, _uncommitted(before, after), unrecorded=unrecorded)
    source = source_between(repository, before, after)
    found = compare_to_baseline(
        [without_times(after)], [without_times(before)], Thresholds(), source=source
    )
    was = before.git.get("sha")
    count, commits = _commits(repository, was, sha)
    changes = [change for change in found.environment_changes if not change.cosmetic]
    of_packages = [change for change in changes if change.key.startswith(PACKAGES)]
    return Cause(
        was,
        sha,
        _uncommitted(before, after),
        commits,
        count,
        tuple(file.path for file in source.files),
        tuple(_words(change, PACKAGES) for change in of_packages),
        tuple(_words(change) for change in found.config_changes if not change.cosmetic),
        tuple(_words(change) for change in changes if change not in of_packages),
        tuple(_suspect(one) for one in found.diagnosis.suspects[:MOST_SUSPECTS]),
        found.first_difference.sentence() if found.first_difference else "",
        unrecorded,
    )


def _unrecorded(before: RunRecord, after: RunRecord) -> str:
    """Return what cannot be compared, and of whom it is not known."""
    sides = {"the run": after, "the golden values": before}
    imported = [side for side, record in sides.items() if record.source is not None]
    without = [side for side, record in sides.items() if not record.env.get("packages")]
    if len(imported) == 1:
        return (
            f"packages and config: not comparable, because {imported[0]} {_was(imported)} imported"
        )
    if not without:
        return ""
    why = f", which {_was(without)} imported" if without == imported else ""
    return f"packages: not known of {' and '.join(without)}{why}"


def _was(sides: list[str]) -> str:
    return "was" if sides == ["the run"] else "were"


def _uncommitted(before: RunRecord | None, after: RunRecord) -> str:
    was = before is not None and bool(before.git.get("dirty"))
    if after.git.get("dirty"):
        return "both runs" if was else "the run"
    return "the run of the golden values" if was else ""


def _suspect(suspect: Any) -> str:
    evidence = next((one.message for one in suspect.evidence), "")
    return f"{suspect.description} ({suspect.category}; {evidence})"


def _words(change: KeyChange, section: str = "") -> str:
    was, now = ("not set" if v is None else str(v) for v in (change.baseline, change.current))
    return f"{change.key.removeprefix(section)} {was} -> {now}"


def _commits(
    repository: Path, base: str | None, head: str | None
) -> tuple[int | None, tuple[str, ...]]:
    """Return the number of commits between, and the newest ones."""
    if not (base and head and SHA.fullmatch(base) and SHA.fullmatch(head)) or base == head:
        return None, ()
    span = f"{base}..{head}"
    try:
        count = int(read_git(repository, "rev-list", "--count", span, "--").strip())
        log = ("log", "--no-show-signature", "--format=%h %s", f"-{MOST_COMMITS}", span, "--")
        return count, tuple(read_git(repository, *log).splitlines())
    except (Unread, ValueError):
        return None, ()


def package_changes(before: RunRecord | None, after: RunRecord) -> dict[str, str]:
    """Return the packages that changed: name -> `old -> new`."""
    if before is None:
        return {}
    was, now = (record.env.get("packages") or {} for record in (before, after))
    return {
        name: f"{was.get(name) or 'none'} -> {now.get(name) or 'none'}"
        for name in sorted({*was, *now})
        if was.get(name) != now.get(name)
    }
