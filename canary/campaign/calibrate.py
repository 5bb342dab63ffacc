"""`canary calibrate` and `canary baseline bootstrap`: run one canary many times, to measure its
noise or to begin its history."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from canary.baseline.branch import BRANCH, Remote, push
from canary.baseline.comparability import machine_key, machine_words, why_not_timed
from canary.baseline.history import NOISE_FILE, drawer
from canary.baseline.origin import Surroundings, remote_of
from canary.baseline.verbs import pulled, push_runs, require_allowed
from canary.campaign.side import completed_run
from canary.compare.exact.lane import all_differences
from canary.compare.timing.cpu_time import cpu_samples
from canary.compare.timing.estimate import Spread, larger, paired_estimate, unpaired_estimate
from canary.compare.timing.lane import DRIFTS, FAMILY_BUDGET, FLOORS, GATE_WEIGHTS, Metric, Samples
from canary.compare.timing.noise import NoiseModel, metric_noise, save_noise
from canary.config.load import LoadedConfig
from canary.errors import CanaryError, InputError, UsageError, counted, writing
from canary.record.types import RunRecord
from canary.report.inline import Inline
from canary.runner.warm import warm_starts

FEWEST_RUNS = 4
PAIR_COUNTS = (1, 3, 5, 8)
HISTORY = 20
GATED: tuple[Metric, ...] = tuple(metric for metric in GATE_WEIGHTS if metric not in DRIFTS)
WORDS = {
    "step_time_median": ("step time, median", "ms"),
    "step_time_mean": ("step time, mean", "ms"),
    "cpu_time": ("CPU time per step", "ms"),
    "on_core_step_time": ("step time, free core", "ms"),
    "max_memory": ("peak memory", "MB"),
    "tokens_per_sec": ("tokens per second", ""),
    "startup": ("start-up", "s"),
}


@dataclass(frozen=True)
class Calibration:
    """A noise model and the values that it was computed from."""

    model: NoiseModel
    values: dict[str, list[float]]
    machine: str
    looked: bool
    """Whether the runs have exact signals."""

    def __repr__(self) -> str:
        return f"Calibration({title_of(self)!r})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        shown = Inline(
            title_of(self),
            " ".join(map(str.strip, exact_lines(self))),
            headings=HEADINGS,
            rows=tuple((*row, *("-",) * (len(HEADINGS) - len(row))) for row in table_rows(self)),
            more=LEGEND,
        )
        return shown._repr_html_()


@warm_starts()
def calibrate(
    loaded: LoadedConfig,
    runs: int,
    output_dir: Path | None,
    say: Callable[[str], None],
) -> tuple[Calibration, list[RunRecord]]:
    """Run one canary `runs` times and measure its noise.

    Raises:
        UsageError: `runs` is too small.
        InputError: config, model or data cannot be used, or an imported run has no step times.
        RunFailed: a run did not complete; the runs that did could be a biased sample.
    """
    if runs < FEWEST_RUNS:
        raise UsageError(f"-n must be {FEWEST_RUNS} or more, got {runs}", "use 10")
    records = []
    for number in range(1, runs + 1):
        record, _ = completed_run(loaded, output_dir)
        if why := why_not_timed([record]):
            raise InputError(f"nothing to calibrate: {why}", "name its step time in a preset")
        records.append(record)
        logs = [math.log(one.perf.step_time.median) for one in records]
        say(
            f"run {number}/{runs}  {1000 * record.perf.step_time.median:.1f} ms per step"
            + (f", spread so far {100 * statistics.stdev(logs):.1f}%" if number > 1 else "")
        )
    return calibration(records), records


def calibration(records: Sequence[RunRecord]) -> Calibration:
    """Compute the noise of equal runs, given in the order in which they ran."""
    values = {
        name: found
        for name in WORDS
        if len(found := [v for r in records if (v := _value(r, name)) is not None]) == len(records)
    }
    noise = {name: metric_noise([math.log(v) for v in found]) for name, found in values.items()}
    model = NoiseModel(
        canary=records[-1].name,
        machine_key=machine_key(records[-1]),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        runs=len(records),
        metrics=noise,
        inexact=inexact(records),
    )
    gated = [name for name in GATED if name in values]
    total_weight = sum(GATE_WEIGHTS[name] for name in gated)
    detectable: dict[str, dict[str, float]] = {}
    for name in gated:
        kind, alpha = _kind(records[-1], name), FAMILY_BUDGET * GATE_WEIGHTS[name] / total_weight
        detectable[name] = {str(n): smallest(model, name, kind, alpha, n) for n in PAIR_COUNTS}
        detectable[name]["history"] = smallest(model, name, kind, alpha, 1, HISTORY)
    model = model.model_copy(update={"detectable_pct": detectable})
    looked = any(record.exact for record in records)
    return Calibration(model, values, machine_words(records[-1]), looked)


def _value(record: RunRecord, name: str) -> float | None:
    perf = record.perf
    value = {
        "step_time_median": 1000 * perf.step_time.median,
        "step_time_mean": 1000 * perf.step_time.mean,
        "max_memory": perf.max_mem_mb,
        "tokens_per_sec": perf.approx_tokens_per_sec,
        "startup": sum(perf.startup_seconds.values()),
        "cpu_time": _milliseconds(record, "cpu_time"),
        "on_core_step_time": _milliseconds(record, "on_core_step_time"),
    }[name]
    return value if value and value > 0 else None


def _milliseconds(record: RunRecord, metric: Metric) -> float | None:
    """Mean of the launches; None if threads spin, because then CPU time is not a gate."""
    found = cpu_samples(metric, [record], [record])
    return found.scale(found.current) if isinstance(found, Samples) else None


def _kind(record: RunRecord, name: str) -> str:
    if name == "max_memory":
        return f"{record.perf.max_mem_kind}_memory"
    return "cpu_time" if name == "cpu_time" else "step_time"


def smallest(
    model: NoiseModel,
    name: str,
    kind: str,
    alpha: float,
    current: int,
    baseline: int | None = None,
) -> float:
    """Return the smallest change, in percent, that 4 of 5 comparisons find at error level `alpha`:
    comparisons of `current` pairs, or of `current` runs with a history of `baseline` runs."""
    floor = FLOORS[kind]
    if baseline is None:
        spread = _floored(model.pair_spread(name), math.sqrt(2) * floor)
        found = paired_estimate([0.0] * current, spread)
    else:
        spread = _floored(model.run_spread(name), floor)
        found = unpaired_estimate([0.0] * current, [0.0] * baseline, spread)
    return 100 * math.expm1(found.detectable(alpha))


def _floored(spread: Spread | None, floor: float) -> Spread:
    found = larger(None, spread, floor)
    assert found is not None
    return found


def inexact(records: Sequence[RunRecord]) -> dict[str, float]:
    """Return the exact signals that differ between equal runs, with their largest relative
    difference; 1.0 for signals that are not numbers."""
    looked = [record for record in records if record.exact]
    seen: dict[str, float] = {}
    for record in looked[1:]:
        for found in all_differences(looked[0], record):
            key = f"{found.stage}.{found.signal}"
            size = found.relative if found.relative is not None else 1.0
            seen[key] = max(seen.get(key, 0.0), min(size, 1.0))
    return seen


def keep(made: Calibration, file: Path | None, history: Path | None, record: RunRecord) -> Path:
    """Write the noise model to a file, to the folder of its canary in a history, or to both.

    Raises:
        MachineError: the model cannot be written.
    """
    places = [file] if file else []
    if history is not None:
        places.append(drawer(history, record) / NOISE_FILE)
    for place in places:
        with writing(place, "choose another place with -o"):
            save_noise(made.model, place)
    return places[-1]


LEGEND = (
    "Spread: relative standard deviation of one run. The columns after it: the smallest change "
    "that 4 of 5 comparisons find."
)
HEADINGS = (
    "metric",
    "typical",
    "spread",
    *(counted(count, "pair") for count in PAIR_COUNTS),
    f"1 run to {HISTORY}",
)


def title_of(made: Calibration) -> str:
    """Return what was calibrated, where, and from how many runs."""
    model = made.model
    return (
        f"Noise of {model.canary or 'this canary'} on {made.machine}, from {model.runs} equal runs"
    )


def table_rows(made: Calibration) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each metric under `HEADINGS`; those that do not gate have three."""
    for name, values in made.values.items():
        words, unit = WORDS[name]
        typical = f"{statistics.fmean(values):,.1f} {unit}".rstrip()
        shown = made.model.detectable_pct.get(name, {})
        found = [shown[key] for key in (*map(str, PAIR_COUNTS), "history") if shown]
        yield words, typical, f"{100 * made.model.metrics[name].run_sd:.2f}%", *map(_percent, found)


def calibration_text(made: Calibration) -> str:
    """Return the noise as a table for people."""
    lines = [
        title_of(made),
        "",
        "                          one run             smallest change seen in 4 of 5 comparisons",
        "metric                    typical   spread   1 pair  3 pairs  5 pairs  8 pairs  1 run "
        f"to {HISTORY}",
    ]
    for words, typical, spread, *cells in table_rows(made):
        row = f"{words:<22} {typical:>10} {spread:>8}"
        row += "".join(f"{cell:>{w}} " for cell, w in zip(cells, (8, 8, 8, 8, 10), strict=False))
        lines.append(row.rstrip())
    lines.append("")
    lines += exact_lines(made)
    return "\n".join(lines)


def _percent(value: float) -> str:
    return f"{value:.1f}%" if value < 1000 else ">1000%"


def exact_lines(made: Calibration) -> list[str]:
    """Return which exact signals differed between the runs."""
    model = made.model
    if not made.looked:
        return ["Exact: no exact signals were recorded, because another program recorded the runs."]
    if not model.inexact:
        return [f"Exact: every exact signal was equal in all {model.runs} runs."]
    lines = ["Noisy here (judged only beyond this noise, or not at all):"]
    lines += [f"  {name:<40} up to {size:.1e}" for name, size in sorted(model.inexact.items())]
    return [*lines, "Every other exact signal was equal in all runs."]


Place = tuple[Remote, Surroundings]


def noise_branch(remote: str | None, branch: str) -> Place | None:
    """Return the branch that `--remote` or `--branch` names; None if neither is given.

    Raises:
        UsageError: the remote does not exist.
    """
    if remote is None and branch == BRANCH:
        return None
    here = Surroundings.real()
    return remote_of(here, remote, branch), here


def require_writable(remote: Remote, here: Surroundings) -> None:
    """Check before the runs that the branch can be written.

    Raises:
        UsageError: this job may not write the baseline.
        MachineError, RecordError: the branch cannot be read.
    """
    require_allowed(here)
    with pulled(remote, here):
        pass


def push_noise(remote: Remote, here: Surroundings, model: NoiseModel, record: RunRecord) -> str:
    """Add the noise model to the branch, beside its canary's runs; return a sentence about it.

    Raises:
        MachineError, RecordError: see `branch.push`.
    """

    def add(folder: Path) -> None:
        save_noise(model, drawer(folder, record) / NOISE_FILE)

    words = f"the noise of {model.runs} runs of {record.name or 'canary'}"
    pushed = push(remote, add, message=words, keep=None, environ=here.environ)
    return f"{words} added to {remote}, now at {pushed.sha[:9]}"


def bootstrap(
    remote: Remote,
    here: Surroundings,
    loaded: LoadedConfig,
    say: Callable[[str], None],
    *,
    runs: int,
    keep: int,
    output_dir: Path | None = None,
) -> str:
    """Run one canary several times and add the runs to the branch in one commit. `keep`: runs that
    stay per canary and machine.

    Raises:
        UsageError: this job may not write the baseline.
        InputError: config, model or data cannot be used.
        RunFailed: a run did not complete; nothing is written then.
        MachineError, RecordError: the branch cannot be read (before anything runs) or written.
    """
    require_writable(remote, here)
    records, folders = [], []
    for number in range(1, runs + 1):
        record, folder = completed_run(loaded, output_dir)
        records.append(record)
        folders.append(str(folder))
        say(f"run {number}/{runs}  {1000 * record.perf.step_time.median:.1f} ms per step")
    try:
        return push_runs(remote, here, records, keep=keep)
    except CanaryError:
        say(f"the runs are on disk; add them with: canary baseline push {' '.join(folders)}")
        raise
