"""The facts of an incident that its page shows: a small extract of a real comparison."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from canary.compare.paths import Compared
from canary.record import jsonio
from canary.record.jsonio import number
from canary.report.charts.sides import losses, sides_of


class Facts(BaseModel):
    """Facts of one file; an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Failed(Facts):
    """A check that failed, or asks for acceptance."""

    name: str
    lane: str
    message: str


class Cause(Facts):
    """The first suspect."""

    category: str
    confidence: float
    description: str
    evidence: tuple[tuple[str, str], ...]
    """(kind, message) of each."""
    actions: tuple[str, ...]


class Loss(Facts):
    """The loss of the newest current run beside those of the baseline."""

    steps: int
    """Steps that both sides have."""
    first: int | None
    """The first step outside of the baseline's range."""
    baseline: float | None
    """Final loss of the baseline, and of the current side."""
    current: float | None


class Picture(Facts):
    """A chart of the report."""

    file: str
    title: str
    finding: str


class Incident(Facts):
    """All that the page shows and nobody wrote by hand."""

    name: str
    day: str
    commit: str
    """The newest commit of the canary's package."""
    packages: dict[str, str]
    row: str
    """Id of the corpus row."""
    incident: str
    """What the row says of it, with its sources."""
    canary: str
    steps: int
    runs: int
    """Runs per side."""
    limits: str
    diff: str
    verdict: str
    first_line: str
    failed: tuple[Failed, ...]
    first_difference: str | None
    cause: Cause | None
    loss: Loss
    charts: tuple[Picture, ...]
    comment: str


def loss_of(compared: Compared) -> Loss:
    """Return how the losses of both sides differ."""
    sides = sides_of(compared)
    now, before = losses(sides.newest), [losses(run) for run in sides.baseline]
    common = [step for step in sorted(now) if any(step in one for one in before)]

    def leaves(step: int) -> bool:
        values = [one[step] for one in before if step in one]
        return not min(values) <= now[step] <= max(values)

    ends = (
        side.summary.get("final_loss") for side in (compared.found.baseline, compared.found.current)
    )
    was, end = (None if (value := number(raw)) is None else float(value) for raw in ends)
    return Loss(
        steps=len(common), first=next(filter(leaves, common), None), baseline=was, current=end
    )


def cause_of(compared: Compared) -> Cause | None:
    """Return the first suspect; None without one."""
    suspect = next(iter(compared.found.diagnosis.suspects), None)
    if suspect is None:
        return None
    return Cause(
        category=str(suspect.category),
        confidence=suspect.confidence,
        description=suspect.description,
        evidence=tuple((each.kind, each.message) for each in suspect.evidence),
        actions=suspect.suggested_actions,
    )


def failed_of(compared: Compared) -> tuple[Failed, ...]:
    """Return the checks that failed, in the comparison's order."""
    return tuple(
        Failed(name=check.name, lane=check.lane, message=check.message)
        for check in compared.found.failed_checks
    )


def write_facts(facts: Incident, path: Path) -> None:
    """Write the facts as JSON."""
    text = jsonio.dumps(facts.model_dump(mode="json"), indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def read_facts(path: Path) -> Incident:
    """Read the facts of a page.

    Raises:
        ValidationError: the file holds something else.
    """
    return Incident.model_validate(jsonio.loads(path.read_text(encoding="utf-8")))
