"""A real repository of 40 commits with faults at known places; the same hashes each time."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.integration.bisect.project import FIRST
from tests.integration.bisect.steps import STEPS, Edit, Step, Tree, replace

Fault = Literal["eos", "slow", "rate", "crash"]

COMMITS = 40
SYNTAX_ERROR, MISSING_FILE, NO_SETUP = 12, 13, 27
"""Positions of commits that do not run: a module that does not parse, data that lie elsewhere, and
a module that a setup should bring."""

BEGAN = 1_700_000_000
HOUR_S = 3600
AUTHORS = ("Ada", "Ben", "Cleo")
SLOWER_S = 0.015
"""What the slow collator adds to a step of about 45 ms."""

FAULTS: dict[Fault, tuple[Edit, ...]] = {
    # Padding is the end token, so this masks the end of each answer too.
    "eos": (replace('(batch["attention_mask"] == 0,', '(batch["input_ids"] == self.pad,'),),
    "slow": (
        replace(
            "        batch = self.padded(rows)\n",
            "        store.look_up(rows)\n        batch = self.padded(rows)\n",
        ),
        replace(
            "BATCH_S = 0.03\n",
            f"BATCH_S = 0.03\n\n\ndef look_up(rows):\n    for _ in rows:\n"
            f"        time.sleep({SLOWER_S} / len(rows))\n",
        ),
    ),
    "rate": (replace("PEAK = 5e-4\n", "PEAK = 1e-3\n"),),
    "crash": (
        replace("PEAK * min(1.0, (step + 1) / WARMUP)", "PEAK * RAMP[step]"),
        replace("WARMUP = 2\n", "WARMUP = 2\nRAMP = (0.5, 1.0)\n"),
    ),
}


@dataclass(frozen=True)
class Repository:
    """A repository and its commits by position, from 0."""

    root: Path
    commits: tuple[str, ...]

    @property
    def first(self) -> str:
        """The good end."""
        return self.commits[0]

    @property
    def last(self) -> str:
        """The bad end."""
        return self.commits[-1]

    def position(self, commit: str) -> int:
        """Where a commit stands; takes an abbreviated hash."""
        (place,) = (n for n, known in enumerate(self.commits) if known.startswith(commit))
        return place


def git(
    folder: Path, *arguments: str, given: bytes | None = None, codes: tuple[int, ...] = (0,)
) -> str:
    """Runs git without the settings of this machine; it may end with `codes`."""
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, input=given, env=environment
    )
    assert done.returncode in codes, (arguments, done.stderr.decode())
    return done.stdout.decode().strip()


def build_repository(root: Path, faults: Mapping[Fault, int] | None = None) -> Repository:
    """Makes the repository; `faults` has the position of the commit that brings each fault."""
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    git(
        root,
        "fast-import",
        "--quiet",
        f"--export-marks={root / '.git' / 'marks'}",
        given=_stream(faults or {}),
    )
    git(root, "reset", "-q", "--hard", "main")
    marks = (line.split() for line in (root / ".git" / "marks").read_text().splitlines())
    found = {int(mark[1:]) - 1: commit for mark, commit in marks}
    return Repository(root, tuple(found[position] for position in range(COMMITS)))


def parents_of(position: int) -> tuple[int, ...]:
    """The positions of a commit's parents, the first one on the main line."""
    if position == 0:
        return ()
    return STEPS[position].parents or (position - 1,)


def ancestors(position: int) -> set[int]:
    """The commit and all before it."""
    return {position}.union(*(ancestors(parent) for parent in parents_of(position)))


def tree_of(position: int, faults: Mapping[Fault, int]) -> Tree:
    """The files of a commit: all that its ancestors and it did, in order."""
    tree = dict(FIRST)
    for place in sorted(ancestors(position)):
        edits = [*STEPS[place].edits] if place else []
        edits += [edit for fault, at in faults.items() if at == place for edit in FAULTS[fault]]
        for edit in edits:
            edit(tree)
    return tree


def _stream(faults: Mapping[Fault, int]) -> bytes:
    return b"".join(_commit(position, tree_of(position, faults)) for position in range(COMMITS))


def _commit(position: int, tree: Tree) -> bytes:
    """One commit in the format of `git fast-import`."""
    message = (STEPS[position] if position else Step("Train on sums")).message
    author = AUTHORS[position % len(AUTHORS)]
    who = f"{author} <{author.lower()}@example.org> {BEGAN + HOUR_S * position} +0000"
    lines = [f"commit refs/heads/main\nmark :{position + 1}\nauthor {who}\ncommitter {who}\n"]
    lines.append(f"data {len(message.encode())}\n{message}\n")
    for place, parent in enumerate(parents_of(position)):
        lines.append(f"{'merge' if place else 'from'} :{parent + 1}\n")
    lines.append("deleteall\n")
    for path, text in sorted(tree.items()):
        lines.append(f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n")
    return "".join([*lines, "\n"]).encode()
