"""Run `canary check` on a training and read its answer, for the programs that judge it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 900


@dataclass(frozen=True)
class Asked:
    """What `canary check` said of one training."""

    statuses: dict[str, str]
    """By relation; empty if the check did not complete."""
    messages: dict[str, str]
    error: str
    seconds: float

    def of(self, status: str) -> tuple[str, ...]:
        """Return the relations with a status."""
        return tuple(name for name, found in self.statuses.items() if found == status)

    @property
    def broken(self) -> tuple[str, ...]:
        """The broken relations."""
        return self.of("broken")

    def lines(self) -> str:
        """Return one line per relation."""
        rows = [f"  {name}: {self.statuses[name]}: {self.messages[name]}" for name in self.statuses]
        return "\n".join([*rows, *([f"  {self.error}"] if self.error else [])])


def ask(place: Path, words: Sequence[str], options: Sequence[str] = ()) -> Asked:
    """Check the training of `words` (a config, or `--` and a command) in a folder.

    The answer is kept there, and the next call reads it.
    """
    kept = place / "answer.json"
    if not kept.exists():
        place.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(_run(place, words, options)))
    found = json.loads(kept.read_text())
    relations: list[dict[str, Any]] = found["relations"]
    return Asked(
        {one["relation"]: one["status"] for one in relations},
        {one["relation"]: one["message"] for one in relations},
        found["error"],
        found["seconds"],
    )


def _run(place: Path, words: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "canary.cli", "check", "--format", "json", "-q", "-o", "runs"]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*command, *options, *words],
            cwd=place,
            env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        out, error = done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        out, error = "", f"not done after {LIMIT_S} s"
    try:
        relations = json.loads(out)["relations"]
    except (ValueError, KeyError):
        relations = []
    seconds = time.monotonic() - began
    return {
        "relations": relations,
        "error": "" if relations else error.strip()[-600:],
        "seconds": seconds,
    }
