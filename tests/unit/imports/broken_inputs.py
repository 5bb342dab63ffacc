"""Imports a broken input as a user would, and says where the answer is not what he may expect.

The rules stand in tests/data/imports/broken/expectations.yaml.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

BROKEN = Path(__file__).parents[2] / "data" / "imports" / "broken"
FALSE_ALARMS = ("cut", "bad", "not_finite", "repeated", "order", "encoding")
LONGEST_LINE = 2_000


@cache
def expectations() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((BROKEN / "expectations.yaml").read_text("utf-8"))
    return found


@dataclass(frozen=True)
class Answer:
    """What a user sees after `canary import`."""

    code: int
    said: str
    record: Mapping[str, Any] | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        notes = [] if self.record is None else self.record["notes"]
        return "\n".join([self.said, *notes]).lower()

    @property
    def names(self) -> dict[str, str]:
        """The source's name -> the name in the record."""
        source = (self.record or {}).get("source") or {}
        return {name: ours for ours, name in source.get("names", {}).items()}

    def values(self, name: str) -> dict[int, float]:
        """A metric by step."""
        found = {}
        for row in self.rows:
            wanted = self.names.get(name, name)
            value = row.get("rl", {}).get(wanted, row.get(wanted))
            if value is not None:
                found[row["step"]] = float(value)
        return found


Run = Callable[[list[str]], tuple[int, str, str]]
"""Runs `canary` with these arguments; returns exit code, standard output and error."""


def imported(run: Run, arguments: list[str], output: Path) -> Answer:
    code, out, err = run(["import", "-o", str(output), *arguments])
    if code:
        return Answer(code, err)
    folder = Path(out.strip().splitlines()[-1])
    record = json.loads((folder / "metrics.json").read_text("utf-8"))
    lines = (folder / "steps.jsonl").read_text("utf-8").splitlines()
    return Answer(code, err, record, [json.loads(line) for line in lines])


def answer_to(case: Mapping[str, Any], run: Run, scratch: Path) -> Answer:
    """Import a copy of an input under a neutral name."""
    path = BROKEN / case["path"]
    source = scratch / ("source" if path.is_dir() else f"source{path.suffix}")
    if not source.exists():
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, source)
        for beside in path.parent.glob(f"{path.name}-*"):  # SQLite's journals
            shutil.copy2(beside, source.with_name(f"{source.name}{beside.name[len(path.name) :]}"))
    arguments = [str(source)]
    if case.get("format"):
        arguments += ["--format", case["format"]]
    if case.get("pattern"):
        preset = scratch / "preset.yaml"
        values = {"framework": "mine", "console": [{"line": case["pattern"]}]}
        preset.write_text(yaml.safe_dump(values), "utf-8")
        arguments += ["--preset", str(preset)]
    return imported(run, arguments, scratch / "out")


def said(word: str, text: str) -> bool:
    """Whether a mention occurs: one of up to three letters must stand alone."""
    word = word.lower()
    if len(word.strip()) <= 3:
        return re.search(rf"(?<![a-z]){re.escape(word)}(?![a-z])", text) is not None
    return word in text


def words_of(mentions: list[str]) -> list[str]:
    groups = expectations()["words"]
    found: list[str] = []
    for mention in mentions:
        found += groups[mention[1:-1]] if mention.startswith("<") else [mention]
    return [str(word) for word in found]


def wrong_with(case: Mapping[str, Any], answer: Answer, control: str = "") -> list[str]:
    """Return what a user may expect and did not get. `control`: what a healthy input says."""
    allowed = {case["outcome"], *case.get("also", [])}
    wrong = [*unreadable(answer)]
    mentions = words_of(case.get("mentions", []))
    heard = [word for word in mentions if said(word, answer.text) and not said(word, control)]
    if answer.code:
        if "refused" not in allowed:
            wrong.append(f"refused: {answer.said}")
    elif allowed == {"refused"}:
        wrong.append("a record was made")
    elif "read" not in allowed and not heard:
        wrong.append(f"nothing of it was told: {answer.said}")
    if answer.code and mentions and not heard:
        wrong.append(f"refused for another reason: {answer.said}")
    if answer.record is not None:
        wrong += wrong_facts(case.get("facts", {}), answer)
    return wrong


def unreadable(answer: Answer) -> list[str]:
    wrong = []
    if "Traceback" in answer.said or "unexpected" in answer.said:
        wrong.append(f"a traceback: {answer.said}")
    if any(not char.isprintable() and char != "\n" for char in answer.said):
        wrong.append("a control character")
    if any(len(line) > LONGEST_LINE for line in answer.said.splitlines()):
        wrong.append("a very long line")
    return wrong


def wrong_facts(facts: Mapping[str, Any], answer: Answer) -> list[str]:
    wrong = []
    steps = [row["step"] for row in answer.rows]
    for key, found in (("steps", len(set(steps))), ("last_step", max(steps))):
        if key in facts and facts[key] != found:
            wrong.append(f"{key} is {found}, not {facts[key]}")
    for name, value in facts.get("last", {}).items():
        series = answer.values(name)
        if not series or not same(series[max(series)], value):
            wrong.append(f"last {name} is {series.get(max(series, default=0))}, not {value}")
    for name, by_step in facts.get("at", {}).items():
        series = answer.values(name)
        for step, value in by_step.items():
            if step not in series or not same(series[step], value):
                wrong.append(f"{name} at {step} is {series.get(step)}, not {value}")
    for name, count in facts.get("non_finite", {}).items():
        odd = sum(not math.isfinite(value) for value in answer.values(name).values())
        if odd != count:
            wrong.append(f"{odd} values of {name} are not finite, not {count}")
    for name, count in facts.get("missing", {}).items():
        gaps = len(steps) - len(answer.values(name))
        if gaps != count:
            wrong.append(f"{gaps} values of {name} are missing, not {count}")
    for name, values in facts.get("never", {}).items():
        for value in answer.values(name).values():
            if any(same(value, never) for never in values):
                wrong.append(f"{name} is {value}")
    for name in facts.get("metrics", []):
        if not answer.values(name):
            wrong.append(f"there is no {name}")
    return wrong


def same(found: float, expected: Any) -> bool:
    value = float(expected)
    if math.isnan(value):
        return math.isnan(found)
    return found == value or math.isclose(found, value, rel_tol=1e-4, abs_tol=5e-5)
