"""Curves: a metric over the steps of one launch, and where an imported run comes from. Pure.

A metric is named as the trainer logs it, or by one of `ROW_METRICS`. In an imported run, a metric
that the preset knows has the canary's name, and `Source.names` has the name in the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from canary.errors import nearest
from canary.record.jsonio import number
from canary.record.section import Number, Section
from canary.record.step_row import Row

if TYPE_CHECKING:
    from canary.record.types import RunRecord

ROW_METRICS = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "step_time_s": "wall_s",
    "max_memory_bytes": "peak_bytes",
}
"""Metrics that stand in a field of a row: name -> the field."""
MOST_VALUES = 100_000
"""Values of all curves of a record."""
UNKNOWN_MACHINE = "is not known, so speed is compared only by gates you wrote"
"""What is said of an imported run's machine; two unknown ones are not taken for one."""


LARGEST_STEP = 2**53
"""Beyond it a float skips whole numbers."""


class Curve(Section):
    """One metric: at `steps[i]` it is `values[i]`. A step without a value is left out."""

    steps: list[int] = Field(default_factory=list)
    values: list[Number] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_value_per_step(self) -> Curve:
        if len(self.steps) != len(self.values):
            raise ValueError("a curve has another number of steps than of values")
        if any(later <= step for step, later in zip(self.steps, self.steps[1:], strict=False)):
            raise ValueError("the steps of a curve do not rise")
        if self.steps and not (self.steps[0] >= 0 and self.steps[-1] < LARGEST_STEP):
            raise ValueError("a step of a curve is negative or too large")
        return self


class Source(Section):
    """Where an imported run was recorded."""

    format: str
    preset: str | None = None
    files: list[str] = Field(default_factory=list)
    """The files that were read, relative to what the user named."""
    names: dict[str, str] = Field(default_factory=dict)
    """The canary's name for a metric -> its name in the source."""


def curve_of(rows: Iterable[Row], name: str) -> Curve:
    """Return one launch's curve of a metric; empty if no row has it."""
    key = ROW_METRICS.get(name)
    found = [
        (row["step"], row.get("rl", {}).get(name) if key is None else row.get(key)) for row in rows
    ]
    known = [(step, float(number(value))) for step, value in found if value is not None]
    return Curve(steps=[step for step, _ in known], values=[value for _, value in known])


def curves_of(rows: Sequence[Row], names: Iterable[str]) -> dict[str, Curve]:
    """Return the curves of the named metrics that the rows have, the first of them within
    `MOST_VALUES`."""
    found: dict[str, Curve] = {}
    left = MOST_VALUES
    for name in dict.fromkeys(names):
        curve = curve_of(rows, name)
        left -= len(curve.steps)
        if left < 0:
            break
        if curve.steps:
            found[name] = curve
    return found


def ungated(record: RunRecord) -> list[str]:
    """Return a note for each gate of a run's config on a metric that the run did not record."""
    names = {} if record.source is None else record.source.names
    known = {*record.curves, *record.rl, *names, *names.values()}
    notes = []
    for name in dict.fromkeys(gated_metrics(record.config)):
        if name not in known:
            near = nearest(name, sorted(known | ROW_METRICS.keys() - {name}))
            hint = f" (did you mean '{near}'?)" if near else ""
            notes.append(f"no value of {name} was recorded: its gate cannot be judged{hint}")
    return notes


def gated_metrics(config: Mapping[str, Any]) -> list[str]:
    """Return the metrics that a run's config gates (`metrics:`)."""
    gates = config.get("metrics") or ()
    return [gate["name"] for gate in gates if isinstance(gate, Mapping) and "name" in gate]
