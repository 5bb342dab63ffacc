"""The text of a finished run for the terminal, and its exit code."""

from __future__ import annotations

from pathlib import Path

from canary.errors import EXIT_ERROR, EXIT_OK, EXIT_USAGE, counted
from canary.protocol.job import Result
from canary.record.alert import WORST_FIRST, alert_words
from canary.record.bottlenecks import one_line
from canary.record.digits import significant
from canary.record.end_loss import end_loss_words
from canary.record.host import typical_cpu_s_per_step
from canary.record.phases import is_online, phases_of_launches, shown_phases, typical_phases
from canary.record.summary import MIN_STEPS, NOT_TRAINING, more_steps, untimed_steps
from canary.record.types import RunRecord
from canary.runner.display.figures import shown_metrics

LOG_LINES = 40
SHOWN_ALERTS = 5


def exit_code(result: Result) -> int:
    """Return 0 for completed, 2 for a wrong config or input, 4 for anything else."""
    if result.status == "completed":
        return EXIT_OK
    return EXIT_USAGE if result.usage_error else EXIT_ERROR


def failure_text(result: Result, run_dir: Path, verbose: bool) -> str:
    """Return one line: status, reason, remedy, log. `verbose` adds the end of the log."""
    log = run_dir / "log.txt"
    hints = [*filter(None, [result.hint]), *([f"see {log}"] if result.see_log else [])]
    hint = f" ({'; '.join(hints)})" if hints else ""
    text = f"canary: {result.status}: {result.reason}{hint}"
    if verbose and log.exists():
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        text += "\n" + "\n".join(lines[-LOG_LINES:])
    return text


def outcome_text(record: RunRecord) -> str:
    """Return a few lines: step time, rates, utilisation, memory, loss, phases, exact signals ..."""
    perf, stability = record.perf, record.stability
    time_ = perf.step_time
    lines = [f"completed in {record.duration_seconds:.1f} s"]
    if time_.count:
        median, mean, p95 = (
            significant(1000 * seconds) for seconds in (time_.median, time_.mean, time_.p95)
        )
        lines.append(f"  step time   {median} ms median, {mean} mean, {p95} p95 {_timed(record)}")
    else:
        why = record.unmeasured.get("perf.step_time", "no step was timed")
        lines.append(f"  step time   {why}")
    lines += _line("throughput", throughput_words(record) or _no_samples(record))
    lines += _line("utilisation", utilisation_words(record))
    if perf.max_mem_mb is not None:
        lines.append(f"  memory      {perf.max_mem_mb:,.0f} MB peak ({perf.max_mem_kind})")
    if loss := end_loss_words(record):
        lines.append(f"  final loss  {loss}, {stability.nan_steps} NaN, {stability.inf_steps} Inf")
    means = {name: sample.mean for name, sample in record.rl.items() if sample.count}
    shown = [f"{name} {mean:.3g}" for name, mean in shown_metrics(means).items()]
    lines += _line("metrics", [*shown[:-1], f"{shown[-1]} (means after warm-up)"] if shown else [])
    lines += _line("phases", [phases_words(record)] if time_.count and record.phases else [])
    if "by_rank" in record.ranks:
        lines.append(f"  ranks       {ranks_line(record)}")
    lines.append(f"  exact       {exact_line(record)}")
    lines += alert_lines(record)
    if steps := record.profiler.steps:
        which = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
        lines.append(f"  profile     {which}, not timed; canary profile shows them")
    lines += [f"  {one.severity:<11} {one_line(one)}" for one in record.bottlenecks or []]
    told = not time_.count and "perf.step_time" in record.unmeasured
    if time_.count < MIN_STEPS and not told and not record.config.get("exact"):
        few = f"{counted(time_.count, 'step')} timed after warm-up, a comparison needs {MIN_STEPS}"
        lines.append(f"  note        {few}; {more_steps(record)}")
    lines += [f"  note        {note}" for note in record.notes]
    return "\n".join(lines)


def _timed(record: RunRecord) -> str:
    """Return over how many steps times are, and how many first steps they leave out."""
    count, untimed = record.perf.step_time.count, untimed_steps(record)
    launches = of_each = ""
    if len(record.launches) > 1:
        launches, of_each = f" of {len(record.launches)} launches", " of each"
    without = f", without the first {untimed}{of_each}" if untimed else ""
    return f"over {counted(count, 'step')}{launches}{without}"


def _line(name: str, words: list[str]) -> list[str]:
    return [f"  {name:<11} {', '.join(words)}"] if words else []


def phases_words(record: RunRecord) -> str:
    """Return the shares of a typical step, as the report shows them. Rare phases have their
    mean."""
    typical = shown_phases(typical_phases(phases_of_launches([record])))
    whole, shares = sum(typical.values()), sorted(typical.items(), key=lambda item: -item[1])
    words = [f"{name} {100 * seconds / whole:.0f}%" for name, seconds in shares]
    seldom = [
        f"{name} {1000 * record.phases[name]:.3g} ms per step on average"
        for name in NOT_TRAINING
        if record.phases.get(name) and name not in typical
    ]
    return "; ".join(filter(None, ("  ".join(words), *seldom)))


def _no_samples(record: RunRecord) -> list[str]:
    """Return why there is no rate. Empty if no step was timed: the line above says it."""
    why = record.unmeasured.get("perf.samples_per_sec")
    return [f"not measured: {why}"] if why and record.perf.step_time.count else []


def throughput_words(record: RunRecord) -> list[str]:
    """Return samples and tokens per second, for online trainers also completion tokens."""
    perf = record.perf
    each = perf.seconds_per_completion_token
    rates = (
        ("samples", perf.samples_per_sec),
        ("tokens", perf.approx_tokens_per_sec),
        ("completion tokens", 1 / each if each and is_online(record.phases) else None),
    )
    return [f"{rate:,.{int(rate < 100)}f} {what}/s" for what, rate in rates if rate]


def utilisation_words(record: RunRecord) -> list[str]:
    """Return the use of CPU, GPU and Python's GIL, as far as it was measured."""
    host, cores = record.host, record.env.get("cpu_usable")
    words = []
    if host.cpu_utilization_of_cores is not None:
        words.append(f"CPU {host.cpu_utilization_of_cores:.0f}% of {cores} cores")
    cpu_s = typical_cpu_s_per_step(record)
    if cpu_s is not None:
        words.append(f"{1000 * cpu_s:.1f} ms of CPU per step")
    if record.perf.gpu_utilization_avg is not None:
        words.append(f"GPU {record.perf.gpu_utilization_avg:.0f}%")
    if host.gil_contention is not None:
        words.append(f"GIL contention at most {100 * host.gil_contention:.0f}%")
    return words


def alert_lines(record: RunRecord) -> list[str]:
    """Return the number of alerts, and the worst of them."""
    summary = record.alert_summary
    if summary is None or not summary.total:
        return []
    counts = ", ".join(f"{count} {name}" for name, count in summary.by_severity.items())
    worst = sorted(record.alerts, key=lambda alert: WORST_FIRST.index(alert["severity"]))
    lines = [f"  alerts      {counts} (alerts.jsonl)"]
    return lines + [f"              {alert_words(alert)}" for alert in worst[:SHOWN_ALERTS]]


def ranks_line(record: RunRecord) -> str:
    """Return how the ranks shared the work, in one line."""
    found = record.ranks
    slowest = max(found["slowest_steps"], key=lambda rank: found["slowest_steps"][rank])
    steps = sum(found["slowest_steps"].values())
    parts = [
        f"{found.get('world_size', len(found['by_rank']))}",
        f"imbalance {100 * found['imbalance']['mean']:.0f}%",
        f"rank {slowest} slowest in {found['slowest_steps'][slowest]} of {steps} steps",
    ]
    if found["collectives_per_step"] is not None:
        parts.append(f"{found['collectives_per_step']:.0f} collectives per step")
    parts.append(f"{1000 * found['wait_s']['mean']:.1f} ms waiting in them")
    return ", ".join(parts)


def exact_line(record: RunRecord) -> str:
    """Return the size of the exact signals, in one line."""
    exact = record.exact
    if not exact and record.source is not None:
        return record.unmeasured.get("exact", "the run was imported")
    if not exact:
        return "no look: learning and work cannot be compared exactly"
    work = exact.get("work", {})
    tensors = exact.get("model", {}).get("trainable_tensors", 0)
    parts = [f"{exact['steps']} steps", f"{tensors} trainable tensors"]
    if work:
        parts.append(f"{work['operator_total']:,} operators and {work['flops']:,} FLOPs per step")
    return ", ".join(parts)
