"""The result of a comparison: checks, the first difference, one verdict. Pure data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypedDict

from canary.compare.diagnosis.suspects import Diagnosis, Shown
from canary.compare.exact.stages import ORDER, STAGE_OF
from canary.errors import EXIT_ERROR, EXIT_INCONCLUSIVE, EXIT_OK, EXIT_REGRESSION
from canary.record.types import RunRecord

Records = Sequence[RunRecord]
"""The records of one side."""

CheckStatus = Literal["fail", "changed", "warn", "inconclusive", "pass", "skip"]
Group = Literal["performance", "memory", "stability", "correctness"]
Lane = Literal["exact", "rule", "timing", "trend"]
Verdict = Literal["error", "regression", "changed", "inconclusive", "no-baseline", "pass"]


class OfVerdict(NamedTuple):
    """What goes with a verdict."""

    exit_code: int
    """Of a change that nobody accepted, and without `strict`."""
    mark: str


VERDICTS: dict[Verdict, OfVerdict] = {
    "error": OfVerdict(EXIT_ERROR, "💥"),
    "regression": OfVerdict(EXIT_REGRESSION, "❌"),
    "changed": OfVerdict(EXIT_REGRESSION, "🟠"),
    "inconclusive": OfVerdict(EXIT_OK, "⚪"),
    "no-baseline": OfVerdict(EXIT_OK, "🆕"),
    "pass": OfVerdict(EXIT_OK, "✅"),
}
"""The worst first."""
WORST_FIRST: tuple[Verdict, ...] = tuple(VERDICTS)
"""Of several canaries, the first in this order decides for all: fail closed."""
Unjudged = Literal["crowded", "scattered", "untimed", "stalled", "inapplicable", "unrecorded"]
"""`crowded`: other work on the machine explains the times. `scattered`: the baseline's launches
scatter more than the noise model says. `untimed`: a side ran only its look. `stalled`: one stalled
step alone makes it too slow. `inapplicable`: the check is for other trainings. `unrecorded`: no
side recorded the stage."""


class Moved(TypedDict):
    """Two numbers of a check and their difference."""

    baseline: Shown
    current: Shown
    delta: float | None
    delta_pct: float | None


class Numbers(TypedDict, total=False):
    """The fields of a check that are not in every check."""

    baseline: Shown
    current: Shown
    delta: float | None
    delta_pct: float | None
    unit: str
    interval: tuple[float, float] | None
    threshold: float | None
    detectable: float | None
    scale: str
    noise: str | None
    unjudged: Unjudged | None


@dataclass(frozen=True)
class Check:
    """One question about both sides, and its answer."""

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
    """current - baseline; infinite if the current value is not finite. For hashes and names, the
    number of items that differ."""
    delta_pct: float | None = None
    """`delta` in percent of the baseline."""
    interval: tuple[float, float] | None = None
    """Range of the change: lower end at the family's error budget, upper end one-sided at 95%."""
    threshold: float | None = None
    detectable: float | None = None
    """Smallest change that four of five such comparisons would find."""
    scale: str = "%"
    """Unit of `interval`, `threshold` and `detectable`."""
    noise: str | None = None
    """Where the noise behind the interval was measured."""
    unjudged: Unjudged | None = None
    """None if judged or skipped for another reason, and in comparisons saved before this field."""

    @property
    def failed(self) -> bool:
        """Whether this check alone makes the comparison fail."""
        return self.status in ("fail", "changed")

    @property
    def in_noise(self) -> bool:
        """Whether the interval includes zero, so that there may be no change."""
        return self.interval is not None and self.interval[0] <= 0.0 <= self.interval[1]


@dataclass(frozen=True)
class Difference:
    """One signal of the exact lane that differs between the sides."""

    stage: str
    signal: str
    baseline: Any
    current: Any
    count: int = 1
    """Items that differ."""
    relative: float | None = None
    """Share of the baseline (1 if that is 0) or of `scale`; for a sequence, the largest."""
    scale: str = ""
    """What `relative` is a share of, if not the baseline; such a difference has no percentage."""
    detail: str = ""
    """What differs, in words."""
    learned: bool = False
    """Whether it changes learning by more than the tolerance."""
    step: int | None = None
    """The first step at which it differs; None: at the first, or before it."""

    @property
    def order(self) -> int:
        """The position of its stage."""
        return ORDER.get(self.stage, len(ORDER))

    @property
    def when(self) -> tuple[int, int, int]:
        """Its place in time: settings, then learning by step and stage, then work."""
        kind = STAGE_OF[self.stage].kind
        return {"setting": 0, "work": 2}.get(kind, 1), self.step or 1, self.order

    def sentence(self) -> str:
        """In words."""
        return f"{self.stage}: {self.detail}"


@dataclass(frozen=True)
class KeyChange:
    """A config key or an environment fact that differs between the sides."""

    key: str
    baseline: Any
    current: Any
    cosmetic: bool = False
    """Cannot change what is trained or how fast."""


def stripped(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines without the space around them."""
    return tuple(line.strip() for line in lines)


@dataclass(frozen=True)
class Place:
    """A changed place that can have caused a difference."""

    kind: Literal["code", "config", "package", "file", "error"]
    """`file`: a file of the commits that is no code, such as a template or data. `error`: the line
    at which a run failed."""
    name: str
    """A path, the key of a config, or a package."""
    line: int | None = None
    """In the current file; of removed lines, the line that follows them."""
    function: str = ""
    phase: str = ""
    """In which phase of a step it ran, or `setup`."""
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    """Of an `error`, its words."""
    raised: str = ""
    """Of an `error`, the line of a library that raised it."""

    @property
    def is_move(self) -> bool:
        """Whether the same lines stand elsewhere now."""
        return stripped(self.removed) == stripped(self.added)


@dataclass(frozen=True)
class Places:
    """The changed places of a comparison, those that fit the first difference best at first."""

    ran: tuple[Place, ...] = ()
    """Of code, only what ran."""
    idle: int = 0
    """Changed places of code that did not run."""
    known: bool = False
    """Whether both sides noted the code that ran."""
    by_line: bool = False
    """Whether lines were noted; otherwise functions and modules (Python 3.11)."""
    not_run: tuple[Place, ...] = ()
    """Changed functions that did not run in the look, of files that the training loaded."""
    steps: int = 0
    """The compared steps, if both trainings ended with their looks; otherwise 0."""
    failed: Place | None = None
    """The user's line at which the current run failed."""
    hidden: bool = False
    """Whether other changed code may have run unseen: in a file that was not imported, or in one
    outside of the repository."""
    unread: tuple[str, ...] = ()
    """Changed files that few trainings read, such as prose and hidden files."""

    @property
    def code(self) -> tuple[Place, ...]:
        """The changed code that ran."""
        return tuple(place for place in self.ran if place.kind == "code")


@dataclass(frozen=True)
class RaisedAlert:
    """The worst alert of one type on the current side, and the count of the type."""

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
    """The result of a comparison: a `verdict`, and whether it `passed`."""

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
    """A person's reason for accepting a change of learning."""
    notes: tuple[str, ...] = ()
    alerts: tuple[RaisedAlert, ...] = ()
    """Alerts of the current side, the worst first."""
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    places: Places = field(default_factory=Places)
    label: str = ""
    """The label by which a person accepts it on GitHub, if the action judged."""

    def __repr__(self) -> str:
        return f"Comparison({self.verdict!r}, {self.first_line!r})"

    @property
    def passed(self) -> bool:
        """True for `pass`, and for `inconclusive` if the exact lane decided and only speed or
        memory, measured on both sides, is undecided."""
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
        """Checks that failed or need acceptance."""
        return tuple(check for check in self.checks if check.failed)

    def check(self, name: str) -> Check:
        """Return the check of that name, or raise KeyError."""
        if (found := self.find_check(name)) is None:
            raise KeyError(name)
        return found

    def find_check(self, name: str) -> Check | None:
        """Return the check of that name; None if it did not run."""
        return next((check for check in self.checks if check.name == name), None)

    def exit_code(self, strict: bool = False) -> int:
        """Return the exit code of the process; with `strict`, inconclusive is a failure."""
        if self.verdict == "inconclusive" and strict:
            return EXIT_INCONCLUSIVE
        accepted = self.verdict == "changed" and self.accepted
        return EXIT_OK if accepted else VERDICTS[self.verdict].exit_code
