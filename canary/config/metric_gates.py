"""The config key `metrics`: gates on any metric, each with a statistic, a direction and a limit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from canary.config.sections import Real, Strict, as_number

Statistic = Literal["mean", "median", "last", "max", "min", "area", "count", "share_above", "at"]
Worse = Literal["higher", "lower", "both"]
OF_SINGLE_STEPS: tuple[Statistic, ...] = ("last", "max", "min", "at")
"""Statistics that one step alone can move beyond any limit."""
MOST_GATES = 100
MOST_SPIKES = 10
"""More steps beyond a limit are no spikes."""
PERCENT = re.compile(r"\+?(\d{1,6}(?:\.\d{1,6})?) ?%", re.ASCII)
KNOWN_WORSE: dict[str, Worse] = {
    **dict.fromkeys(
        (
            *("loss", "grad_norm", "kl", "mismatch", "clip_fraction", "value_loss"),
            *("step_time_s", "max_memory_bytes"),
        ),
        "higher",
    ),
    **dict.fromkeys(
        ("reward", "entropy", "accuracy", "tokens_per_sec", "tokens_per_sec_per_gpu"), "lower"
    ),
}
"""The direction of the canary's own metrics, if a gate does not say it."""


def percent_in(text: str) -> float | None:
    """Return the number in `5%`; None if it has another form."""
    found = PERCENT.fullmatch(text.strip())
    return float(found[1]) if found else None


def _as_limit(value: Any) -> Any:
    value = as_number(value)
    if isinstance(value, bool) or not isinstance(value, float | int | str):
        raise PydanticCustomError("gate", "must be a number, a percentage or `history`")
    if not isinstance(value, str):
        return float(value)
    if value != "history" and percent_in(value) is None:
        raise PydanticCustomError("gate", "must be a number, a percentage such as 5%, or `history`")
    return value.replace(" ", "")


class MetricGate(Strict):
    """A limit of one metric, judged on one number of its curve."""

    name: str = Field(min_length=1, max_length=200)
    """The metric: the canary's name, or the name in the trainer or in the source."""
    statistic: Statistic = "mean"
    """The number that is judged; `area` is divided by the steps."""
    last: int | None = Field(None, ge=1)
    """Use only the last k values."""
    from_step: int | None = None
    """First step that counts; negative: from the end, -1 is the last step."""
    to_step: int | None = None
    """Last step that counts; negative: from the end."""
    step: int | None = None
    """For `at`: the step; negative: from the end."""
    of_step: int | None = None
    """Divide the statistic by the value at this step of the same run; then a limit of 0.6 is 60% of
    it."""
    above: Real | None = None
    """For `share_above`: values at or above this are counted."""
    worse: Worse | None = None
    """The bad direction; not needed for metrics that the canary knows."""
    limit: Annotated[float | str, BeforeValidator(_as_limit)] = Field()
    """A number: of the metric itself. `5%`: relative to the baseline. `history`: from the spread of
    the stored runs."""
    exclusive: bool = False
    """The limit itself fails too; for a number."""
    spikes: int = Field(1, ge=0, le=MOST_SPIKES)
    """So many single steps that alone put it beyond the limit only warn."""

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, given: Any) -> Any:
        """Fill in the direction that the name decides, so that a record's config shows it."""
        if not isinstance(given, Mapping) or given.get("worse") is not None:
            return given
        return {**given, "worse": KNOWN_WORSE.get(str(given.get("name")))}

    @model_validator(mode="after")
    def _consistent(self) -> MetricGate:
        problem = self._problem()
        if problem:
            raise PydanticCustomError("gate", "{problem}", {"problem": problem})
        return self

    def _problem(self) -> str:
        """Return why the keys do not fit together; empty if they do."""
        if not self.name.isprintable() or self.name != self.name.strip():
            return "name must be printable text without spaces around it"
        if self.worse is None:
            return "needs worse: higher, lower or both"
        if (self.step is None) == (self.statistic == "at"):
            return "statistic at needs step, and no other statistic takes it"
        if (self.above is None) == (self.statistic == "share_above"):
            return "statistic share_above needs above, and no other statistic takes it"
        if self.of_step is not None and self.statistic in ("count", "share_above"):
            return f"of_step has no meaning for {self.statistic}"
        if self.last is not None and (self.from_step is not None or self.to_step is not None):
            return "takes last, or from_step and to_step, but not both"
        if self.statistic == "at" and (self.last, self.from_step, self.to_step) != (None,) * 3:
            return "statistic at takes step alone"
        if self.exclusive and (not isinstance(self.limit, float) or self.worse == "both"):
            return "exclusive needs a limit that is a number, and worse: higher or lower"
        return ""

    @property
    def percent(self) -> float | None:
        """The limit in percent of the baseline; None if it has another kind."""
        return percent_in(self.limit) if isinstance(self.limit, str) else None

    @property
    def needs_baseline(self) -> bool:
        """Whether it compares with other runs."""
        return not isinstance(self.limit, float)

    def written(self) -> dict[str, Any]:
        """Return the keys that a person would write."""
        keys = self.model_dump(exclude_defaults=True)
        if KNOWN_WORSE.get(self.name) == self.worse:
            del keys["worse"]
        return keys


HINTS = {
    "limit": "for example limit: 1.5, limit: 5% or limit: history",
    "name": "the name of a metric, such as reward",
    "worse": "higher, lower or both",
    "metrics": "for example - {name: loss, limit: 5%}",
}
"""Key of a gate, or of all -> a remedy."""


def gate_key(key: str, gates: Any) -> str:
    """Return a gate's dotted key with the metric that it is about: `metrics.0.limit (reward)`."""
    index = key.split(".")[1] if key.count(".") else ""
    known = isinstance(gates, Sequence) and index.isdecimal() and int(index) < len(gates)
    gate = gates[int(index)] if known else None
    name = gate.get("name") if isinstance(gate, Mapping) else None
    return f"{key} ({name})" if isinstance(name, str) and name.isprintable() else key
