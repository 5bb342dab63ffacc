"""Host: Python, the GIL, callbacks, other threads, or other work on the machine."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from canary.compare.diagnosis.evidence import Finding, evidence_of_phase
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C

ACTIONS = (
    "look at callbacks, hooks and threads that this change adds",
    "py-spy record -d 20 -p PID shows where Python spends its time",
)
CPU_GREW = 1.15


@dataclass(frozen=True)
class Share:
    """A share of time in `record.host`, and the cause that its growth shows."""

    name: str
    """Field of `record.host`."""
    words: str
    grew: float
    """Smallest growth that counts, 0 to 1."""
    strength: float
    description: str


SHARES = (
    Share(
        "gil_contention",
        "time that training may have waited for the GIL",
        0.10,
        0.92,
        "another Python thread holds the GIL that training needs",
    ),
    Share(
        "other_threads",
        "CPU time of the process's other threads, relative to the computing phases",
        0.20,
        0.80,
        "other threads of the process compute during training",
    ),
    Share(
        "waiting",
        "share of the computing phases that training waited off its core",
        0.10,
        0.75,
        "training waits in phases that should compute: for a sleep, a lock or a file",
    ),
)
CROWDED = Share(
    "run_delay",
    "time that training waited for a free core",
    0.20,
    0.45,
    "other work on the machine takes the cores",
)


def findings(facts: Facts) -> Iterator[Finding]:
    """More time for the same work, in Python's phases or in all of them."""
    if facts.entry is not None or _more_work(facts):
        return
    grown = {share: found for share in (*SHARES, CROWDED) if (found := _grown(facts, share))}
    crowded = CROWDED in grown
    phase = facts.grown_phase("other", "logging", "optimizer", "forward", "backward", "logprob")
    for share in SHARES:
        # The first share that grew decides; the next ones follow from it (a held lock makes waits).
        if share in grown and (phase is not None or facts.slower or share.strength > 0.9):
            strength = share.strength * (0.6 if crowded else 1.0)
            evidence = tuple(grown.values())
            yield Finding(C.HOST, strength, share.description, evidence, ACTIONS, share.name)
            break
    # Other work on the machine, or a busier process, slows all phases alike, so none stands out.
    alike = facts.slower is not None and not (facts.phases and facts.phases.grown)
    if phase is not None:
        yield _phase(facts, phase.phase, (evidence_of_phase(phase), *_cpu(facts)), crowded)
    elif alike and crowded:
        evidence = (grown[CROWDED],)
        yield Finding(
            C.HOST, CROWDED.strength, CROWDED.description, evidence, ACTIONS, CROWDED.name
        )
    elif alike and (cpu := tuple(_cpu(facts))):
        yield Finding(
            C.HOST,
            0.4,
            "the process uses more CPU time for the same work, in every phase",
            cpu,
            ACTIONS,
            "cpu_seconds_per_step",
        )


def _phase(facts: Facts, name: str, evidence: tuple[Evidence, ...], crowded: bool) -> Finding:
    strength = {"other": 0.85, "logging": 0.55}.get(name, 0.7)
    if any(not change.cosmetic for change in facts.report.environment_changes):
        strength *= 0.4
    return Finding(
        C.HOST,
        strength * (0.7 if crowded else 1.0),
        f"the {name} phase takes longer for the same operators",
        evidence,
        ACTIONS,
        name,
    )


def _more_work(facts: Facts) -> bool:
    names = ("collectives", "tokens_fed", "flops", "host_reads", "recompiles", "operators")
    return any((check := facts.rose(name)) is not None and check.failed for name in names)


def _grown(facts: Facts, share: Share) -> Evidence | None:
    sides = []
    for side in (facts.baseline, facts.current):
        values = [getattr(record.host, share.name) for record in side]
        known = [value for value in values if value is not None]
        if not known:
            return None
        sides.append(statistics.median(known))
    was, now = sides
    if now - was < share.grew:
        return None
    words = f"{share.words} {100 * was:.0f} -> {100 * now:.0f}%"
    return Evidence("signal", words, 100 * was, 100 * now, "%")


def _cpu(facts: Facts) -> Iterator[Evidence]:
    growth = facts.phases
    if growth is None or not growth.baseline_cpu_s or growth.current_cpu_s is None:
        return
    if growth.current_cpu_s > CPU_GREW * growth.baseline_cpu_s:
        was, now = 1e3 * growth.baseline_cpu_s, 1e3 * growth.current_cpu_s
        yield Evidence("signal", f"CPU time per step {was:.3g} -> {now:.3g} ms", was, now, "ms")
