"""One row of the table of causes, and how what it saw becomes evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from canary.compare.diagnosis.suspects import Evidence, RegressionCategory
from canary.compare.exact.changes import shown
from canary.compare.report import Check, Difference, KeyChange
from canary.compare.timing.phases import PhaseGrowth

if TYPE_CHECKING:
    from canary.compare.diagnosis.facts import Facts


@dataclass(frozen=True)
class Finding:
    """A row that holds."""

    category: RegressionCategory
    strength: float
    description: str
    evidence: tuple[Evidence, ...] = ()
    actions: tuple[str, ...] = ()
    sign: str = ""
    equal: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A cause: when it holds, what happened then, and what to look at."""

    category: RegressionCategory
    when: Callable[[Facts], object]
    """What shows the cause: differences, checks, phases, evidence, True; something false if it is
    not the cause."""
    says: str | Callable[[Facts], str]
    """What happened, not what usually causes it. In a text, `{f.x}` is a value of the facts and
    `{eos_labels}` a count of the batches on both sides."""
    advice: tuple[str, ...] | Callable[[Facts], tuple[str, ...]]
    """What to look at or to compute. It asks to change only what the comparison saw changed."""
    strength: float | Callable[[Facts], float] = 0.9
    """Share of such cases that are of this category: 0 to 1."""
    sign: str | Callable[[Facts], str] = ""
    """The count, phase or share of time that it rests on; empty for changes of learning."""
    equal: tuple[str, ...] = ()
    """Stages that it takes for equal; it is weak if a side did not record one."""
    group: str = ""
    """Of the rows of a group only the first that holds speaks."""

    def found(self, facts: Facts) -> Finding | None:
        """Return the finding; None if the row does not hold."""
        if not (seen := self.when(facts)):
            return None
        says = self.says if isinstance(self.says, str) else self.says(facts)
        words = says.format_map(_Values(f=facts)) if says is self.says else says
        advice = self.advice(facts) if callable(self.advice) else self.advice
        sign = self.sign(facts) if callable(self.sign) else self.sign
        strength = self.strength(facts) if callable(self.strength) else self.strength
        evidence = tuple(evidence_of(seen))
        return Finding(self.category, strength, words, evidence, advice, sign, self.equal)


class _Values(dict[str, Any]):
    def __missing__(self, name: Any) -> str:
        was, now = self["f"].exact_count(name)
        return f"{was:,} -> {now:,}"


def evidence_of(seen: object) -> Iterator[Evidence]:
    """Yield what a row saw as evidence."""
    if isinstance(seen, Evidence):
        yield seen
    elif isinstance(seen, Check):
        yield Evidence("signal", seen.message, seen.baseline, seen.current, seen.unit)
    elif isinstance(seen, Difference):
        was, now = seen.baseline, seen.current
        simple = all(isinstance(v, float | int | str) or v is None for v in (was, now))
        values = (was, now) if simple else (None, None)
        yield Evidence("first difference", seen.sentence(), *values)
    elif isinstance(seen, KeyChange):
        was, now = shown(seen.baseline), shown(seen.current)
        yield Evidence("environment", f"{seen.key} {was} -> {now}", was, now)
    elif isinstance(seen, PhaseGrowth):
        yield _of_phase(seen)
    elif isinstance(seen, Sequence) and not isinstance(seen, str):
        for one in seen:
            yield from evidence_of(one)


def _of_phase(phase: PhaseGrowth) -> Evidence:
    was, now, expected = 1e3 * phase.baseline_s, 1e3 * phase.current_s, 1e3 * phase.expected_s
    fell = phase.current_s <= max(phase.expected_s, phase.baseline_s)
    if fell and phase.baseline_cpu_s is not None:
        was, now = 1e3 * phase.baseline_cpu_s, 1e3 * (phase.current_cpu_s or 0.0)
        words = f"CPU time of {phase.phase} {was:,.3g} -> {now:,.3g} ms per step"
    else:
        words = f"{phase.phase} {was:,.4g} -> {now:,.4g} ms per step"
        words += f" (expected on this machine: {expected:,.4g})"
    return Evidence("phase", words, was, now, "ms")
