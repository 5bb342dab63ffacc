"""An alert: what a detector saw, at which step, and its limit. Pure.

Its values become plain data for JSON: tensors, arrays, dataclasses, sets, other objects. Attributes
are found by name, and no framework is imported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from canary.record.step_row import RowAlert

Severity = Literal["low", "medium", "high", "critical"]
SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high", "critical")
"""The mildest first."""


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


def tracked(alerts: list[Alert]) -> dict[str, float]:
    """Count the alerts of one step for trackers, by `anomaly/<category>_<severity>`."""
    found: dict[str, float] = {}
    for alert in alerts:
        name = f"anomaly/{alert.key}"
        found[name] = found.get(name, 0.0) + 1.0
    return found


MOST_ITEMS = 64
"""Longer collections are cut, with a mark."""
DEEPEST = 6
LONGEST_TEXT = 2000


def plain(value: Any, depth: int = 0) -> Any:
    """Return the value as strings, numbers, lists and dictionaries. Non-finite numbers stay: the
    writer of strict JSON names them."""
    if value is None or isinstance(value, bool | int | float):
        # Subclasses (numpy's float64, an IntEnum) become plain numbers.
        return value if type(value) in (type(None), bool, int, float) else _number(value)
    if isinstance(value, str):
        return _text(value)
    if depth >= DEEPEST:
        return words(value)
    if isinstance(value, Mapping):
        return _cut({_text(str(key)): plain(item, depth + 1) for key, item in _first(value)})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value)]
        return {name: plain(getattr(value, name, None), depth + 1) for name in names}
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        return _array(value, depth)
    if isinstance(value, list | tuple | Set):
        items = _ordered(value) if isinstance(value, Set) else value
        shown = [plain(item, depth + 1) for item in list(items)[:MOST_ITEMS]]
        return [*shown, f"... {len(value)} in all"] if len(value) > MOST_ITEMS else shown
    if hasattr(value, "item"):
        return plain_item(value, depth)
    return words(value)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, int) else float(value)


def _first(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return list(value.items())[: MOST_ITEMS + 1]


def _cut(found: dict[str, Any]) -> dict[str, Any]:
    if len(found) > MOST_ITEMS:
        found = dict(list(found.items())[:MOST_ITEMS]) | {"...": "more"}
    return found


def _ordered(value: Set[Any]) -> list[Any]:
    """Return a set's items in an order that is always the same."""
    return sorted(value, key=words)


def _array(value: Any, depth: int) -> Any:
    """Return a tensor's or array's values, or a large one's shape."""
    shape = tuple(value.shape)
    size = 1
    for length in shape:
        size *= length
    if size > MOST_ITEMS:
        return {"shape": list(shape), "dtype": str(value.dtype)}
    try:
        return plain(value.tolist(), depth + 1)
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        return words(value)  # a tensor without values (meta), or without a list form


def plain_item(value: Any, depth: int) -> Any:
    """Return another framework's scalar."""
    try:
        return plain(value.item(), depth + 1)
    except (TypeError, ValueError, RuntimeError):
        return words(value)


def words(value: Any) -> str:
    """Return a value's text, or its class if its `__str__` fails."""
    try:
        return _text(str(value))
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        return f"<{type(value).__name__}>"


def _text(value: str) -> str:
    # Half of a surrogate pair cannot be written to any file.
    text = value.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
