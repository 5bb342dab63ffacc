"""Simulated histories of one metric, a lognormal step time around 100 ms, over runs of one canary.

The module knows nothing of the detectors. Sizes of noise are assumed, not measured. A seed gives
the same noise whatever is planted. Laboratories:

- white: independent, 2%. ar1: 3%, lag-1 correlation 0.6.
- outliers: Student's t with 3 degrees of freedom, and 5% of the runs 10 to 60% slower.
- cycle: a day of 8 runs (2%), a week of 56 (1.5%), and 1.5% independent.
- runner: 2%; the machine's `driver` or `cpu` changes three times, twice with a shift of 4%.
- phases: 1% and 4%, in turns of 20 to 60 runs. quantised: 0.6%, in whole ms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

RUNS, CENTRE_MS = 200, 100.0
FIRST, LAST = 25, 170
STEPS = (3, 5, 10)

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
    return {
        "healthy": (),
        "returns": (Event("step", place, 10.0, place + 14),),
        "spike": (Event("spike", place, 30.0, place),),
        **{f"+{size}%": (Event("step", place, float(size)),) for size in STEPS},
    }[what]


PLANTED = ("healthy", *(f"+{size}%" for size in STEPS), "two steps", "returns", "spike")


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
