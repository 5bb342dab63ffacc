"""CPU time per step: it decides on a CPU where other work makes wall time too noisy to judge.

A step's wall time is work, waiting (for data, a file, a lock), and time without a free core. Other
work on the machine changes the last part most, and the kernel counts it. So CPU seconds of all
training processes are a separate gate. Wall time less the last part bounds what a noisy wall time
can hide, waiting included.

This holds for one thread per process. Threads that share an operator spin while they wait for each
other. With two threads on two busy cores, equal work took 0.59 s of CPU time per step, not 0.053
(docs/figures.md). Such runs have no gate on CPU time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from canary.compare.checks import CHECKS
from canary.compare.report import Check, Records
from canary.compare.timing.estimate import Estimate, signed_percent
from canary.compare.timing.excuses import compute_threads, crowding
from canary.compare.timing.lane import Metric, Samples, estimate, launch_seconds, time_samples
from canary.compare.timing.noise import NoiseModel

WALL = ("step_time_median", "step_time_mean", "tokens_per_sec")


def cpu_samples(metric: Metric, current: Records, baseline: Records) -> Samples | str:
    """Return logs of CPU time or of step time on a free core, in ms, or why there are none; no
    reason if a run is not of a CPU or no run measured it."""
    every = (*current, *baseline)
    on_cpu = all(record.env.get("device", {}).get("type") == "cpu" for record in every)
    if not on_cpu or not any(launch_seconds(record, metric) for record in every):
        return ""
    threads = {compute_threads(record) for record in every}
    if threads != {1}:
        words = " or ".join(str(count) for count in sorted(threads))
        return (
            f"a process has {words} compute threads, which spin while they wait for each other. "
            "CPU time is judged only with threads: 1"
        )
    was = [record for record in baseline if launch_seconds(record, metric)]
    absent = sum(not launch_seconds(record, metric) for record in current)
    if absent or not was:
        where = f"{absent} of {len(current)} current runs" if absent else "any baseline run"
        return f"not measured in {where}"
    return time_samples(metric, current, was)


def settled(
    checks: Sequence[Check],
    current: Records,
    baseline: Records,
    *,
    paired: bool,
    noise: NoiseModel | None,
) -> list[Check]:
    """Let CPU time decide for a noisy wall time, and wall time for a noisy CPU time.

    CPU time decides if step time on a free core rose by less than the tolerance: otherwise wall
    time could hide longer waiting. A slowdown that other work may explain stays undecided if the
    current side was not more crowded than the baseline. So does one that a single wall time shows
    beside other work, if another wall time and CPU time are undecided.
    """
    cpu = next((check for check in checks if check.name == "cpu_time"), None)
    open_ = [c for c in checks if c.name in WALL and c.status == "inconclusive"]
    if cpu is None or cpu.status in ("skip", "fail"):
        return list(checks)
    if cpu.status == "inconclusive":
        crowded = crowding(current, baseline)
        if open_ and crowded is not None:
            # Steps that wait or do not have two typical times: a median may be of either.
            slower = [c for c in checks if c.name in WALL and c.status in ("fail", "warn")]
            return [crowded.undecided(c) if c in slower else c for c in checks]
        judged = any(c.name in WALL and c.status in ("pass", "warn", "fail") for c in checks)
        if open_ or not judged or not cpu.in_noise:
            return list(checks)
        change = signed_percent(cpu.delta_pct or 0.0)
        why = f"CPU time per step {change} is undecided, so step time decides"
        skipped = replace(cpu, status="skip", message=why, unjudged=None)
        return [skipped if c is cpu else c for c in checks]
    samples = cpu_samples("on_core_step_time", current, baseline)
    if not open_ or isinstance(samples, str):
        return list(checks)
    crowded = crowding(current, baseline)
    still = any(check.unjudged == "crowded" for check in open_)
    if crowded is not None and not crowded.more and still:
        return list(checks)
    bound = estimate(samples, paired, noise, has_gpu=False)
    return [_bounded(c, bound, _more_tokens(checks)) if c in open_ else c for c in checks]


def _bounded(check: Check, bound: Estimate, more_tokens: float) -> Check:
    """Return the check as skipped if step time on a free core stays within the tolerance."""
    assert check.threshold is not None
    at_most = bound.upper()
    limit = math.log1p(check.threshold / 100)
    if check.name == "tokens_per_sec":
        at_most, limit = at_most - more_tokens, -limit
    if at_most >= limit:
        return check
    words = CHECKS[check.name].title
    percent = max(0.0, 100 * math.expm1(bound.upper()))
    return replace(
        check,
        status="skip",
        unjudged=None,
        message=(
            f"{words} {signed_percent(check.delta_pct or 0.0)}, too noisy to judge because of "
            f"other work on the machine. On a free core a step takes at most {percent:.1f}% longer"
        ),
    )


def _more_tokens(checks: Sequence[Check]) -> float:
    """Return the log ratio of tokens per step, from the changes of token rate and step time."""
    change = {check.name: check.delta_pct for check in checks}
    tokens = change.get("tokens_per_sec")
    step = change.get("step_time_mean", change.get("step_time_median"))
    if tokens is None or step is None:
        return 0.0
    return math.log1p(tokens / 100) + math.log1p(step / 100)
