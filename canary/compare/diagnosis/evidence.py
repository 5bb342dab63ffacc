"""What the causes show for themselves: differences, checks and phases as evidence. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from canary.compare.diagnosis.suspects import Evidence, RegressionCategory
from canary.compare.report import Check, Difference
from canary.compare.timing.phases import PhaseGrowth


def evidence_of(difference: Difference) -> Evidence:
    """A difference of the exact lane as evidence."""
    was, now = difference.baseline, difference.current
    simple = all(isinstance(v, float | int | str) or v is None for v in (was, now))
    return Evidence(
        "first difference",
        difference.sentence(),
        was if simple else None,
        now if simple else None,
    )


def evidence_of_check(check: Check) -> Evidence:
    """A check that failed, as evidence."""
    return Evidence("signal", check.message, check.baseline, check.current, check.unit)


def evidence_of_phase(phase: PhaseGrowth) -> Evidence:
    """A phase that grew, as evidence."""
    was, now, expected = 1e3 * phase.baseline_s, 1e3 * phase.current_s, 1e3 * phase.expected_s
    fell = phase.current_s <= max(phase.expected_s, phase.baseline_s)
    if fell and phase.baseline_cpu_s is not None:
        was, now = 1e3 * phase.baseline_cpu_s, 1e3 * (phase.current_cpu_s or 0.0)
        words = f"CPU time of {phase.phase} {was:,.3g} -> {now:,.3g} ms per step"
        return Evidence("phase", words, was, now, "ms")
    words = (
        f"{phase.phase} {was:,.4g} -> {now:,.4g} ms per step, where {expected:,.4g} was to be "
        "expected of this machine"
    )
    return Evidence("phase", words, was, now, "ms")


@dataclass(frozen=True)
class Finding:
    """One reason to suspect a mechanism."""

    category: RegressionCategory
    strength: float
    """How often a case that looks like this is of this category, rivals aside: 0 to 1."""
    description: str
    """One sentence: what happened."""
    evidence: tuple[Evidence, ...] = ()
    actions: tuple[str, ...] = ()
    """What to do, the first thing first."""
    sign: str = ""
    """The count, phase or share of time that it rests on, by a name of `chains.FOLLOWS`; empty for
    what is learned, and for settings."""
    equal: tuple[str, ...] = ()
    """Stages that it takes to be equal: it is weaker where a side did not record one."""

    def __post_init__(self) -> None:
        """Raises:
        ValueError: a strength that is no share.
        """
        if not 0.0 <= self.strength <= 1.0:
            raise ValueError(f"the strength of a finding is a share, 0 to 1, not {self.strength}")
