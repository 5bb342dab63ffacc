"""The files of a release: wheel and sdist of one commit, and what is checked in them."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path

from tools.release_candidate.commands import run
from tools.release_candidate.contents import (
    sdist_files,
    sdist_problems,
    wheel_files,
    wheel_problems,
)
from tools.release_candidate.outcomes import CheckFailed, Ledger
from tools.release_candidate.source import Source

SAME_TOKENIZER = "W002"
"""check-wheel-contents: equal files. The embedded model and reward model have one tokenizer."""


@dataclass(frozen=True)
class Artifacts:
    """A folder with a wheel and an sdist."""

    folder: Path
    wheel: Path
    sdist: Path


def build(tools: Path, source: Source, folder: Path, log: Path) -> Artifacts:
    """Build the sdist, and the wheel from it, as `pip install` of the sdist would."""
    shutil.rmtree(folder, ignore_errors=True)
    # Not isolated: the backend is the locked one of this environment.
    words = [tools, "-m", "build", "--no-isolation", "--outdir", folder, source.root]
    run(words, log, environ={"SOURCE_DATE_EPOCH": str(source.committed_s)})
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Artifacts(folder, wheel, sdist)


def check_artifacts(
    tools: Path, source: Source, artifacts: Artifacts, ledger: Ledger, log: Path
) -> None:
    """Check names, metadata and contents of wheel and sdist."""
    files = wheel_files(artifacts.wheel)
    size = artifacts.wheel.stat().st_size / 1e6
    told = f"{len(files)} files, {size:.1f} MB, those of canary/ in the commit and no other"
    ledger.find("wheel: contents", wheel_problems(files, source), told)
    ledger.find("sdist: contents", sdist_problems(sdist_files(artifacts.sdist), source))
    ledger.find("wheel: metadata", metadata_problems(artifacts.wheel, source))
    both = [artifacts.wheel, artifacts.sdist]
    with ledger.check("twine check --strict"):
        run([tools, "-m", "twine", "check", "--strict", *both], log)
    with ledger.check("check-wheel-contents") as outcome:
        ignored = ["--ignore", SAME_TOKENIZER]
        run([tools.parent / "check-wheel-contents", *ignored, artifacts.wheel], log)
        outcome.details = f"without {SAME_TOKENIZER}: two models have one tokenizer"
    with ledger.check("wheel: built again, same bytes"):
        again = build(tools, source, source.root.parent / "again", log)
        if sha256(again.wheel) != sha256(artifacts.wheel):
            raise CheckFailed("the second wheel differs")


def metadata_problems(wheel: Path, source: Source) -> list[str]:
    """Return what the wheel's METADATA says otherwise than the commit."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        said = message_from_bytes(archive.read(name))
    project = source.project
    wanted = {
        "Name": project["name"],
        "Version": source.version,
        "Requires-Python": project["requires-python"],
        "License-Expression": project["license"],
    }
    problems = [
        f"{key} is {said[key]!r}, not {value!r}"
        for key, value in wanted.items()
        if said[key] != value
    ]
    extras = {*said.get_all("Provides-Extra", [])}
    missing = {*project["optional-dependencies"]} ^ extras
    return [*problems, *(f"extra {name} is not in both" for name in sorted(missing))]


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
