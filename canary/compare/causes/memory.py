"""Memory: a larger peak, or growth with every step."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of_check
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.exact.counts import tensor_growth


def findings(facts: Facts) -> Iterator[Finding]:
    """Out of memory, a leak (exact), or a larger peak that no other work explains."""
    if any(record.status == "oom" for record in facts.current):
        yield Finding(
            C.MEMORY,
            0.93,
            "training ran out of memory",
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
            (*map(evidence_of_check, found), *_bytes_per_step(facts)),
            (
                "store numbers, not losses: call .detach() before you store a tensor",
                "look at lists and caches that live longer than a step",
            ),
            sign="live_tensors",
        )


def _peak(facts: Facts) -> Iterator[Finding]:
    held = facts.failed("live_memory")
    if held is not None:
        changed = facts.entry is not None  # a change of learning may hold more tensors as well
        yield Finding(
            C.MEMORY,
            0.45 if changed else 0.93,
            "more tensors stay alive between steps",
            (evidence_of_check(held),),
            ("look for a second copy of the model, and for tensors in callbacks and caches",),
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
        words = f"allocations retried after the cache was freed {was} -> {now}"
        evidence.append(Evidence("signal", words, was, now))
    fragments = peak is None or now > was
    yield Finding(
        C.MEMORY,
        0.35 if facts.entry is not None else 0.85,
        "the allocator reserves more memory for the same peak: fragmentation or retries"
        if fragments
        else "peak memory is larger for the same work",
        tuple(evidence),
        (
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and look for varying lengths"
            if fragments
            else "compare optimizer, precision, batch size, lengths and gradient checkpointing",
        ),
        sign="max_memory",
    )


def _bytes_per_step(facts: Facts) -> Iterator[Evidence]:
    """Yield the growth of live tensors per step, in MB."""
    sides = facts.exact(lambda exact: exact.get("memory", {}).get("live_bytes", [])[2:])
    if min(map(len, sides)) < 3:
        return
    was, now = (tensor_growth(side) / 2**20 for side in sides)
    if now > was:
        words = f"live tensors grow by {was:.3g} -> {now:.3g} MB per step"
        yield Evidence("signal", words, was, now, "MB/step")
