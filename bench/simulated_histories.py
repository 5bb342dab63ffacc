"""Change-point detectors on simulated histories of 200 runs: `python -m bench.simulated_histories`.

A history is one metric, a lognormal step time around 100 ms, over runs of one canary. The part that
makes the histories knows nothing of the detectors. Sizes of noise are assumed, not measured. A
seed gives the same noise whatever is planted. Laboratories:

- white: independent, 2%. ar1: 3%, lag-1 correlation 0.6.
- outliers: Student's t with 3 degrees of freedom, and 5% of the runs 10 to 60% slower.
- cycle: a day of 8 runs (2%), a week of 56 (1.5%), and 1.5% independent.
- runner: 2%; the machine's `driver` or `cpu` changes three times, twice with a shift of 4%.
- phases: 1% and 4%, in turns of 20 to 60 runs. quantised: 0.6%, in whole ms.

A detector sees the first n runs. For false alarms n is every fifth number, so that alerts which
last less than five runs may be missed. After something planted, n is each of the next 12 runs.
An alert is a change point that is not `waiting`, in either direction. It finds a step within NEAR
places if the sign is right too. It never counts as found if the same noise without the step gives
the same alert. Alerts beside a shift of the machine are never false.

apache-otava runs if Python finds it: `pip install --no-deps --target DIR apache-otava==0.8.0`, then
`PYTHONPATH=DIR`. Its change detection needs only numpy and scipy.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import multiprocessing
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from canary.record.types import Distribution, Launch, Perf, RunRecord
from canary.trends.model import HistoryTrends

RUNS, CENTRE_MS = 200, 100.0
FIRST, LAST = 25, 170
STEPS = (3, 5, 10)
AFTER, EVERY, EARLIEST = 12, 5, 10
NEAR, SAME, FAR = 5, 3, 15
"""Places within which: an alert finds a step; two alerts are one; an error of the place counts."""
FIGURES = Path(__file__).parents[1] / "docs" / "figures.md"
BEGIN, END = (f"<!-- {word}: bench/simulated_histories.py -->" for word in ("begin", "end"))

Array = np.ndarray
Generator = np.random.Generator
Facts = Mapping[str, str]


class Event(NamedTuple):
    """Something planted: the level of the runs `place` to `last` changes."""

    kind: str
    place: int
    percent: float
    last: int = RUNS - 1
    facts: tuple[str, ...] = ()
    """The facts of the machine that change at `place`."""


@dataclass(frozen=True)
class History:
    """Simulated runs, oldest first, and the truth about them."""

    values: Array
    """Step times in ms, shape (RUNS,)."""
    facts: tuple[Facts, ...]
    planted: tuple[Event, ...] = ()
    machine: tuple[Event, ...] = ()
    healthy: Array | None = None
    """The same without what is planted."""


@dataclass(frozen=True)
class Laboratory:
    """How runs scatter. `noise` gives logarithms, shape (RUNS,)."""

    name: str
    noise: Callable[[Generator], Array]
    changes_runner: bool = False
    grain_ms: float = 0.0


def white(rng: Generator, sd: float = 0.02) -> Array:
    """Return independent noise."""
    return rng.normal(0.0, sd, RUNS)


def ar1(rng: Generator, sd: float = 0.03, memory: float = 0.6) -> Array:
    """Return noise that remembers; `sd` is its standard deviation at any run."""
    values = rng.normal(0.0, sd, RUNS)
    for place in range(1, RUNS):
        values[place] = memory * values[place - 1] + np.sqrt(1 - memory**2) * values[place]
    return values


def outliers(rng: Generator) -> Array:
    """Return heavy tails of 2%, and rare slow runs."""
    tails = 0.02 / np.sqrt(3) * rng.standard_t(3, RUNS)
    slow = np.log1p(rng.uniform(0.1, 0.6, RUNS))
    return tails + np.where(rng.random(RUNS) < 0.05, slow, 0.0)


def cycle(rng: Generator) -> Array:
    """Return slow waves of a day and a week."""
    runs, (day, week) = np.arange(RUNS), rng.uniform(0, 2 * np.pi, 2)
    waves = 0.02 * np.sin(2 * np.pi * runs / 8 + day) + 0.015 * np.sin(2 * np.pi * runs / 56 + week)
    return waves + white(rng, 0.015)


def phases(rng: Generator) -> Array:
    """Return quiet and loud stretches."""
    lengths = rng.integers(20, 61, RUNS // 20)
    sizes = np.resize(rng.permutation([0.01, 0.04]), len(lengths))
    return rng.normal(0.0, 1.0, RUNS) * np.repeat(sizes, lengths)[:RUNS]


LABORATORIES = {
    each.name: each
    for each in (
        Laboratory("white", white),
        Laboratory("ar1", ar1),
        Laboratory("outliers", outliers),
        Laboratory("cycle", cycle),
        Laboratory("runner", white, changes_runner=True),
        Laboratory("phases", phases),
        Laboratory("quantised", partial(white, sd=0.006), grain_ms=1.0),
    )
}


def machine_events(rng: Generator) -> tuple[Event, ...]:
    """Return three changes of the runner: two with a shift of 4%, one without any effect."""
    places = [int(rng.integers(first, first + 36)) for first in (25, 80, 135)]
    shifts = rng.permutation([4.0 * rng.choice([-1, 1]), 4.0 * rng.choice([-1, 1]), 0.0])
    changed = [[("driver",), ("cpu",), ("driver", "cpu")][rng.integers(3)] for _ in places]
    return tuple(
        Event("machine", place, float(shift), facts=names)
        for place, shift, names in zip(places, shifts, changed, strict=True)
    )


def planted_events(what: str, rng: Generator, taken: Iterable[int] = ()) -> tuple[Event, ...]:
    """Return what to plant, at a random place at least ten runs from the `taken` ones."""
    free = [place for place in range(FIRST, LAST + 1) if all(abs(place - it) >= 10 for it in taken)]
    place = int(rng.choice(free))
    if what == "two steps":
        early, late = (
            [p for p in free if low <= p <= high] for low, high in ((25, 80), (115, 170))
        )
        return tuple(Event("step", int(rng.choice(some)), 5.0) for some in (early, late))
    if what == "drift":
        start = int(rng.integers(FIRST, 76))
        return (Event("drift", start, 100 * (1.001**100 - 1), start + 99),)
    return {
        "healthy": (),
        "returns": (Event("step", place, 10.0, place + 14),),
        "spike": (Event("spike", place, 30.0, place),),
        **{f"+{size}%": (Event("step", place, float(size)),) for size in STEPS},
    }[what]


PLANTED = ("healthy", *(f"+{size}%" for size in STEPS), "two steps", "returns", "drift", "spike")


def simulate(seed: int, laboratory: Laboratory, what: str = "healthy") -> History:
    """Return a history; its noise depends on the seed and the laboratory alone."""
    name = int.from_bytes(hashlib.sha256(laboratory.name.encode()).digest()[:4], "big")
    rng, places = (np.random.default_rng([seed, name, part]) for part in range(2))
    machine = machine_events(rng) if laboratory.changes_runner else ()
    planted = planted_events(what, places, [event.place for event in machine])
    runner = _with(machine, CENTRE_MS * np.exp(laboratory.noise(rng)))
    values, healthy = (
        np.round(it / laboratory.grain_ms) * laboratory.grain_ms if laboratory.grain_ms else it
        for it in (_with(planted, runner), runner)
    )
    return History(values, _facts(machine), planted, machine, healthy)


def _with(events: Iterable[Event], values: Array) -> Array:
    """Return values at the levels that the events give."""
    levels = np.ones(len(values))
    for event in events:
        if event.kind == "drift":
            length = event.last - event.place + 1
            risen = np.clip((np.arange(len(values)) - event.place + 1) / length, 0, 1)
            levels *= (1 + event.percent / 100) ** risen
        else:
            levels[event.place : event.last + 1] *= 1 + event.percent / 100
    return values * levels


def _facts(machine: Sequence[Event]) -> tuple[Facts, ...]:
    def version(name: str, place: int) -> int:
        return sum(name in event.facts and event.place <= place for event in machine)

    return tuple(
        {
            "driver": f"570.{86 + version('driver', place)}",
            "cpu": f"Simulated CPU {version('cpu', place) + 1}",
        }
        for place in range(RUNS)
    )


class Found(NamedTuple):
    """A change point, or a drift if `standing` says so."""

    place: int
    percent: float
    standing: str = "confirmed"
    """As in `canary.trends.model`, or `drift`."""
    machine: tuple[str, ...] = ()
    """The facts that are named as suspects, the first first."""
    last: int = RUNS
    """Of a drift."""


Detector = Callable[[Array, Sequence[Facts]], Sequence[Found]]


def on_previous(values: Array, facts: Sequence[Facts], limit: float) -> list[Found]:
    """Compare each run with the run before; `limit` in percent."""
    changes = 100 * (values[1:] / values[:-1] - 1)
    return [Found(int(i) + 1, float(changes[i])) for i in np.flatnonzero(abs(changes) > limit)]


def on_mean(values: Array, facts: Sequence[Facts], limit: float, width: int = 5) -> list[Found]:
    """Compare each run with the mean of the last five; `limit` in percent."""
    if len(values) <= width:
        return []
    means = np.lib.stride_tricks.sliding_window_view(values, width)[:-1].mean(axis=1)
    changes = 100 * (values[width:] / means - 1)
    return [Found(int(i) + width, float(changes[i])) for i in np.flatnonzero(abs(changes) > limit)]


def otava(values: Array, facts: Sequence[Facts]) -> list[Found]:
    """Ask apache-otava with its defaults: a window of 50, p below 0.001, any magnitude."""
    module = importlib.import_module("otava.series")
    numbers = list(range(len(values)))
    metrics = {"ms": module.Metric(direction=-1)}
    series = module.Series("history", None, numbers, metrics, {"ms": values.tolist()}, {})
    points = series.analyze(module.AnalysisOptions()).change_points["ms"]
    return [Found(int(it.index), float(it.forward_change_percent())) for it in points]


def ours(values: Array, facts: Sequence[Facts]) -> list[Found]:
    """Ask `canary.trends`."""
    adapter = getattr(importlib.import_module("canary.trends"), "trends_of_records", None)
    if adapter is None:
        raise ImportError("canary.trends has no trends_of_records")
    records = [record(place, float(value), facts[place]) for place, value in enumerate(values)]
    trends: HistoryTrends = adapter(records)
    series = next(it for it in trends.series if it.metric == "step_time_median")
    at = [int(point.run_id.removeprefix("run-")) for point in series.points]
    found = [
        Found(at[it.place], it.percent, it.standing, tuple(fact.name for fact in it.machine))
        for it in series.changes
    ]
    drift = series.drift
    if drift is not None:
        found.append(Found(at[drift.first], drift.percent, "drift", last=at[drift.last]))
    return found


@lru_cache(maxsize=RUNS)
def _bare(place: int) -> RunRecord:
    return RunRecord(
        run_id=f"run-{place:03d}",
        name="simulated",
        timestamp=f"2026-{1 + place // 28:02d}-{1 + place % 28:02d}T06:00:00+00:00",
        status="completed",
        git={"sha": hashlib.sha1(str(place).encode()).hexdigest(), "dirty": False},
        config={"training_type": "sft"},
    )


def record(place: int, step_time_ms: float, facts: Facts) -> RunRecord:
    """Return a run on a GPU, so that another `cpu` is no other machine, with a step time alone."""
    seconds = step_time_ms / 1000
    spread = dict.fromkeys(("mean", "median", "p50", "p95", "p99", "min", "max"), seconds)
    launch = Launch(
        index=1,
        kind="measured",
        status="completed",
        steps=100,
        mean_step_time_s=seconds,
        median_step_time_s=seconds,
    )
    gpu = {"name": "Simulated", "memory_bytes": 80 << 30, "mig": False, "index": 0, "uuid": "x"}
    env = {"device": {"type": "cuda", "name": "Simulated"}, "gpus": [gpu], **facts}
    perf = Perf(step_time=Distribution(count=100, std=0.0, **spread))
    return _bare(place).model_copy(update={"env": env, "perf": perf, "launches": [launch]})


DETECTORS: dict[str, Detector] = {
    "previous run, 5%": partial(on_previous, limit=5.0),
    "previous run, 10%": partial(on_previous, limit=10.0),
    "mean of last 5, 5%": partial(on_mean, limit=5.0),
    "mean of last 5, 10%": partial(on_mean, limit=10.0),
    "apache-otava": otava,
    "canary": ours,
}


def left_out(names: Iterable[str]) -> dict[str, str]:
    """Return the detectors that cannot run here, with the reason."""
    reasons = {}
    history = simulate(0, LABORATORIES["white"])
    for name in names:
        try:
            DETECTORS[name](history.values[:20], history.facts[:20])
        except ImportError as error:
            reasons[name] = str(error)
    return reasons


def alerts(found: Iterable[Found]) -> list[Found]:
    """Return the change points that a reader is told as facts."""
    return [it for it in found if it.standing in ("confirmed", "returned")]


def alerts_after(detect: Detector, history: History, count: int) -> list[Found]:
    """Return what the first `count` runs alert, without what the same noise alerts anyway."""
    values, healthy = history.values[:count], history.healthy
    facts = history.facts[:count]
    anyway = [] if healthy is None else alerts(detect(healthy[:count], facts))
    known = {(it.place, it.percent > 0) for it in anyway}
    return [it for it in alerts(detect(values, facts)) if (it.place, it.percent > 0) not in known]


def nearest(found: Iterable[Found], event: Event, within: int = NEAR) -> Found | None:
    """Return the alert next to an event, with its sign."""
    same = [
        it
        for it in found
        if it.percent * event.percent > 0 and abs(it.place - event.place) <= within
    ]
    return min(same, key=lambda it: abs(it.place - event.place), default=None)


def score_healthy(detect: Detector, history: History) -> Counter[str]:
    """Count false alerts, each place once, and how shifts of the machine are told."""
    shifts = [event for event in history.machine if event.percent]
    known: list[Found] = []
    drifts = False

    def seen(count: int) -> Sequence[Found]:
        return detect(history.values[:count], history.facts[:count])

    for count in range(EARLIEST, RUNS + 1, EVERY):
        found = seen(count)
        drifts |= any(it.standing == "drift" for it in found)
        for it in alerts(found):
            beside = any(abs(it.place - event.place) <= NEAR for event in shifts)
            if not beside and all(abs(it.place - other.place) > SAME for other in known):
                known.append(it)
    scores = Counter(runs=RUNS, histories=1, drifts=int(drifts), false=len(known))
    scores["false, slower"] = sum(it.percent > 0 for it in known)
    for event in shifts:
        hit = nearest(alerts(seen(event.place + AFTER)), event)
        scores["shifts"] += 1
        scores["shifts found"] += hit is not None
        scores["shifts named"] += hit is not None and bool(set(hit.machine[:1]) & set(event.facts))
    return scores


def score_step(detect: Detector, history: History) -> Counter[str]:
    """Count whether a step is found within 5 and 10 runs, and the error of its place."""
    (event,) = history.planted
    seen = {n: alerts_after(detect, history, event.place + n) for n in range(1, AFTER + 1)}
    hits = {n: nearest(found, event) for n, found in seen.items()}
    scores = Counter(steps=1)
    for within in (5, 10):
        scores[f"within {within}"] = int(any(hits[n] for n in range(1, within + 1)))
    at_end = nearest(seen[AFTER], event, FAR)
    if at_end is not None:
        scores[f"error {abs(at_end.place - event.place)}"] = 1
        scores["placed"], scores["blamed"] = 1, int(bool(at_end.machine))
    return scores


def score_two(detect: Detector, history: History) -> Counter[str]:
    """Count whether both steps are found, each 12 runs later."""
    hits = [
        nearest(alerts_after(detect, history, event.place + AFTER), event)
        for event in history.planted
    ]
    return Counter({"both": int(all(hits)), "pairs": 1})


def score_return(detect: Detector, history: History) -> Counter[str]:
    """Count how a return is told 12 runs later: as returned, and as a step down."""
    (event,) = history.planted
    found = alerts_after(detect, history, event.last + 1 + AFTER)
    hit = nearest([it for it in found if it.standing == "returned"], event)
    down = nearest(found, Event("step", event.last + 1, -event.percent))
    return Counter(
        {"returns": 1, "returned": int(hit is not None), "step down": int(down is not None)}
    )


def score_drift(detect: Detector, history: History) -> Counter[str]:
    """Count what a slow drift is called 12 runs after its end."""
    (event,) = history.planted
    count = event.last + 1 + AFTER
    told = [it for it in detect(history.values[:count], history.facts[:count]) if it.percent > 0]
    if any(
        it.standing == "drift" and it.place <= event.last and it.last >= event.place for it in told
    ):
        return Counter(["drift"])
    alerted = any(
        it.percent > 0 and event.place <= it.place <= event.last
        for it in alerts_after(detect, history, count)
    )
    return Counter(["as steps" if alerted else "missed"])


def score_spike(detect: Detector, history: History) -> Counter[str]:
    """Count whether a single slow run ever raises an alert."""
    (event,) = history.planted
    alerted = any(
        abs(it.place - event.place) <= 1
        for n in range(1, AFTER + 1)
        for it in alerts_after(detect, history, event.place + n)
    )
    return Counter(spikes=1, alerted=int(alerted))


SCORES: dict[str, Callable[[Detector, History], Counter[str]]] = {
    "healthy": score_healthy,
    **{f"+{size}%": score_step for size in STEPS},
    "two steps": score_two,
    "returns": score_return,
    "drift": score_drift,
    "spike": score_spike,
}

Scores = dict[str, Counter[str]]
"""By `detector | laboratory | planted`."""


def trial(seed: int, names: Sequence[str]) -> Scores:
    """Score each detector on every kind of history of a seed."""
    found: Scores = {}
    for laboratory, what in product(LABORATORIES.values(), PLANTED):
        history = simulate(seed, laboratory, what)
        for name in names:
            score = SCORES[what](DETECTORS[name], history)
            found[f"{name} | {laboratory.name} | {what}"] = score
    return found


def run(seeds: range, names: Sequence[str], workers: int) -> Scores:
    """Add up the scores over the seeds; the number of workers does not change them."""
    total: Scores = defaultdict(Counter)
    with multiprocessing.Pool(workers) as pool:
        for found in pool.imap_unordered(partial(trial, names=names), seeds):
            for key, counts in found.items():
                total[key].update(counts)
    return dict(total)


def pooled(scores: Scores, name: str, laboratory: str, *planted: str) -> Counter[str]:
    """Return counts of a detector, over some kinds; `all` stands for every laboratory."""
    places = LABORATORIES if laboratory == "all" else (laboratory,)
    total: Counter[str] = Counter()
    for place, what in product(places, planted):
        total.update(scores[f"{name} | {place} | {what}"])
    return total


def share(counts: Counter[str], hits: str, of: str) -> str:
    """Return a rate in percent."""
    return f"{100 * counts[hits] / counts[of]:.0f}%" if counts[of] else "-"


def tables(scores: Scores, names: Sequence[str]) -> str:
    """Return three Markdown tables: false alarms, steps found, and everything else."""
    places = (*LABORATORIES, "all")
    return "\n\n".join(
        [
            "False change points per 1,000 healthy runs, in brackets those for the worse:\n\n"
            + _table(("detector", *places), ([name, *_false(scores, name)] for name in names)),
            "Steps found within 5 and within 10 runs, in percent:\n\n"
            + _table(
                ("detector", "step", *places),
                (
                    [name, f"+{size}%", *_steps(scores, name, f"+{size}%")]
                    for name, size in product(names, STEPS)
                ),
            ),
            "The rest, over all laboratories:\n\n"
            + _table(("detector", *OTHERS), ([name, *_others(scores, name)] for name in names)),
        ]
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _false(scores: Scores, name: str) -> list[str]:
    found = [pooled(scores, name, place, "healthy") for place in (*LABORATORIES, "all")]
    return [
        f"{1000 * it['false'] / it['runs']:.2f} ({1000 * it['false, slower'] / it['runs']:.2f})"
        for it in found
    ]


def _steps(scores: Scores, name: str, size: str) -> list[str]:
    found = [pooled(scores, name, place, size) for place in (*LABORATORIES, "all")]
    return [
        " / ".join(f"{100 * it[f'within {n}'] / it['steps']:.0f}" for n in (5, 10)) for it in found
    ]


OTHERS = (
    "error of the place, +5% and +10%: median, 90%",
    "both of two steps",
    "shifts of the machine: found",
    "and named first",
    "code steps blamed on it",
    "drift: told, as steps, missed",
    "healthy histories told to drift",
    "spikes alerted",
    "returns: told, as a step down",
)


def _others(scores: Scores, name: str) -> list[str]:
    kinds = (["healthy"], ["+5%", "+10%"], ["two steps"], ["returns"], ["drift"], ["spike"])
    healthy, steps, two, back, drift, spike = (pooled(scores, name, "all", *it) for it in kinds)
    errors = [
        int(key.removeprefix("error "))
        for key, count in steps.items()
        if key.startswith("error ")
        for _ in range(count)
    ]
    middle, high = np.percentile(errors, [50, 90]) if errors else (np.nan, np.nan)
    drift["all"] = drift.total()
    return [
        f"{middle:.0f}, {high:.0f}" if errors else "-",
        share(two, "both", "pairs"),
        share(healthy, "shifts found", "shifts"),
        share(healthy, "shifts named", "shifts"),
        share(pooled(scores, name, "runner", "+5%", "+10%"), "blamed", "placed"),
        ", ".join(share(drift, told, "all") for told in ("drift", "as steps", "missed")),
        share(healthy, "drifts", "histories"),
        share(spike, "alerted", "spikes"),
        ", ".join(share(back, told, "returns") for told in ("returned", "step down")),
    ]


def main(given: Sequence[str] | None = None) -> int:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=100, help="seeds per laboratory")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", action="append", choices=DETECTORS, help="a detector")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="two seeds, to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the counts here")
    parser.add_argument("--write", action="store_true", help="write the tables to docs/figures.md")
    asked = parser.parse_args(given)
    seeds = range(asked.first, asked.first + (2 if asked.quick else asked.n))
    reasons = left_out(asked.only or DETECTORS)
    for name, reason in reasons.items():
        print(f"left out: {name} ({reason})", file=sys.stderr)
    names = [name for name in asked.only or DETECTORS if name not in reasons]
    scores = run(seeds, names, asked.workers)
    text = tables(scores, names)
    print(text)
    if asked.json:
        told: dict[str, Any] = {"seeds": [seeds.start, seeds.stop], "left_out": reasons}
        asked.json.write_text(json.dumps(told | {"scores": scores}, indent=1), encoding="utf-8")
    if asked.write:
        before, rest = FIGURES.read_text(encoding="utf-8").split(BEGIN)
        page = f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"
        FIGURES.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
