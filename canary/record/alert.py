"""An alert: what a detector saw, at which step, and its limit. Pure.

Its values become plain data for JSON: tensors, arrays, dataclasses, sets, other objects. Attributes
are found by name, and no framework is imported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from canary.record.step_row import RowAlert

Severity = Literal["low", "medium", "high", "critical"]
SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high", "critical")
"""The mildest first."""
WORST_FIRST = SEVERITIES[::-1]


@dataclass(frozen=True)
class Alert:
    """One anomaly. `value` was seen and `threshold` is the limit, in the unit that the message
    names. `metadata` may hold anything: values that JSON lacks are written as text."""

    severity: Severity
    category: str
    type: str
    message: str
    step: int
    value: float | None = None
    threshold: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises:
        ValueError: an unknown severity.
        """
        if self.severity not in SEVERITIES:
            known = ", ".join(SEVERITIES)
            raise ValueError(f"unknown severity {self.severity!r} of an alert: use one of {known}")

    @property
    def key(self) -> str:
        """`<category>_<severity>`, its name in trackers."""
        return f"{self.category}_{self.severity}"

    def at_least(self, severity: Severity) -> bool:
        """Return whether this alert is at least as severe as `severity`."""
        return SEVERITIES.index(self.severity) >= SEVERITIES.index(severity)

    def as_dict(self) -> RowAlert:
        """Return the alert as `alerts.jsonl` and a record hold it, with plain values."""
        return {
            "severity": self.severity,
            "category": self.category,
            "type": self.type,
            "message": self.message,
            "step": self.step,
            "value": plain(self.value),
            "threshold": plain(self.threshold),
            "metadata": plain(dict(self.metadata)),
        }


def alert_words(alert: RowAlert) -> str:
    """Return an alert as a line of text."""
    return f"{alert['severity']} {alert['type']} at step {alert['step']}: {alert['message']}"


def tracked(alerts: list[Alert]) -> dict[str, float]:
    """Count the alerts of one step for trackers, by `anomaly/<category>_<severity>`."""
    found = Counter(f"anomaly/{alert.key}" for alert in alerts)
    return {name: float(count) for name, count in found.items()}


MOST_ITEMS = 64
"""Longer collections are cut, with a mark."""
DEEPEST = 6
LONGEST_TEXT = 2000


def plain(value: Any, depth: int = 0) -> Any:
    """Return the value as strings, numbers, lists and dictionaries. Non-finite numbers stay: the
    writer of strict JSON names them. What nests too deep or has no such form becomes text."""
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return _text(value)
    # Objects of users and tensors without values may raise anything.
    with contextlib.suppress(Exception):
        return _parts(value, depth + 1) if depth < DEEPEST else _words(value)
    return f"<{type(value).__name__}>"


def _parts(value: Any, depth: int) -> Any:
    """Return a value with plain parts."""
    if isinstance(value, int | float):  # numpy's float64, an IntEnum
        return int(value) if isinstance(value, int) else float(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        items = list(value.items())[:MOST_ITEMS]
        found = {_words(key): plain(item, depth) for key, item in items}
        return found | ({"...": "more"} if len(value) > MOST_ITEMS else {})
    if math.prod(getattr(value, "shape", ())) > MOST_ITEMS:
        return {"shape": list(value.shape), "dtype": str(value.dtype)}
    if hasattr(value, "tolist"):  # of a tensor, an array, another framework's scalar
        return plain(value.tolist(), depth)
    if isinstance(value, Set):
        value = sorted(value, key=_words)  # always the same order
    if isinstance(value, list | tuple):
        shown = [plain(item, depth) for item in value[:MOST_ITEMS]]
        return [*shown, f"... {len(value)} in all"] if len(value) > MOST_ITEMS else shown
    return _words(value)


def _words(value: Any) -> str:
    return _text(str(value))


def _text(value: str) -> str:
    # Half of a surrogate pair cannot be written to any file.
    text = value.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
