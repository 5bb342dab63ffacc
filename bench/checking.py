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
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Asked:
    """What `canary check` said of one training."""

    statuses: dict[str, str]
    """By rule; empty if the check did not complete."""
    messages: dict[str, str]
    error: str
    seconds: float

    def of(self, status: str) -> tuple[str, ...]:
        """Return the rules with a status."""
        return tuple(name for name, found in self.statuses.items() if found == status)

    @property
    def broken(self) -> tuple[str, ...]:
        """The broken rules."""
        return self.of("broken")

    def lines(self) -> str:
        """Return one line per rule."""
        rows = [f"  {name}: {self.statuses[name]}: {self.messages[name]}" for name in self.statuses]
        return "\n".join([*rows, *([f"  {self.error}"] if self.error else [])])


def ask(place: Path, words: Sequence[str]) -> Asked:
    """Check the training of `words` (a config, or `--` and a command) in a folder.

    The answer is kept there, and the next call reads it.
    """
    kept = place / "answer.json"
    if not kept.exists():
        place.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(_run(place, words)))
    found = json.loads(kept.read_text())
    rules: list[dict[str, Any]] = found["rules"]
    return Asked(
        {one["rule"]: one["status"] for one in rules},
        {one["rule"]: one["words"] for one in rules},
        found["error"],
        found["seconds"],
    )


def _run(place: Path, words: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "canary.cli", "check", "--format", "json", "-q", "-o", "runs"]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*command, *words],
            cwd=place,
            env=os.environ
            | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        out, error = done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        out, error = "", f"not done after {LIMIT_S} s"
    try:
        rules = json.loads(out)["rules"]
    except (ValueError, KeyError):
        rules = []
    seconds = time.monotonic() - began
    return {
        "rules": rules,
        "error": "" if rules else error.strip()[-600:],
        "seconds": seconds,
    }
