"""The container image of the candidate: built and tried with the engine that is here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tools.release_candidate.commands import run
from tools.release_candidate.outcomes import CheckFailed, Ledger
from tools.release_candidate.source import Source

NAME = "localhost/rlhf-canary:candidate"
LABEL = '{{index .Config.Labels "org.opencontainers.image.version"}}'
BUILT, TRIED = "image: built", "image: canary demo in it"


def check_image(work: Path, source: Source, base: str, ledger: Ledger, log: Path) -> None:
    """Build the image of a clone and run the demo in it; say so where there is no engine.

    `base`: another base image, or debootstrap (see scripts/build_image_rootless.sh); empty: the
    Dockerfile's.
    """
    if _answers("docker", "info"):
        build = ["docker", "build", "--tag", NAME, "--build-arg", f"VERSION={source.version}", "."]
        attempt, engine = ["bash", "scripts/try_image.sh", NAME], "docker"
    elif all(shutil.which(name) for name in ("buildah", "podman", "crun")):
        script = ["bash", "scripts/build_image_rootless.sh", "--tag", NAME]
        build = [*script, "--base", base] if base else script
        attempt, engine = [*script, "--no-build", "--run", "demo"], "podman"
    else:
        ledger.skip(BUILT, "no docker engine answers, and buildah with podman is not installed")
        ledger.skip(TRIED, "no image")
        return
    with ledger.check(BUILT) as built:
        run(build, log, cwd=work)
        label = run([engine, "image", "inspect", "--format", LABEL, NAME], log, environ=_storage())
        if label.strip() != source.version:
            raise CheckFailed(f"its label says version {label.strip()}, not {source.version}")
        built.details = f"with {engine}" + (f", on the base {base}" if base else "")
    if built.status != "ok":
        ledger.skip(TRIED, "no image")
        return
    with ledger.check(TRIED) as told:
        run(attempt, log, cwd=work)
        told.details = "read-only root, no network, any user"


def _answers(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _storage() -> dict[str, str]:
    """The storage driver that scripts/build_image_rootless.sh chooses."""
    rootless = {"STORAGE_OPTS": "overlay.mount_program=/usr/bin/fuse-overlayfs"}
    return {"STORAGE_DRIVER": "overlay", **({} if os.geteuid() == 0 else rootless)}
