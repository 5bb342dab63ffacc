"""Change-point detectors on simulated histories of 200 runs: `python -m bench.simulated_histories`.

`bench/histories.py` makes the histories; it knows nothing of the detectors.

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
import json
import multiprocessing
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.change_detectors import DETECTORS, Detector, Found
from bench.histories import LABORATORIES, PLANTED, RUNS, STEPS, Event, History, simulate

AFTER, EVERY, EARLIEST = 12, 5, 10
NEAR, SAME, FAR = 5, 3, 15
"""Places within which: an alert finds a step; two alerts are one; an error of the place counts."""


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

    def seen(count: int) -> Sequence[Found]:
        return detect(history.values[:count], history.facts[:count])

    for count in range(EARLIEST, RUNS + 1, EVERY):
        for it in alerts(seen(count)):
            beside = any(abs(it.place - event.place) <= NEAR for event in shifts)
            if not beside and all(abs(it.place - other.place) > SAME for other in known):
                known.append(it)
    scores = Counter(runs=RUNS, histories=1, false=len(known))
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
    "spikes alerted",
    "returns: told, as a step down",
)


def _others(scores: Scores, name: str) -> list[str]:
    kinds = (["healthy"], ["+5%", "+10%"], ["two steps"], ["returns"], ["spike"])
    healthy, steps, two, back, spike = (pooled(scores, name, "all", *it) for it in kinds)
    errors = [
        int(key.removeprefix("error "))
        for key, count in steps.items()
        if key.startswith("error ")
        for _ in range(count)
    ]
    middle, high = np.percentile(errors, [50, 90]) if errors else (np.nan, np.nan)
    return [
        f"{middle:.0f}, {high:.0f}" if errors else "-",
        share(two, "both", "pairs"),
        share(healthy, "shifts found", "shifts"),
        share(healthy, "shifts named", "shifts"),
        share(pooled(scores, name, "runner", "+5%", "+10%"), "blamed", "placed"),
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
    asked = parser.parse_args(given)
    seeds = range(asked.first, asked.first + (2 if asked.quick else asked.n))
    reasons = left_out(asked.only or DETECTORS)
    for name, reason in reasons.items():
        print(f"left out: {name} ({reason})", file=sys.stderr)
    names = [name for name in asked.only or DETECTORS if name not in reasons]
    scores = run(seeds, names, asked.workers)
    print(tables(scores, names))
    if asked.json:
        told: dict[str, Any] = {"seeds": [seeds.start, seeds.stop], "left_out": reasons}
        asked.json.write_text(json.dumps(told | {"scores": scores}, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
