"""Imports a source as a user would, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from canary.cli import main

ROWS = [{"step": step, "loss": 2.0 - step / 20, "lr": 1e-4} for step in range(1, 21)]
LONGEST_LINE = 2_000
Run = Callable[[list[str]], tuple[int, str, str]]
"""Runs `canary` with these arguments; returns exit code, standard output and error."""


@dataclass(frozen=True)
class Answer:
    """What a user sees after `canary import`."""

    code: int
    said: str
    record: Mapping[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def values(self, name: str) -> dict[int, float]:
        """A metric by step, under the source's name."""
        names = ((self.record.get("source") or {}).get("names") or {}).items()
        wanted = next((ours for ours, theirs in names if theirs == name), name)
        found = {row["step"]: row.get("rl", {}).get(wanted, row.get(wanted)) for row in self.rows}
        return {step: float(value) for step, value in found.items() if value is not None}

    def refused(self, *words: str) -> None:
        """Check that it was refused in one clear line that says these words."""
        assert self.code == 2, self.said
        assert len(self.said.strip().splitlines()) == 1, self.said
        self.readable()
        for word in words:
            assert word in self.said, self.said

    def told(self, *words: str, steps: int | None = None) -> None:
        """Check that a record was made, and that its notes say these words."""
        assert self.code == 0, self.said
        self.readable()
        notes = "\n".join([*self.record["notes"], self.record["reason"] or ""])
        for word in words:
            assert word in notes, notes
        if steps is not None:
            assert len(self.rows) == steps

    def readable(self) -> None:
        """Check that nothing of the source harms the terminal."""
        assert "Traceback (most" not in self.said or "the training failed" in self.said
        assert "unexpected" not in self.said
        assert all(char.isprintable() or char == "\n" for char in self.said)
        assert all(len(line) < LONGEST_LINE for line in self.said.splitlines())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def called(arguments: list[str]) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        heard = capsys.readouterr()
        code = ended.value.code
        return code if isinstance(code, int) else 1, heard.out, heard.err

    return called


def imported(run: Run, source: Path, *options: str) -> Answer:
    """Import a source into a folder beside it."""
    output = source.parent / "imported"
    before = sorted(output.glob("*"))
    code, out, err = run(["import", "-o", str(output), *options, "--", str(source)])
    if code:
        assert sorted(output.glob("*")) == before
        return Answer(code, err)
    folder = Path(out.strip().splitlines()[-1])
    record = json.loads((folder / "metrics.json").read_text("utf-8"))
    lines = (folder / "steps.jsonl").read_text("utf-8").splitlines()
    return Answer(code, err, record, [json.loads(line) for line in lines])


def json_lines(rows: Iterable[Mapping[str, Any]] = ROWS) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def by_lines(at: Path) -> tuple[str, str]:
    """Return the option that reads lines such as `step 1 loss 2.0`."""
    line = r"step (?P<step>\S+) loss (?P<loss>\S+)"
    (at / "mine.yaml").write_text(f"framework: mine\nconsole: [{{line: '{line}'}}]\n")
    return "--preset", str(at / "mine.yaml")
