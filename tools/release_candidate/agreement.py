"""Whether changelog, version, tags, action and image name one release. Texts in, problems out."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from packaging.version import InvalidVersion, Version

from tools.release_candidate.source import Source

UNRELEASED = "Unreleased"
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
"""The groups of Keep a Changelog 1.1.0."""
SECTION = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>.*))?$")
ACTION = re.compile(r"rlhf-canary/rlhf-canary@v(\d+)\b")
USES_ACTION = ("README.md", "docs", "examples", "canary/gate", "templates")


@dataclass
class Section:
    """One version of a changelog."""

    name: str
    date: str | None
    groups: list[str]
    entries: int


def sections(text: str) -> list[Section]:
    """Return the sections of a changelog, in the order of the file."""
    found: list[Section] = []
    for line in text.splitlines():
        if line.startswith("## "):
            match = SECTION.match(line)
            name, date = (match["name"], match["date"]) if match else (line[3:].strip(), None)
            found.append(Section(name, date, [], 0))
        elif found and line.startswith("### "):
            found[-1].groups.append(line[4:].strip())
        elif found and line.startswith("- "):
            found[-1].entries += 1
    return found


def changelog_problems(text: str, version: str) -> list[str]:
    """Return why a changelog does not describe the release of a version."""
    found = sections(text)
    problems = form_problems(text)
    if problems:
        return problems
    unreleased, *released = found
    if unreleased.entries:
        problems.append(f"[{UNRELEASED}] is not empty: move its entries to [{version}]")
    if not released or released[0].name != version:
        newest = f"[{released[0].name}]" if released else "missing"
        problems.append(f"canary/__init__.py says {version}, but the newest section is {newest}")
    return problems


def form_problems(text: str) -> list[str]:
    """Return where a changelog does not have the form of Keep a Changelog."""
    found = sections(text)
    if not found or found[0].name != UNRELEASED:
        return [f"its first section is not [{UNRELEASED}]"]
    _, *released = found
    problems = [
        f"[{one.name}]: no group of Keep a Changelog is called {group}"
        for one in found
        for group in one.groups
        if group not in KINDS
    ]
    for one in released:
        problems += _of_release(one)
    for newer, older in pairwise(released):
        if not _is_newer(newer.name, older.name):
            problems.append(f"[{newer.name}] is above [{older.name}]")
    return problems


def _of_release(section: Section) -> list[str]:
    problems = [] if section.entries else [f"[{section.name}] has no entry"]
    try:
        datetime.date.fromisoformat(section.date or "")
    except ValueError:
        problems.append(f"[{section.name}] has no date such as 2026-11-26")
    return problems


def _is_newer(first: str, second: str) -> bool:
    try:
        return Version(first) > Version(second)
    except InvalidVersion:
        return False


def action_problems(source: Source) -> list[str]:
    """Return which files use the action by another moving tag than the release moves."""
    major = source.version.partition(".")[0]
    other: dict[str, int] = {}
    for path in _texts(source.root):
        for used in {*ACTION.findall(path.read_text(encoding="utf-8"))} - {major}:
            other[used] = other.get(used, 0) + 1
    return [
        f"{files} files use the action @v{used}, but version {source.version} moves v{major}: "
        f"release {used}.0.0, or change them"
        for used, files in sorted(other.items())
    ]


def _texts(root: Path) -> list[Path]:
    found: list[Path] = []
    for name in USES_ACTION:
        place = root / name
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        found += [one for one in files if one.suffix in (".md", ".yml", ".yaml", ".py", ".jinja")]
    return found


def tag_problems(
    version: str, image: str, commits: dict[str, str], files: dict[str, str], changed: list[str]
) -> list[str]:
    """Return why the tags of a release do not name one package and one image.

    Args:
        commits: tag -> commit. files: path -> content in the commit of the tag.
        changed: paths that differ between the source and that commit.
    """
    full, moving = f"v{version}", f"v{version.partition('.')[0]}"
    problems = [f"there is no tag {tag}" for tag in (full, moving) if tag not in commits]
    if not problems and commits[full] != commits[moving]:
        problems.append(f"{full} and {moving} are different commits")
    if files.get("image.txt", "").strip() != image:
        problems.append("image.txt does not name the image")
    if f'__version__ = "{version}"' not in files.get("canary/__init__.py", ""):
        problems.append(f"canary/__init__.py does not say {version}")
    if changed != ["image.txt"]:
        problems.append(f"it changes {', '.join(changed) or 'nothing'}, not image.txt alone")
    return problems
