"""Kernel: more or different work for the same result."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of_check, evidence_of_phase
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.operators import OperatorDifference
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C

COUNTS = ("recompiles", "host_reads", "operators", "flops", "tokens_fed")


def findings(facts: Facts) -> Iterator[Finding]:
    """More counted work per step, or longer self times if both sides were profiled."""
    counted = [check for name in COUNTS if (check := facts.rose(name)) is not None]
    if counted:
        failed = any(check.failed for check in counted)
        learned = facts.entry is not None
        strength = (0.93 if failed else 0.7) if not learned else 0.3
        if not learned and not failed and facts.slower is None:
            strength = 0.5
        yield Finding(
            C.KERNEL,
            strength,
            _what(facts),
            (
                *(evidence_of_check(check) for check in counted[:3]),
                *_phase(facts),
                *_operators(facts),
                *_memory(facts),
            ),
            _actions(facts),
            sign=_sign(facts),
        )
    elif facts.operators.source == "profiler":
        yield from _self_times(facts)


def _sign(facts: Facts) -> str:
    grown = facts.phases.grown if facts.phases else ()
    if facts.more_forwards:
        return "forwards"
    of_data = grown and all(phase.phase == "data" for phase in grown)
    return "operators_of_data" if of_data else "operators"


def _what(facts: Facts) -> str:
    if facts.rose("recompiles"):
        return "compiled code is recompiled in each step"
    cut = facts.difference("batches", "micro_batches")
    if cut is not None and facts.entry is None:
        return f"the same rows take {cut.current} micro-batches per step instead of {cut.baseline}"
    if facts.more_forwards:
        was, now = facts.forwards
        return f"each step has more forward passes: {was} -> {now}"
    reads = facts.rose("host_reads")
    if reads is not None and reads.failed and not facts.failed("operators", "flops"):
        return "Python reads more values from the device in each step, and waits for them"
    same = " for the same result" if facts.entry is None else ""
    if facts.rose("flops") and facts.failed("operators", "flops"):
        return f"each step computes more{same}"
    return f"each step calls more operators{same}"


def _actions(facts: Facts) -> tuple[str, ...]:
    if facts.entry is None and facts.difference("batches", "micro_batches"):
        return ("use fewer and larger micro-batches, as far as memory allows",)
    if facts.more_forwards:
        return (
            "look for a forward pass whose result already exists, of the reference or for a metric",
            "canary profile CURRENT --against BASELINE shows the operators by time",
        )
    reads = facts.rose("host_reads")
    if reads is not None and reads.failed:
        return (
            "keep losses and metrics on the device, and read them once per logging step",
            "look for .item(), .tolist(), print and if on a tensor",
        )
    return (
        "compare gradient checkpointing, attention implementation, compile and fused settings",
        "canary profile CURRENT --against BASELINE shows the operators by time",
    )


def _phase(facts: Facts) -> Iterator[Evidence]:
    grown = facts.grown_phase("forward", "backward", "optimizer", "generation", "logprob")
    if grown is not None:
        yield evidence_of_phase(grown)


def _operators(facts: Facts) -> Iterator[Evidence]:
    grown = [row for row in facts.operators.rows if (row.growth_calls or 0) > 0]
    grown.sort(key=lambda row: -(row.growth_calls or 0))
    if grown:
        names = ", ".join(f"{row.name} {row.growth_calls:+,.0f}" for row in grown[:3])
        yield Evidence("operators", f"calls per step: {names}", unit="calls")


def _memory(facts: Facts) -> Iterator[Evidence]:
    """Yield a drop of peak memory: with more work it means recomputation."""
    was, now = (record.memory.peak_allocated_bytes for record in (facts.before, facts.now))
    if was and now and now < 0.95 * was:
        words = f"peak device memory {was / 2**20:.0f} -> {now / 2**20:.0f} MB"
        yield Evidence("signal", words, was / 2**20, now / 2**20, "MB")


def _self_times(facts: Facts) -> Iterator[Finding]:
    """An operator takes longer for the same calls, by more than a slower machine explains."""
    growth = facts.grown_phase("forward", "backward", "optimizer", "logprob")
    rows: list[OperatorDifference] = [r for r in facts.operators.rows if r.change == "grown"]
    if growth is None or not rows or facts.entry is not None:
        return
    top = rows[0]
    yield Finding(
        C.KERNEL,
        0.7,
        f"{top.name} takes longer",
        (
            evidence_of_phase(growth),
            Evidence("operators", f"{top.name} {top.growth_ms:+.3g} ms per step", unit="ms"),
        ),
        ("compare what selects the kernels: dtype, shapes, attention backend",),
        sign=growth.phase,
    )
