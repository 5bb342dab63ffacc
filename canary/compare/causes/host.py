"""Host: Python, the GIL, callbacks, or something else on the machine."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.causes.facts import Facts, evidence_of_phase
from canary.compare.causes.finding import Finding
from canary.compare.suspects import Evidence
from canary.compare.suspects import RegressionCategory as C

ACTIONS = (
    "look at callbacks, hooks and threads that this change brings",
    "py-spy record -d 20 -p PID shows where Python spends its time",
)
CPU_GREW = 1.15
GIL_POINTS = 0.15


def findings(facts: Facts) -> Iterator[Finding]:
    """The same work and more time, in phases where Python alone runs or in all of them."""
    if facts.entry is not None or _more_work(facts):
        return
    evidence = [*_gil(facts), *_cpu(facts)]
    callback = facts.changed_code("callback", "forward", "training_step", "compute_loss")
    if callback is not None:
        evidence.append(callback.evidence())
    phase = facts.grown_phase("other", "logging", "optimizer", "forward", "backward", "logprob")
    if phase is not None:
        strength = {"other": 0.85, "logging": 0.6 if phase.stands_in_cpu else 0.5}
        elsewhere = any(not change.cosmetic for change in facts.report.environment_changes)
        yield Finding(
            C.HOST,
            strength.get(phase.phase, 0.75) * (0.4 if elsewhere else 1.0),
            f"the {phase.phase} phase takes longer for the same operators",
            (evidence_of_phase(phase), *evidence),
            ACTIONS,
        )
    elif evidence and (facts.slower is not None or _gil_grew(facts)):
        # More CPU time in every phase alike is also what a crowded machine does to a process.
        yield Finding(
            C.HOST,
            0.85 if _gil_grew(facts) else 0.4,
            "the process is busier for the same work, in every phase",
            tuple(evidence),
            ACTIONS,
        )


def _more_work(facts: Facts) -> bool:
    names = ("collectives", "tokens_fed", "flops", "host_reads", "recompiles", "operators")
    return any((check := facts.rose(name)) is not None and check.failed for name in names)


def _gil_values(facts: Facts) -> tuple[float | None, float | None]:
    was, now = (
        getattr(getattr(record, "host", None), "gil_contention", None)
        for record in (facts.before, facts.now)
    )
    return was, now


def _gil_grew(facts: Facts) -> bool:
    was, now = _gil_values(facts)
    return was is not None and now is not None and now - was > GIL_POINTS


def _gil(facts: Facts) -> Iterator[Evidence]:
    was, now = _gil_values(facts)
    if was is not None and now is not None and _gil_grew(facts):
        words = f"GIL contention {100 * was:.0f} -> {100 * now:.0f}% of the time"
        yield Evidence("signal", words, 100 * was, 100 * now, "%")


def _cpu(facts: Facts) -> Iterator[Evidence]:
    growth = facts.phases
    if growth is None or not growth.baseline_cpu_s or growth.current_cpu_s is None:
        return
    if growth.current_cpu_s > CPU_GREW * growth.baseline_cpu_s:
        was, now = 1e3 * growth.baseline_cpu_s, 1e3 * growth.current_cpu_s
        yield Evidence("signal", f"CPU time of a step {was:.3g} -> {now:.3g} ms", was, now, "ms")
