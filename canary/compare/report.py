"""What a comparison returns: checks, the first difference, and one verdict. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from canary.compare.diagnosis.suspects import Diagnosis
from canary.compare.exact.stages import ORDER
from canary.errors import EXIT_ERROR, EXIT_INCONCLUSIVE, EXIT_OK, EXIT_REGRESSION

CheckStatus = Literal["fail", "changed", "warn", "inconclusive", "pass", "skip"]
Group = Literal["performance", "memory", "stability", "correctness"]
Lane = Literal["exact", "invariant", "timing", "trend"]
Verdict = Literal["pass", "regression", "changed", "inconclusive", "no-baseline", "error"]
Unjudged = Literal["crowded", "scattered", "untimed", "inapplicable"]
"""Why no time decides: other work on the machine explains it, the baseline's launches scatter more
than the noise model says, or a side ran its probe alone."""

Shown = float | int | str | None


@dataclass(frozen=True)
class Check:
    """One question put to both sides, and its answer."""

    name: str
    group: Group
    lane: Lane
    status: CheckStatus
    message: str
    """One sentence; for a skipped check, the reason."""
    baseline: Shown = None
    current: Shown = None
    unit: str = ""
    """Unit of `baseline`, `current` and `delta`."""
    delta: float | None = None
    """current - baseline, infinite where the current side is not finite; for hashes and names, the
    number of items that differ."""
    delta_pct: float | None = None
    """The same as a share of the baseline."""
    interval: tuple[float, float] | None = None
    """The change is in here: lower end at the family's error budget, upper end one-sided at 95%."""
    threshold: float | None = None
    detectable: float | None = None
    """Smallest change that would be found in four of five such comparisons."""
    scale: str = "%"
    """Unit of `interval`, `threshold` and `detectable`."""
    noise: str | None = None
    """Where the spread behind the interval comes from."""
    unjudged: Unjudged | None = None
    """Why a check of times was left undecided on purpose, or that a check is for other trainings;
    None for every other check, and in comparisons that were saved before this field."""

    @property
    def failed(self) -> bool:
        """Whether this check alone makes the comparison fail."""
        return self.status in ("fail", "changed")

    @property
    def in_noise(self) -> bool:
        """Whether there may be no change at all: the interval includes zero."""
        return self.interval is not None and self.interval[0] <= 0.0 <= self.interval[1]


@dataclass(frozen=True)
class Difference:
    """One signal of the exact lane that is not the same on both sides."""

    stage: str
    signal: str
    baseline: Any
    current: Any
    count: int = 1
    """Items that differ."""
    relative: float | None = None
    """The difference of numbers as a share of the baseline (1 where that is 0), or on `scale`; of a
    sequence the largest."""
    scale: str = ""
    """What `relative` is a share of, in words, where that is not the baseline. A change on another
    scale has no percentage."""
    detail: str = ""
    learned: bool = False
    """Whether it is one of what is learned, beyond tolerance."""
    step: int | None = None
    """The first step at which it differs, where its stage has many; None where nobody said."""

    @property
    def order(self) -> int:
        """The place of its stage."""
        return ORDER.get(self.stage, len(ORDER))

    def sentence(self) -> str:
        """In words."""
        if self.detail:
            return f"{self.stage}: {self.detail}"
        return f"{self.stage}: {self.signal} {self.baseline} -> {self.current}"


@dataclass(frozen=True)
class KeyChange:
    """A config key or an environment fact that differs between the sides."""

    key: str
    baseline: Any
    current: Any
    cosmetic: bool = False
    """Cannot change what is trained or how fast."""


@dataclass(frozen=True)
class RaisedAlert:
    """A type of alert of the current side: the worst one, and how many there were."""

    severity: str
    category: str
    type: str
    message: str
    step: int
    value: float | None = None
    threshold: float | None = None
    count: int = 1

    def sentence(self) -> str:
        """In words."""
        more = f" ({self.count} of them)" if self.count > 1 else ""
        return f"{self.severity}: {self.type} at step {self.step}{more}: {self.message}"


@dataclass(frozen=True)
class Side:
    """One side of a comparison, as shown."""

    run_ids: tuple[str, ...]
    name: str = ""
    sha: str | None = None
    dirty: bool | None = None
    launches: int = 0
    steps: int = 0
    summary: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """The answer: a `verdict`, and beside it whether it `passed`."""

    verdict: Verdict
    first_line: str
    checks: tuple[Check, ...] = ()
    first_difference: Difference | None = None
    differences: tuple[Difference, ...] = ()
    config_changes: tuple[KeyChange, ...] = ()
    environment_changes: tuple[KeyChange, ...] = ()
    baseline: Side = field(default_factory=lambda: Side(()))
    current: Side = field(default_factory=lambda: Side(()))
    tier: str = ""
    accepted: str | None = None
    """Reason for which a change of what is learned was accepted."""
    notes: tuple[str, ...] = ()
    alerts: tuple[RaisedAlert, ...] = ()
    """What the detectors saw on the current side, the worst first."""
    diagnosis: Diagnosis = field(default_factory=Diagnosis)

    @property
    def passed(self) -> bool:
        """No check failed, and the exact lane decided: true for `pass`, and for `inconclusive`
        where speed or memory, measured on both sides, is all that is open. Never for others."""
        if self.verdict != "inconclusive":
            return self.verdict == "pass"
        decided = any(
            check.lane == "exact"
            and check.group == "correctness"
            and check.status in ("pass", "warn")
            for check in self.checks
        )
        return decided and all(
            check.lane == "timing" and check.current is not None
            for check in self.checks
            if check.status == "inconclusive"
        )

    @property
    def failed_checks(self) -> tuple[Check, ...]:
        """Checks that failed, or that need acceptance."""
        return tuple(check for check in self.checks if check.failed)

    def check(self, name: str) -> Check:
        """The check of that name.

        Raises:
            KeyError: there is none.
        """
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    def exit_code(self, strict: bool = False) -> int:
        """Exit code of the process; `strict` turns inconclusive into a failure."""
        if self.verdict == "changed":
            return EXIT_OK if self.accepted else EXIT_REGRESSION
        if self.verdict == "inconclusive":
            return EXIT_INCONCLUSIVE if strict else EXIT_OK
        codes = {"pass": EXIT_OK, "no-baseline": EXIT_OK, "regression": EXIT_REGRESSION}
        return codes.get(self.verdict, EXIT_ERROR)
