"""The tags of the release, made in a copy of the repository by the release's own scripts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tools.release_candidate.agreement import tag_problems
from tools.release_candidate.commands import run
from tools.release_candidate.outcomes import Ledger
from tools.release_candidate.source import Source

MADE_UP = f"ghcr.io/rlhf-canary/rlhf-canary@sha256:{'0' * 64}"
"""The registry gives the digest when the image is pushed."""


def clone(repository: Path, source: Source, folder: Path) -> Path:
    """Return a clone of the commit, with all tags and a bare repository as its remote."""
    remote, work = folder / "remote.git", folder / "clone"
    for words in (
        ("clone", "--quiet", "--bare", str(repository), str(remote)),
        ("clone", "--quiet", "--no-checkout", str(remote), str(work)),
        ("-C", str(work), "switch", "--quiet", "--detach", source.commit),
    ):
        subprocess.run(["git", *words], check=True, capture_output=True)
    return work


def check_tags(work: Path, source: Source, ledger: Ledger, log: Path) -> None:
    """Run the release's checks, then make its tags in the clone and read them in the remote."""
    version = source.version
    with ledger.check("release: version, earlier tags, image.txt") as told:
        run(["bash", "scripts/release_check.sh", version], log, cwd=work)
        told.details = f"v{version} may be released"
    with ledger.check("release: tags made in a copy") as told:
        run(["bash", "scripts/release_tag.sh", version, MADE_UP], log, cwd=work)
        told.details = "scripts/release_tag.sh, with a made-up digest"
    if told.status != "ok":
        ledger.skip("release: tags, action, image and package agree", "no tags were made")
        return
    problems = tag_problems(version, MADE_UP, *_read(work, source, f"v{version}"))
    moving = f"v{version.partition('.')[0]}"
    agree = f"v{version} and {moving} differ from {source.commit[:12]} in image.txt alone"
    ledger.find("release: tags, action, image and package agree", problems, agree)


def _read(work: Path, source: Source, tag: str) -> tuple[dict[str, str], dict[str, str], list[str]]:
    remote = work.parent / "remote.git"
    names = _git(remote, "tag", "--list").split()
    commits = {name: _git(remote, "rev-parse", f"{name}^{{commit}}") for name in names}
    files = {
        name: _git(remote, "show", f"{tag}:{name}") for name in ("image.txt", "canary/__init__.py")
    }
    changed = _git(remote, "diff", "--name-only", source.commit, tag).splitlines()
    return commits, files, changed


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()
