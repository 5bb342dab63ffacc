"""What a wheel and an sdist must hold, and what they must not. Files in, problems out."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tools.release_candidate.source import Source

NOT_SHIPPED = ("bench", "scripts", "tests", "tools")
TEST = re.compile(r"(^|/)(tests?/|conftest\.py$|test_\w*\.py$|\w*_test\.py$)")
BUILDER = re.compile(r"(^|/)build_\w*\.py$")
IMPORTS = re.compile(rb"(?m)^\s*(?:from|import)\s+(bench|pytest|tests|tools)\b")
PLUGIN = "canary/pytest_plugin/"
"""Imports pytest, which loads it."""
DIST_INFO = {
    *("METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt"),
    "licenses/LICENSE",
}
MOST_SHOWN = 3

Files = Mapping[str, bytes]


def wheel_files(wheel: Path) -> dict[str, bytes]:
    """Return name and content of each file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def sdist_files(sdist: Path) -> dict[str, bytes]:
    """Return name, without the top folder, and content of each file of an sdist."""
    found: dict[str, bytes] = {}
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            stream = archive.extractfile(member)
            if stream is not None:
                found[member.name.partition("/")[2]] = stream.read()
    return found


def wheel_problems(files: Files, source: Source) -> list[str]:
    """Return what is wrong with the files of a wheel: it is the package, and nothing else."""
    info = f"rlhf_canary-{source.version}.dist-info/"
    package = {name: text for name, text in files.items() if not name.startswith(info)}
    described = {name.removeprefix(info) for name in files if name.startswith(info)}
    wanted = source.package
    return [
        *_listed("it lacks", wanted.keys() - package.keys()),
        *_listed("it holds files of no commit:", package.keys() - wanted.keys()),
        *_listed("these differ from the commit:", _changed(package, wanted)),
        *_listed("its dist-info lacks", DIST_INFO - described),
        *_listed("its dist-info also has", described - DIST_INFO),
        *_licence(files.get(f"{info}licenses/LICENSE"), source),
        *_foreign(package, source),
    ]


def sdist_problems(files: Files, source: Source) -> list[str]:
    """Return what is wrong with the files of an sdist."""
    package = {name: text for name, text in files.items() if name.startswith("canary/")}
    beside = {name.partition("/")[0] for name in files.keys() - package.keys()}
    wanted = source.package
    return [
        *_listed("it lacks", wanted.keys() - package.keys()),
        *_listed("it lacks", {"README.md", "pyproject.toml"} - files.keys()),
        *_listed("it holds files of no commit:", package.keys() - wanted.keys()),
        *_listed("these differ from the commit:", _changed(package, wanted)),
        *_listed("it holds", beside & {*NOT_SHIPPED}),
        *_licence(files.get("LICENSE"), source),
        *_foreign(package, source),
    ]


def _imports(name: str, text: bytes) -> bool:
    found = {match[1] for match in IMPORTS.finditer(text)}
    return bool(found - ({b"pytest"} if name.startswith(PLUGIN) else set()))


def _foreign(package: Files, source: Source) -> list[str]:
    """Tests and builders in the package: by name, by what they import, and as copies."""
    elsewhere = {
        path.read_bytes(): path.relative_to(source.root).as_posix()
        for folder in NOT_SHIPPED
        for path in (source.root / folder).rglob("*.py")
        if path.stat().st_size
    }
    return [
        *_listed("it holds tests:", {name for name in package if TEST.search(name)}),
        *_listed("it holds builders:", {name for name in package if BUILDER.search(name)}),
        *_listed(
            "these import what is not shipped:",
            {name for name in package if name.endswith(".py") and _imports(name, package[name])},
        ),
        *_listed(
            "it holds copies:",
            {f"{name} of {elsewhere[text]}" for name, text in package.items() if text in elsewhere},
        ),
    ]


def _licence(text: bytes | None, source: Source) -> list[str]:
    if text is None:
        return ["it has no licence"]
    same = text == (source.root / "LICENSE").read_bytes()
    return [] if same else ["its licence is not the file LICENSE"]


def _changed(files: Files, wanted: Files) -> set[str]:
    return {name for name in files.keys() & wanted.keys() if files[name] != wanted[name]}


def _listed(what: str, names: set[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return [f"{what} {', '.join(sorted(names)[:MOST_SHOWN])}{more}"]
