"""CPU time per step: what decides on a CPU where other work makes wall time too noisy to judge.

On a CPU a step's wall time is its work, its waiting (for data, a file, a lock, a sleep), and the
time in which it was ready and had no core. Other work on the machine moves the last part most, and
the kernel counts it. So the work is a gate of its own: CPU seconds of all processes that train. And
wall time without the last part bounds what a noisy wall time can hide, waiting included.

That holds for one thread in each process. Threads that compute an operator together spin while they
wait for each other: measured with two threads on two busy cores, equal work took 0.59 s of CPU time
per step instead of 0.053 (docs/figures.md). Such runs have no gate on CPU time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from canary.compare.checks import CHECKS
from canary.compare.report import Check
from canary.compare.timing.crowding import compute_threads, crowding
from canary.compare.timing.estimate import Estimate, signed_percent
from canary.compare.timing.lane import Metric, Samples, estimate, launch_seconds, time_samples
from canary.compare.timing.noise import NoiseModel
from canary.record.types import RunRecord

LEAST_BASELINES = 3
"""Of a baseline of several runs, where others are of a version that did not measure it."""
WALL = ("step_time_median", "step_time_mean", "tokens_per_sec")


def on_cpu(records: Sequence[RunRecord]) -> bool:
    """Whether all of them trained on a CPU."""
    devices = [record.env.get("device") for record in records]
    return all(isinstance(one, dict) and one.get("type") == "cpu" for one in devices)


def measures_cpu(record: RunRecord) -> bool:
    """Whether its launches have CPU time: those of older versions have none."""
    return bool(launch_seconds(record, "cpu_time"))


def cpu_samples(
    metric: Metric, current: Sequence[RunRecord], baseline: Sequence[RunRecord], paired: bool
) -> Samples | str:
    """Logs of CPU milliseconds, or of the step time on a core of its own; or why there are none."""
    threads = {compute_threads(record) for record in (*current, *baseline)}
    if threads != {1}:
        words = " and ".join(str(count) for count in sorted(threads))
        return (
            f"a process has {words} compute threads, which spin while they wait for each other: "
            "CPU time is judged only with threads: 1"
        )
    now, was = (
        [record for record in side if launch_seconds(record, metric)]
        for side in (current, baseline)
    )
    absent = "was not measured; runs of older versions lack it"
    if len(now) < len(current):
        return f"it {absent}"
    if len(was) < len(baseline) and (paired or len(was) < LEAST_BASELINES):
        return f"in {len(baseline) - len(was)} of {len(baseline)} baseline runs it {absent}"
    return time_samples(metric, now, was)


def settled(
    checks: Sequence[Check],
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord],
    *,
    paired: bool,
    noise: NoiseModel | None,
) -> list[Check]:
    """The checks, where one of CPU time and wall time decides for the other one too.

    A decided CPU time stands for a wall time that is too noisy, where the step on a core of its own
    did not get longer by the tolerance: else the wall time could hide that it waits longer. A wall
    time that is decided needs no CPU time. One that is real, and not judged because others crowded
    a side that waited no more than its baseline, stays undecided.
    """
    cpu = next((check for check in checks if check.name == "cpu_time"), None)
    open_ = [c for c in checks if c.name in WALL and c.status == "inconclusive"]
    if cpu is None or cpu.status in ("skip", "fail"):
        return list(checks)
    if cpu.status == "inconclusive":
        judged = any(c.name in WALL and c.status in ("pass", "warn", "fail") for c in checks)
        if open_ or not judged or not cpu.in_noise:
            return list(checks)
        change = signed_percent(cpu.delta_pct or 0.0)
        why = f"CPU time per step {change}: undecided; the step time decides"
        told = replace(cpu, status="skip", message=why, unjudged=None)
        return [told if c is cpu else c for c in checks]
    samples = cpu_samples("on_core_step_time", current, baseline, paired)
    if not open_ or isinstance(samples, str):
        return list(checks)
    crowded = crowding(current, baseline)
    still = any(check.unjudged == "crowded" for check in open_)
    if crowded is not None and not crowded.more and still:
        return list(checks)
    bound = estimate(samples, paired, noise, has_gpu=False)
    return [_bounded(c, bound, _more_tokens(checks)) if c in open_ else c for c in checks]


def _bounded(check: Check, bound: Estimate, more_tokens: float) -> Check:
    """The check as skipped, where the step on a core of its own is within its tolerance."""
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
            f"{words} {signed_percent(check.delta_pct or 0.0)}, too noisy to judge: other work on "
            f"the machine. On a free core a step takes at most {percent:.1f}% longer"
        ),
    )


def _more_tokens(checks: Sequence[Check]) -> float:
    """Log ratio of the tokens per step, from the checks that it sets apart."""
    change = {check.name: check.delta_pct for check in checks}
    tokens = change.get("tokens_per_sec")
    step = change.get("step_time_mean", change.get("step_time_median"))
    if tokens is None or step is None:
        return 0.0
    return math.log1p(tokens / 100) + math.log1p(step / 100)
