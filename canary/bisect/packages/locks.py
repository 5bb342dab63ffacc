"""The lines of a lock file: requirements with or without hashes, `pip freeze`, uv, poetry, PEP 751.

`packaging` parses requirements and markers, `tomllib` parses TOML. A line that pins no release
comes back with the reason why it is not used.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidName, canonicalize_name

COMMENT = re.compile(r"(^|\s)#.*$")
HASH = re.compile(r"\s--hash[=\s]\S+")
OPTION = "is an option: only your own environment says where packages come from"
ELSEWHERE = "comes from a URL, a repository or a folder"
NOT_PINNED = "is not pinned with =="
NOT_A_REQUIREMENT = "is not a requirement"
UNREADABLE_MARKER = "has a marker that cannot be read"


class LockProblem(Exception):
    """A file is no lock file that can be read; the text says why."""


@dataclass(frozen=True)
class LockLine:
    """One package of a lock file."""

    name: str
    """As written; of a line that is not used, the line."""
    version: str | None = None
    unused: str | None = None
    """Why it is not used."""


def lines_of_lock(text: str, name: str) -> list[LockLine]:
    """Return the packages for this Python, without those that markers leave out.

    Args:
        text: the file's content.
        name: the file's name: `.lock` and `.toml` are TOML.

    Raises:
        LockProblem: it is not a lock file of a known kind.
    """
    if not name.endswith((".lock", ".toml")):
        return list(_requirements(text))
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise LockProblem(f"it is not TOML: {error}") from error
    if "lock-version" in document:
        return list(_packages(document.get("packages"), {}))
    if name.startswith("uv") or "requires-python" in document:
        found = _tables(document.get("package"))
        return list(_packages(found, _reached(found)))
    return list(_packages(document.get("package"), {}))


def _requirements(text: str) -> Iterator[LockLine]:
    for raw in text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines():
        line = HASH.sub("", COMMENT.sub("", raw)).strip()
        if line:
            yield from _requirement(line)


def _requirement(line: str) -> Iterator[LockLine]:
    if line.startswith("-"):
        editable = re.match(r"(-e|--editable)\b", line)
        yield LockLine(line, unused=ELSEWHERE if editable else OPTION)
        return
    try:
        found = Requirement(line)
    except InvalidRequirement:
        elsewhere = "://" in line or line.startswith((".", "/"))
        yield LockLine(line, unused=ELSEWHERE if elsewhere else NOT_A_REQUIREMENT)
        return
    if not _holds(found.marker):
        return
    if found.url:
        yield LockLine(found.name, unused=ELSEWHERE)
        return
    pins = [part.version for part in found.specifier if part.operator in ("==", "===")]
    if len(found.specifier) != 1 or len(pins) != 1 or pins[0].endswith(".*"):
        yield LockLine(found.name, unused=NOT_PINNED)
    else:
        yield LockLine(found.name, pins[0])


def _holds(marker: Marker | None) -> bool:
    try:
        return marker is None or marker.evaluate({"extra": ""})
    except (UndefinedComparison, UndefinedEnvironmentName):
        return False


def _tables(found: Any) -> list[dict[str, Any]]:
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise LockProblem("it has no list of packages")
    return found


def _packages(found: Any, reached: dict[str, bool]) -> Iterator[LockLine]:
    """Yield the packages of a TOML lock; `reached`: which names this Python needs, if known."""
    for package in _tables(found):
        name, version = package.get("name"), package.get("version")
        if not isinstance(name, str) or not _is_name(name):
            yield LockLine(str(name), unused=NOT_A_REQUIREMENT)
            continue
        marked = _marked(package)
        if marked is None:
            yield LockLine(name, unused=UNREADABLE_MARKER)
        elif not marked or not reached.get(canonicalize_name(name), True):
            continue
        elif not _from_index(package):
            yield LockLine(name, unused=ELSEWHERE)
        else:
            yield LockLine(name, version if isinstance(version, str) else None)


def _is_name(name: str) -> bool:
    try:
        canonicalize_name(name, validate=True)
    except InvalidName:
        return False
    return True


def _marked(package: dict[str, Any]) -> bool | None:
    """Return whether this Python takes the package; None if its marker cannot be read."""
    found = package.get("marker") or package.get("markers") or package.get("resolution-markers")
    if isinstance(found, dict):  # poetry: one marker per group
        found = list(found.values())
    markers = [found] if isinstance(found, str) else found or []
    try:
        parsed = [Marker(text) for text in markers if isinstance(text, str)]
    except InvalidMarker:
        return None
    return not parsed or any(_holds(marker) for marker in parsed)


def _from_index(package: dict[str, Any]) -> bool:
    if {"vcs", "directory", "archive"} & package.keys():  # pylock.toml
        return False
    source = package.get("source") or {}
    if not isinstance(source, dict):
        return False
    if "type" in source:  # poetry
        return bool(source["type"] == "legacy")
    return source.keys() <= {"registry"}  # uv


def _reached(packages: list[dict[str, Any]]) -> dict[str, bool]:
    """Return for each package of a `uv.lock` whether this Python needs it.

    The lock serves every platform: its dependencies have the markers, its packages have none.
    """
    by_name: dict[str, list[dict[str, Any]]] = {}
    for package in packages:
        if isinstance(name := package.get("name"), str) and _is_name(name):
            by_name.setdefault(canonicalize_name(name), []).append(package)
    level = [
        name
        for name, found in by_name.items()
        if any({"editable", "virtual"} & _source(one).keys() for one in found)
    ]
    if not level:
        return {}
    needed = set(level)
    while level:
        below = {name for one in level for package in by_name[one] for name in _needs(package)}
        level = sorted((below & by_name.keys()) - needed)
        needed.update(level)
    return {name: name in needed for name in by_name}


def _source(package: dict[str, Any]) -> dict[str, Any]:
    source = package.get("source")
    return source if isinstance(source, dict) else {}


def _needs(package: dict[str, Any]) -> Iterator[str]:
    groups = [package.get("dependencies")]
    for key in ("optional-dependencies", "dev-dependencies"):
        by_group = package.get(key)
        groups += by_group.values() if isinstance(by_group, dict) else []
    for group in groups:
        for one in group if isinstance(group, list) else []:
            name = one.get("name") if isinstance(one, dict) else None
            if isinstance(name, str) and _is_name(name) and _marked(one):
                yield canonicalize_name(name)
