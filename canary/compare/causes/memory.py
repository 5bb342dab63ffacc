"""Memory: more of it held at once, or more with every step."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of_check
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.exact.growth import tensor_growth


def findings(facts: Facts) -> Iterator[Finding]:
    """A leak is exact; a larger peak is this cause's own where no other work explains it."""
    if any(record.status == "oom" for record in facts.current):
        yield Finding(
            C.MEMORY,
            0.93,
            "the training ran out of memory",
            actions=("compare batch size, lengths, precision and gradient checkpointing",),
        )
    yield from _leak(facts)
    yield from _peak(facts)


def _leak(facts: Facts) -> Iterator[Finding]:
    alive, growth = facts.rose("live_tensors"), facts.failed("memory_growth")
    found = [check for check in (alive, growth) if check is not None]
    if found:
        yield Finding(
            C.MEMORY,
            0.96 if alive is not None and alive.failed else 0.85,
            "memory grows with every step: something keeps tensors alive",
            (*map(evidence_of_check, found), *_bytes_a_step(facts)),
            (
                "keep numbers, not losses: .detach() before a tensor is stored",
                "look at lists and caches that live longer than a step",
            ),
            sign="live_tensors",
        )


def _peak(facts: Facts) -> Iterator[Finding]:
    held = facts.failed("live_memory")
    if held is not None:
        changed = facts.entry is not None  # what is learned otherwise may hold more by the way
        yield Finding(
            C.MEMORY,
            0.45 if changed else 0.93,
            "more tensors are held between two steps",
            (evidence_of_check(held),),
            ("look for a second copy of the model, and for what callbacks and caches keep",),
            sign="live_memory",
        )
        return
    peak, reserved = facts.failed("max_memory"), facts.failed("reserved_memory")
    if peak is None and reserved is None:
        return
    found = [check for check in (peak, reserved) if check is not None]
    evidence = [evidence_of_check(check) for check in found]
    was, now = (record.memory.alloc_retries or 0 for record in (facts.before, facts.now))
    if now > was:
        words = f"times the allocator gave back its cache and tried again {was} -> {now}"
        evidence.append(Evidence("signal", words, was, now))
    fragments = peak is None or now > was
    yield Finding(
        C.MEMORY,
        0.35 if facts.entry is not None else 0.85,
        "the allocator reserves more for the same peak: fragmentation, or retries"
        if fragments
        else "a step holds more memory at its peak, for the same work",
        tuple(evidence),
        (
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and look for varying lengths"
            if fragments
            else "compare optimizer, precision, batch size, lengths and gradient checkpointing",
        ),
        sign="max_memory",
    )


def _bytes_a_step(facts: Facts) -> Iterator[Evidence]:
    """What stays alive of each step, in MB."""
    sides = facts.exact(lambda exact: exact.get("memory", {}).get("live_bytes", [])[2:])
    if min(map(len, sides)) < 3:
        return
    was, now = (tensor_growth(side) / 2**20 for side in sides)
    if now > was:
        words = f"{was:.3g} -> {now:.3g} MB more alive after each step"
        yield Evidence("signal", words, was, now, "MB/step")
