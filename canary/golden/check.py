"""Compare a run with a golden file, metric by metric and step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from canary.errors import EXIT_OK, EXIT_REGRESSION, UsageError, nearest
from canary.golden.measured import MeasuredRun
from canary.golden.model import Golden, GoldenMetric, Series
from canary.golden.schemas import SCHEMAS
from canary.golden.tolerance import Tolerance, place, ulp_words

if TYPE_CHECKING:
    from canary.golden.replay import Replayed

MOST_STEPS_NAMED = 5
OF_MEGATRON = (
    "stricter than Megatron-LM's own check, with values rounded to 5 decimals as in the file: "
    "no step is free, a nan equals nothing, and steps that the file lacks fail"
)


@dataclass(frozen=True)
class Far:
    """A step at which run and golden file differ by more than the tolerance."""

    step: int | None
    """None: the median over the steps."""
    golden: float
    value: float
    distance: float
    """In the tolerance's unit."""


@dataclass(frozen=True)
class MetricCheck:
    """One metric of the golden file, and how the run differs from it."""

    tag: str
    """The file's name of the metric."""
    name: str
    """The run's name of it."""
    tolerance: Tolerance
    steps: int
    """Steps that both sides have."""
    differing: int = 0
    """Steps beyond the tolerance."""
    first: Far | None = None
    largest: Far | None = None
    missing: tuple[int, ...] = ()
    """Steps that only the golden file has."""
    extra: tuple[int, ...] = ()
    """Steps that only the run has, or where the file says "nan"."""
    drift: float | None = None
    """The mean difference, if it is beyond its limit."""
    launch: int | None = None
    """The number of the differing launch, of a run with several."""
    decimal: bool = False
    """Whether the file rounds to decimals, so that a distance in ulp says nothing."""

    @property
    def equal(self) -> bool:
        """Whether the run gives the golden values."""
        return (
            self.steps > 0
            and not self.differing
            and not self.missing
            and not self.extra
            and self.drift is None
        )

    def sentence(self) -> str:
        """Return what differs in one sentence, without the metric's name."""
        if self.equal:
            return f"equal at {counted_steps(self.steps)} ({self.tolerance})"
        parts = [*self._values(), *self._step_sets()]
        if self.drift is not None:
            parts.append(f"the mean difference is {self.drift:.3g}, limit {self.tolerance.mean:g}")
        launch = f"launch {self.launch}: " if self.launch else ""
        return launch + "; ".join(parts or ["the run has no value of it"])

    def movement(self) -> str:
        """Return what a refresh moves in one sentence, without the metric's name."""
        first, largest, parts = self.first, self.largest, []
        if first is not None and largest is not None:
            pair = f"{first.golden!r} -> {first.value!r}, {self.apart(first)}"
            where = "the median" if first.step is None else f"first at step {first.step}"
            parts.append(f"{self.differing} of {counted_steps(self.steps)} moved, {where}: {pair}")
            if largest.step != first.step:
                parts.append(f"largest at step {largest.step}: {self.apart(largest)}")
        if self.missing:
            parts.append(f"{named_steps(self.missing)} removed")
        if self.extra:
            parts.append(f"{named_steps(self.extra)} added")
        return "; ".join(parts)

    def _values(self) -> list[str]:
        if self.first is None or self.largest is None:
            return []
        first = self.first
        pair = f"golden {first.golden!r}, run {first.value!r}, {self.apart(first)}"
        if first.step is None:
            return [f"the median differs: {pair} ({self.tolerance})"]
        where = f"{self.differing} of {counted_steps(self.steps)} ({self.tolerance})"
        found = [f"differs at {where}, first at step {first.step}: {pair}"]
        if self.largest.step != first.step:
            found.append(f"largest at step {self.largest.step}: {self.apart(self.largest)}")
        return found

    def _step_sets(self) -> list[str]:
        found = []
        if self.missing and (self.steps or self.extra):
            found.append(f"the run lacks {named_steps(self.missing)}")
        if self.extra:
            found.append(f"the golden file has no value at {named_steps(self.extra)}")
        return found

    def apart(self, far: Far) -> str:
        """Return a distance in words."""
        if not math.isfinite(far.value):
            return "not finite"
        size = abs(far.value - far.golden)
        if self.tolerance.kind == "ulp" or (self.tolerance.kind == "exact" and not self.decimal):
            dtype = self.tolerance.dtype
            ulps = abs(place(far.value, dtype) - place(far.golden, dtype))
            return f"{ulp_words(ulps)} apart ({size:.3g})"
        return f"{self.tolerance.words(far.distance)} apart"


def counted_steps(count: int) -> str:
    """Return a number of steps in words."""
    return f"{count} step{'' if count == 1 else 's'}"


def counted_metrics(count: int) -> str:
    """Return a number of metrics in words."""
    return f"{count} metric{'' if count == 1 else 's'}"


def named_steps(steps: Sequence[int]) -> str:
    """Return step numbers in words; runs of neighbours as ranges."""
    ranges: list[list[int]] = []
    for step in steps:
        if ranges and step == ranges[-1][1] + 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    words = [str(a) if a == b else f"{a}-{b}" for a, b in ranges[:MOST_STEPS_NAMED]]
    more = "" if len(ranges) <= MOST_STEPS_NAMED else " and more"
    return f"step{'' if len(steps) == 1 else 's'} {', '.join(words)}{more}"


@dataclass(frozen=True)
class Checked:
    """The answer of `canary golden check`."""

    file: str
    schema: str
    run_id: str
    metrics: tuple[MetricCheck, ...]
    notes: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()
    cause: tuple[str, ...] = ()
    """What changed since the golden values, and the likely cause; empty if equal or unknown."""
    replayed: Replayed | None = None

    @property
    def verdict(self) -> str:
        """The answer in one or two words."""
        if self.equal:
            return "equal"
        if self.replayed is None or self.replayed.verdict == "deterministic":
            return "differs"
        return self.replayed.verdict

    @property
    def equal(self) -> bool:
        """Whether every checked metric is equal; false if none was checked."""
        return bool(self.metrics) and all(one.equal for one in self.metrics)

    @property
    def exit_code(self) -> int:
        """The exit code of the process."""
        return EXIT_OK if self.equal else EXIT_REGRESSION

    @property
    def first_line(self) -> str:
        """The answer in one sentence."""
        metrics = counted_metrics(len(self.metrics))
        if self.equal:
            return f"Golden: {self.run_id} gives the {metrics} of {self.file} again."
        apart = [one.tag for one in self.metrics if not one.equal]
        verb = "differs" if len(apart) == 1 else "differ"
        words = f"Golden: {', '.join(apart)} {verb} from {self.file} in {self.run_id}"
        if self.replayed is None or self.replayed.verdict == "deterministic":
            return f"{words}."
        if self.replayed.clears_code:
            return f"{words}. That says nothing about the code: {self.replayed.sentence}."
        return f"{words}. A replay did not repeat it: {self.replayed.sentence}."

    @property
    def first_step(self) -> int | None:
        """The first step at which a value differs; None if none does at a step."""
        steps = [m.first.step for m in self.metrics if m.first and m.first.step is not None]
        return min(steps, default=None)


def compare_metric(tag: str, name: str, golden: GoldenMetric, series: Series) -> MetricCheck:
    """Compare one launch's series with a golden metric."""
    tolerance, was = golden.tolerance, golden.series.at()
    now = {step: golden.rounded(value) for step, value in series.at().items()}
    both = [step for step in was if step in now]
    extra = [step for step in now if step not in was and golden.asks_for(step)]
    found = MetricCheck(
        tag,
        name,
        tolerance,
        len(both),
        missing=tuple(step for step in was if step not in now),
        extra=tuple(extra),
        decimal=golden.decimals is not None,
    )
    if not both:
        return found
    if golden.statistic == "median":
        return _median(found, golden, Series(tuple(now), tuple(now.values())))
    apart = [Far(s, was[s], now[s], tolerance.distance(was[s], now[s])) for s in both]
    far = [one for one in apart if not tolerance.allows(one.golden, one.value)]
    return replace(
        found,
        differing=len(far),
        first=far[0] if far else None,
        largest=max(far, key=lambda one: one.distance) if far else None,
        drift=tolerance.drift([now[s] - was[s] for s in both]),
    )


def _median(found: MetricCheck, golden: GoldenMetric, series: Series) -> MetricCheck:
    was, now = golden.series.median(golden.window), series.median(golden.window)
    bad = series.not_finite()
    now = bad[1] if bad else now
    if golden.tolerance.allows(was, now):
        return found
    far = Far(None, was, now, golden.tolerance.distance(was, now))
    return replace(found, differing=found.steps, first=far, largest=far)


def check(
    run: MeasuredRun,
    golden: Golden,
    file: Path,
    wanted: Sequence[str] = (),
    tolerances: Mapping[str, Tolerance] | None = None,
) -> Checked:
    """Compare a run with a golden file.

    Args:
        run: the run; each of its measured launches must give the golden values.
        golden: the file's content.
        file: where it is.
        wanted: `NAME` or `NAME=TAG` of the metrics to check; empty: all.
        tolerances: by the file's or the run's name, instead of the file's or the schema's.

    Raises:
        UsageError: a metric or tolerance is not of the golden file.
    """
    renamed = {tag: name for name, _, tag in (one.partition("=") for one in wanted) if tag}
    names = {tag: renamed.get(tag) or name_of(run, golden.schema, tag) for tag in golden.metrics}
    asked = {tag or name for name, _, tag in (one.partition("=") for one in wanted)}
    require_known(asked, names)
    require_known(tolerances or {}, names)
    kept = {t: n for t, n in names.items() if not asked or t in asked or n in asked}
    given = tolerances or {}
    found = []
    for tag, name in kept.items():
        one = golden.metrics[tag]
        tolerance = given.get(tag) or given.get(name) or one.tolerance
        found.append(_worst(run, tag, name, replace(one, tolerance=tolerance)))
    notes = (OF_MEGATRON,) if golden.schema == "megatron" else ()
    left = tuple(tag for tag in golden.metrics if tag not in kept)
    return Checked(str(file), golden.schema, run.run_id, tuple(found), notes, left)


def _worst(run: MeasuredRun, tag: str, name: str, golden: GoldenMetric) -> MetricCheck:
    """Return the check of the first launch that differs, or of the first launch."""
    repeats = run.repeats(name)
    found = [compare_metric(tag, name, golden, series) for series in repeats]
    for number, one in enumerate(found, 1):
        if not one.equal:
            return replace(one, launch=number if len(found) > 1 else None)
    return found[0]


def name_of(run: MeasuredRun, schema: str, tag: str) -> str:
    """Return the run's name of a file's metric."""
    if schema != "canary":
        of_source = run.record.source.names if run.record.source is not None else {}
        for names in (of_source, SCHEMAS[schema].tags):
            for name, known in names.items():
                if known == tag and run.series(name).steps:
                    return name
        if not run.series(tag).steps:
            return next((n for n, t in SCHEMAS[schema].tags.items() if t == tag), tag)
    return tag


def require_known(given: Mapping[str, object] | set[str], names: Mapping[str, str]) -> None:
    """Raise UsageError for a metric that is not in `names` (the file's name -> the run's)."""
    known = {*names, *names.values()}
    for name in given:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near!r}?" if near else f"it has {', '.join(names)}"
            raise UsageError(f"the golden file has no metric {name!r}", hint)
