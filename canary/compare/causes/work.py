"""Work, memory and time: operators, collectives, files, live tensors, phases, the host."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.row import Row
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.report import Check
from canary.compare.timing.phases import PhaseGrowth
from canary.record.jsonio import number

COUNTS = ("recompiles", "host_reads", "operators", "flops", "tokens_fed")
COMPUTING = ("forward", "backward", "optimizer", "generation", "logprob")
PYTHON = ("other", "logging", "optimizer", "forward", "backward", "logprob")
"""Phases of the training process itself."""
PROFILE = "canary profile CURRENT --against BASELINE shows the operators by time"
WORK = (
    "compare gradient checkpointing, attention implementation, compile and fused settings",
    "look for a forward pass whose result already exists, of the reference or for a metric",
    "look for .item(), .tolist(), print and if on a tensor in each step",
    PROFILE,
)
HOLDS = ("compare batch size, lengths, precision, optimizer and gradient checkpointing",)
KEPT = (
    "look at what keeps tensors from step to step: lists, caches, callbacks, losses with a graph",
    "look for a second copy of the model",
)
DISK = (
    "compare save_strategy, save_steps, logging_steps and what callbacks and trackers write",
    "look at the disk",
)
HOST = (
    "look at callbacks, hooks and threads that this change adds",
    "py-spy record -d 20 -p PID shows where Python spends its time",
)


def risen(facts: Facts, *names: str) -> list[Check]:
    """Return the counts among these that rose."""
    return [check for name in names if (check := facts.rose(name)) is not None]


def phase_of(*names: str) -> Callable[[Facts], PhaseGrowth | None]:
    """Return the condition that one of these phases grew, though no stage of learning differs."""
    return lambda facts: None if facts.entry else facts.grown_phase(*names)


def _kernel(facts: Facts) -> list[object]:
    """Return the counts that rose, with the phase, operators and memory that go with them."""
    found: list[object] = [*risen(facts, *COUNTS)[:3]]
    kept = facts.failed("live_memory") and not facts.failed(*COUNTS)
    if not found or kept:  # What failed speaks, not what rose a little beside it.
        return []
    grown = [row for row in facts.operators.rows if (row.growth_calls or 0) > 0]
    grown.sort(key=lambda row: -(row.growth_calls or 0))
    names = ", ".join(f"{row.name} {row.growth_calls:+,.0f}" for row in grown[:3])
    found.append(facts.grown_phase(*COMPUTING))
    found += [Evidence("operators", f"calls per step: {names}", unit="calls")] * bool(grown)
    return found


def _more_work(facts: Facts) -> str:
    cut = facts.difference("batches", "micro_batches")
    if facts.rose("recompiles"):
        return "compiled code is recompiled in each step"
    if cut is not None and facts.entry is None:
        return f"the same rows take {cut.current} micro-batches per step instead of {cut.baseline}"
    if facts.more_forwards:
        was, now = facts.forwards
        return f"each step has more forward passes: {was} -> {now}"
    if facts.failed("host_reads") and not facts.failed("operators", "flops"):
        return "Python reads more values from the device in each step, and waits for them"
    more = facts.rose("flops") and facts.failed("operators", "flops")
    same = " for the same result" if facts.entry is None else ""
    return f"each step {'computes more' if more else 'calls more operators'}{same}"


def _work_sign(facts: Facts) -> str:
    grown = facts.phases.grown if facts.phases else ()
    if facts.more_forwards:
        return "forwards"
    of_data = grown and all(phase.phase == "data" for phase in grown)
    return "operators_of_data" if of_data else "operators"


def _leak(facts: Facts) -> object:
    found = [facts.rose("live_tensors"), facts.failed("memory_growth")]
    return any(found) and found


def _peak(facts: Facts) -> object:
    """Return the peaks that grew, with the allocations that were tried again."""
    found = [facts.failed("max_memory"), facts.failed("reserved_memory")]
    was, now = (record.memory.alloc_retries or 0 for record in (facts.before, facts.now))
    words = f"allocations retried after the cache was freed {was} -> {now}"
    retried = [Evidence("signal", words, was, now)] * (now > was)
    return any(found) and not facts.failed("live_memory") and [*found, *retried]


GREW = 1.25
SHARE_OF_STEP = 0.05
"""Smallest growth of waiting that matters, as a share of the step."""


def _waiting(facts: Facts) -> list[Evidence]:
    """Return the growth of the time in collectives."""
    sides = [(side.ranks.get("wait_s") or {}).get("mean") for side in (facts.before, facts.now)]
    was, now = map(number, sides)
    least = SHARE_OF_STEP * facts.now.perf.step_time.mean
    if was is None or now is None or now <= GREW * was or now - was <= least:
        return []
    words = f"waiting in collectives {1e3 * was:.3g} -> {1e3 * now:.3g} ms per step"
    return [Evidence("signal", words, 1e3 * was, 1e3 * now, "ms")]


def _written(facts: Facts) -> object:
    found = risen(facts, "bytes_written", "files_written")
    return found and [*found, facts.grown_phase("checkpoint", "logging")]


def _named(*phases: str) -> Callable[[Facts], str]:
    return lambda facts: getattr(facts.grown_phase(*phases), "phase", "")


def _share(facts: Facts, name: str, words: str, least: float) -> Evidence | None:
    """Return the growth of a share of time in `record.host`, if it is large enough."""
    sides = []
    for side in (facts.baseline, facts.current):
        values = [getattr(record.host, name) for record in side]
        sides.append([100 * value for value in values if value is not None])
    if not all(sides):
        return None
    was, now = map(statistics.median, sides)
    grew = now - was >= 100 * least
    return Evidence("signal", f"{words} {was:.0f} -> {now:.0f}%", was, now, "%") if grew else None


def _same_work(facts: Facts) -> bool:
    names = ("collectives", "tokens_fed", "flops", "host_reads", "recompiles", "operators")
    return facts.entry is None and not any(check.failed for check in risen(facts, *names))


def _of_share(name: str, words: str, least: float) -> Callable[[Facts], object]:
    """Return the condition that a share of time grew while training or a phase got slower."""
    return lambda facts: (
        _same_work(facts)
        and (facts.slower or facts.grown_phase(*PYTHON) or name == "gil_contention")
        and _share(facts, name, words, least)
    )


def _slow_phase(facts: Facts) -> object:
    """Whether a phase of the process grew for the same work on the same machine."""
    elsewhere = any(not change.cosmetic for change in facts.report.environment_changes)
    return facts.grown_phase(*PYTHON) if _same_work(facts) and not elsewhere else None


_memory = partial(Row, C.MEMORY)
_host = partial(Row, C.HOST)
# fmt: off
ROWS = (
    Row(C.KERNEL, _kernel, _more_work, WORK, 0.93, _work_sign),
    _memory(lambda f: any(record.status == "oom" for record in f.current),
        "training ran out of memory", HOLDS),
    _memory(_leak, "memory grows with every step: something keeps tensors alive", KEPT, 0.96,
        "live_tensors"),
    _memory(lambda f: f.failed("live_memory"), "more tensors stay alive between steps", KEPT, 0.93,
        "live_memory"),
    _memory(_peak, "peak or reserved memory is larger for the same work", (*HOLDS,
        "look for lengths that vary from step to step"), 0.85, "max_memory"),
    Row(C.COMMUNICATION, lambda f: (more := f.rose("collectives")) and [more, *_waiting(f)],
        "the ranks communicate more often per step",
        ("count the synchronisations of gradients per update: one, or one per micro-batch?",
        "look for metrics that are gathered in every step"), 0.96, "collectives"),
    Row(C.COMMUNICATION, lambda f: not f.entry and not f.rose("collectives") and _waiting(f),
        "the ranks wait longer for each other in the same number of collectives",
        ("compare the step times of the ranks: one slow rank makes all others wait",), 0.85,
        "ranks_wait"),
    Row(C.IO, phase_of("evaluation"), "evaluation during training takes longer",
        ("compare eval_strategy, eval_steps, the evaluation dataset and its batch size",), 0.85,
        "evaluation"),
    Row(C.IO, _written, "training writes more to disk", DISK, 0.94, "files_written", group="files"),
    Row(C.IO, phase_of("checkpoint", "logging"), lambda f:
        f"{_named('checkpoint', 'logging')(f)} takes longer", DISK, 0.75, _named("checkpoint",
        "logging"), group="files"),
    Row(C.DATALOADER, lambda f: f.entry not in ("data", "batches") and f.grown_phase("data"),
        "training waits longer for its batches",
        ("profile the collator and the dataset's __getitem__", "compare dataloader_num_workers"),
        0.92, "data"),
    # The first share that grew speaks; the next ones follow from it (a held lock makes waits).
    _host(_of_share("gil_contention", "time that training may have waited for the GIL", 0.10),
        "another Python thread holds the GIL that training needs", HOST, 0.92, "gil_contention",
        group="host"),
    _host(_of_share("other_threads", "CPU time of other threads, to the computing phases", 0.20),
        "other threads of the process compute during training", HOST, 0.8, "other_threads",
        group="host"),
    _host(lambda f: not _share(f, "run_delay", "", 0.20)
        and _of_share("waiting", "time off the core", 0.10)(f),
        "training waits in phases that should compute: for a sleep, a lock or a file", HOST, 0.75,
        "waiting", group="host"),
    _host(_slow_phase, lambda f:
        f"the {_named(*PYTHON)(f)} phase takes longer for the same operators", HOST, 0.7,
        _named(*PYTHON)),
)
# fmt: on
