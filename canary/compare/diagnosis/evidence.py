"""Turn differences, checks and phases into evidence for a cause. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from canary.compare.diagnosis.suspects import Evidence, RegressionCategory
from canary.compare.report import Check, Difference
from canary.compare.timing.phases import PhaseGrowth


def evidence_of(difference: Difference) -> Evidence:
    """Return a difference of the exact lane as evidence."""
    was, now = difference.baseline, difference.current
    simple = all(isinstance(v, float | int | str) or v is None for v in (was, now))
    return Evidence(
        "first difference",
        difference.sentence(),
        was if simple else None,
        now if simple else None,
    )


def evidence_of_check(check: Check) -> Evidence:
    """Return a failed check as evidence."""
    return Evidence("signal", check.message, check.baseline, check.current, check.unit)


def evidence_of_phase(phase: PhaseGrowth) -> Evidence:
    """Return a phase that grew as evidence."""
    was, now, expected = 1e3 * phase.baseline_s, 1e3 * phase.current_s, 1e3 * phase.expected_s
    fell = phase.current_s <= max(phase.expected_s, phase.baseline_s)
    if fell and phase.baseline_cpu_s is not None:
        was, now = 1e3 * phase.baseline_cpu_s, 1e3 * (phase.current_cpu_s or 0.0)
        words = f"CPU time of {phase.phase} {was:,.3g} -> {now:,.3g} ms per step"
        return Evidence("phase", words, was, now, "ms")
    words = f"{phase.phase} {was:,.4g} -> {now:,.4g} ms per step"
    words += f" (expected on this machine: {expected:,.4g})"
    return Evidence("phase", words, was, now, "ms")


@dataclass(frozen=True)
class Finding:
    """One reason to suspect a mechanism."""

    category: RegressionCategory
    strength: float
    """Share of such cases that are of this category, without rivals: 0 to 1."""
    description: str
    """One sentence: what happened."""
    evidence: tuple[Evidence, ...] = ()
    actions: tuple[str, ...] = ()
    """What to do, the most useful first."""
    sign: str = ""
    """The count, phase or share of time that it rests on, as named in `chains.FOLLOWS`; empty for
    changes of learning and for settings."""
    equal: tuple[str, ...] = ()
    """Stages assumed equal; the finding is weaker if a side did not record one."""

    def __post_init__(self) -> None:
        """Raise ValueError if the strength is not a share."""
        if not 0.0 <= self.strength <= 1.0:
            raise ValueError(f"strength of a finding must be 0 to 1, got {self.strength}")
