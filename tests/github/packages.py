"""Packages of GitHub's own data, fetched from npm at test time at a fixed version and hash."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FETCH_TIMEOUT_S = 180


@dataclass(frozen=True)
class Package:
    """An npm package: which one, and which of its files is wanted."""

    name: str
    version: str
    integrity: str
    """As npm shows it: `npm view NAME@VERSION dist.integrity`."""
    member: str


OPENAPI = Package(
    "@octokit/openapi",
    "23.0.2",
    "sha512-pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg==",
    "package/generated/api.github.com.json",
)
"""GitHub's description of its interface."""
WEBHOOKS = Package(
    "@octokit/webhooks-examples",
    "7.6.1",
    "sha512-De6U3XB6O3DtCa7bKgCMzTHdeopqqZ6SNivMYJnK65ierKL1AnNIA0tkRYCRS7lwGT792d+Ps1WbfHlso6MynQ==",
    "package/api.github.com/index.json",
)
"""Examples of the payloads that GitHub sends."""


class Unavailable(Exception):
    """The package cannot be had here; the text says why."""


def content(package: Package, cache: Path) -> Any:
    """The wanted file of a package, read; from the cache folder where it is there already.

    Raises:
        Unavailable: no npm, no network, or not the package that was pinned.
    """
    kept = cache / f"{package.name.split('/')[-1]}-{package.version}.json"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            unpacked = _unpacked(package, Path(scratch))
            unpacked.replace(kept)
    return json.loads(kept.read_bytes())


def _unpacked(package: Package, scratch: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable(f"{package.name} cannot be fetched: there is no npm")
    command = [npm, "pack", f"{package.name}@{package.version}", "--json", "--silent"]
    try:
        done = subprocess.run(
            command, cwd=scratch, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{package.name} did not arrive in {FETCH_TIMEOUT_S} s") from None
    found = list(scratch.glob("*.tgz"))
    if done.returncode or len(found) != 1:
        said = (done.stderr.strip() or done.stdout.strip())[-300:]
        raise Unavailable(f"npm cannot fetch {package.name} {package.version}: {said}")
    if _integrity(found[0]) != package.integrity:
        raise Unavailable(f"{package.name} {package.version} is not the package that was pinned")
    wanted = scratch / "wanted"
    with tarfile.open(found[0]) as archive:
        # `extract` is safe only with `filter`, which Python has from 3.11.4 on.
        content = archive.extractfile(package.member)
        if content is None:
            raise Unavailable(f"{package.member} of {package.name} is no file")
        with content, wanted.open("wb") as copy:
            shutil.copyfileobj(content, copy)
    return wanted


def _integrity(archive: Path) -> str:
    digest = hashlib.sha512(archive.read_bytes()).digest()
    return f"sha512-{base64.b64encode(digest).decode()}"


def required() -> bool:
    """Whether a missing package is a failure: where CI is set, no test may silently be left out."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")
