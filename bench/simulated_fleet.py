"""A simulated fleet: 64 GPUs of three types, 200 cells, and schedules that look for a regression.

Nothing here ran on a GPU. A cell is a canary on one GPU type, like a cell of `canary matrix`. All
assumptions stand at the top; `bench/fleet.py` prints what follows from them.

The timing lane's own functions judge the median step time, without a noise model: one run against
20 stored ones, or pairs with the looks of `canary ab` and a base before the regression. A run that
is no regression enters its history, as with `save: true`.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from bench.simulated_launches import PLACES, Machine
from canary.campaign.calibrate import HISTORY, smallest
from canary.campaign.pairs import PROBED_PAIRS
from canary.compare.report import Verdict
from canary.compare.thresholds import TIER_THRESHOLDS
from canary.compare.timing.lane import (
    FAMILY_BUDGET,
    NO_MODEL_SHARE,
    Metric,
    Samples,
    estimate,
    holm,
    tolerance,
)
from canary.compare.timing.noise import NoiseModel, metric_noise
from canary.compare.timing.sequential import LOOKS, look_budget


@dataclass(frozen=True)
class GpuType:
    """A GPU type. Spreads: standard deviations of the logarithm of a launch's median step time."""

    name: str
    gpus: int
    pace: float
    """Duration of a launch, relative to the quiet type."""
    launch_sd: float
    """Of launches one after the other on one GPU."""
    night_sd: float
    """Of a cell's level from night to night: another GPU of the type, clocks, neighbours."""


# The assumptions. "Measured" means: on CPUs, and written in docs/figures.md.
TYPES = (
    # 0.5% in all, like `QUIET` of bench/power.py. Assumed.
    GpuType("quiet", 16, 1.0, 0.004, 0.003),
    # 2.7% in all is measured, on quiet cores: "CPU time beside wall time". So is the slowdown by 5%
    # over these 26 runs, which makes 1.4% of the spread. Assumed: a GPU type has the same noise.
    GpuType("medium", 24, 1.5, 0.023, 0.014),
    # 5.6% in all is measured: "The noise of one machine". So are 7.0% of a pair's difference, in
    # baselines/examples/sft_smoke_noise.json. Assumed: a GPU type has the same noise.
    GpuType("noisy", 24, 2.5, 0.049, 0.027),
)
# Minutes of a measured launch on the quiet type. Assumed, as are `gpus` and `pace` above.
LAUNCH_MINUTES = {"sft": 1.0, "dpo": 1.5, "reward": 1.0, "kto": 1.5, "orpo": 1.5, "cpo": 1.5}
LAUNCH_MINUTES |= {"ppo": 3.0, "grpo": 3.0, "rloo": 3.0}
# A probe takes 6.6 s where a measured launch takes 12.7 s. Measured: "The default run".
PROBE = 6.6 / 12.7
# GPUs of a cell, in turn. Assumed.
RANKS = (1, 1, 1, 1, 1, 1, 2, 4)
# The regression; what it affects, each as likely. The shapes of the noise are those of
# bench/simulated_launches.py: normal, skewed or two modes. Assumed.
CHANGE, KINDS = 0.05, ("trainer", "GPU type", "everything")
# Cells; runs of `canary calibrate` that show a type's noise; nights until a search ends. Chosen.
CELLS, CALIBRATED, HORIZON = 200, 20, 30
# The limits of a user who cares about 5%. Chosen.
LIMITS = TIER_THRESHOLDS["nightly"].model_copy(update={"sensitivity": "adaptive"})

STEP_TIME: Metric = "step_time_median"
Verb = Literal["run", "ab"]


@dataclass(frozen=True)
class Cell:
    """A canary on a GPU type."""

    trainer: str
    gpu: GpuType
    ranks: int

    def minutes(self, verb: Verb, pairs: int = max(LOOKS)) -> float:
        """Return the duration of a run, or of so many pairs, with their probes."""
        launches = 1 + PROBE if verb == "run" else 2 * (pairs + PROBE * min(pairs, PROBED_PAIRS))
        return LAUNCH_MINUTES[self.trainer] * self.gpu.pace * launches

    def cost(self, verb: Verb, pairs: int = max(LOOKS)) -> float:
        """Return GPU minutes."""
        return self.ranks * self.minutes(verb, pairs)


def fleet(count: int = CELLS) -> list[Cell]:
    """Return the cells in the order of a file that lists trainer by trainer."""
    gpus = [gpu for gpu in TYPES for _ in range(gpu.gpus // 8)]
    names = list(LAUNCH_MINUTES)
    cells = [
        Cell(names[i % len(names)], gpus[i % len(gpus)], RANKS[i // len(gpus) % len(RANKS)])
        for i in range(count)
    ]
    return sorted(cells, key=lambda cell: names.index(cell.trainer))


def makespan(cells: Iterable[Cell], verb: Verb, gpus: int) -> float:
    """Return the minutes until all cells have ended on so many GPUs; the longest start first."""
    free = [0.0] * gpus
    for cell in sorted(cells, key=lambda cell: -cell.minutes(verb)):
        end = max(heapq.heappop(free) for _ in range(cell.ranks)) + cell.minutes(verb)
        for _ in range(cell.ranks):
            heapq.heappush(free, end)
    return max(free)


def verdict(now: Sequence[float], was: Sequence[float], budget: float, *, paired: bool) -> Verdict:
    """Judge logarithms of step times as `canary.compare.timing.checks` does."""
    samples = Samples(STEP_TIME, tuple(now), tuple(was), "step_time", "ms")
    found = {STEP_TIME: (samples, estimate(samples, paired, None, has_gpu=True))}
    (gate,) = holm(found, NO_MODEL_SHARE * budget)
    passes_below, fails_from = tolerance(gate, LIMITS, LIMITS.max_step_time_increase_pct)
    if gate.real:
        return "regression" if gate.estimate.change >= fails_from else "pass"
    return "pass" if gate.estimate.upper() < passes_below else "inconclusive"


class Subject:
    """The simulated launches of a cell, and its history. `slower`: with the regression."""

    def __init__(self, gpu: GpuType, draw: random.Random) -> None:
        self._night = partial(draw.gauss, 0.0, gpu.night_sd)
        self._machine = Machine(draw, PLACES["steady"], gpu.launch_sd, CHANGE, culprit=0)
        self.history = [self.launches(1)[0] + self._night() for _ in range(HISTORY)]

    def launches(self, count: int, slower: bool = False) -> list[float]:
        """Return launches one after the other on one GPU."""
        return [self._machine.launch(int(slower)) for _ in range(count)]

    def run(self, slower: bool) -> Verdict:
        """Compare a night's run with the history, and store it if it is no regression."""
        value = self.launches(1, slower)[0] + self._night()
        found = verdict([value], self.history[-HISTORY:], FAMILY_BUDGET, paired=False)
        self.history += [value] if found != "regression" else []
        return found

    def ab(self, slower: bool) -> tuple[Verdict, int]:
        """Return what pairs on one GPU say, and their number."""
        now, was = self.launches(max(LOOKS), slower), self.launches(max(LOOKS))
        for pairs in LOOKS:
            found = verdict(now[:pairs], was[:pairs], look_budget(pairs), paired=True)
            if found != "inconclusive":
                break
        return found, pairs


class Shown(NamedTuple):
    """What a history and a calibration show: changes that four of five comparisons find, in %."""

    run: float
    """The smallest for one run."""
    ab: float
    """The smallest for the last look of pairs."""
    noise: NoiseModel

    @property
    def verb(self) -> Verb:
        """Return `ab` if one run cannot show the regression and pairs can."""
        return "ab" if self.ab <= 100 * CHANGE < self.run else "run"

    @property
    def pairs(self) -> float:
        """Return the pairs that show the regression; infinite above 99."""
        counts = (count for count in range(1, 100) if least(self.noise, count) <= 100 * CHANGE)
        return next(counts, math.inf)


def least(noise: NoiseModel, current: int, history: int | None = None) -> float:
    """Return the smallest change, as `canary calibrate` prints it."""
    return smallest(noise, STEP_TIME, "step_time", FAMILY_BUDGET, current, history)


def shown(gpu: GpuType, draw: random.Random) -> Shown:
    """Draw a history and a calibration, and return what they show."""
    subject = Subject(gpu, draw)
    nights, pairs = metric_noise(subject.history), metric_noise(subject.launches(CALIBRATED))
    both = pairs.model_copy(update={"run_sd": nights.run_sd, "run_df": nights.run_df})
    noise = NoiseModel(
        canary="", machine_key="simulated", created="", runs=CALIBRATED, metrics={STEP_TIME: both}
    )
    return Shown(least(noise, 1, HISTORY), least(noise, max(LOOKS)), noise)


@dataclass(frozen=True)
class Policy:
    """Which cells run in a night, and how."""

    name: str
    verb: Verb | Literal["by noise"] = "run"
    rotates: bool = True
    """Whether the cell whose newest stored run is oldest comes first, in place of `order`."""
    order: Literal["file", "sensitive first", "quiet only"] = "file"
    confirms: bool = False
    """Whether pairs of the same cell, which run next, decide after a failed run."""


POLICIES = (
    Policy("file order, each night from the start", rotates=False),
    Policy("smallest detectable change first", rotates=False, order="sensitive first"),
    Policy("quiet type only, oldest first", order="quiet only"),
    Policy("oldest first"),
    Policy("oldest first, all in pairs", verb="ab"),
    Policy("oldest first, pairs by noise", verb="by noise"),
    Policy("oldest first, pairs confirm failures", confirms=True),
)


class Night(NamedTuple):
    """GPU minutes and alarms of a night. It ends early when the regression is found."""

    spent: float
    alarms: int
    found: bool = False


class Nights:
    """The nights of a policy. `slower` says which cells have the regression, if there is one.

    Runs of other cells are then not judged: they cannot find it. So their false failures cost no
    pairs either.
    """

    def __init__(
        self,
        policy: Policy,
        cells: Sequence[Cell],
        budget: float,
        draw: random.Random,
        slower: Callable[[Cell], bool] | None = None,
    ) -> None:
        dearest = max(cell.cost("ab") for cell in cells)
        if budget < dearest:
            raise ValueError(f"the budget is {budget:g}, but a cell may cost {dearest:g}")
        self._policy, self._budget, self._draw, self._slower = policy, budget, draw, slower
        self._shown = {gpu: shown(gpu, draw) for gpu in TYPES}
        self._subjects: dict[int, Subject] = {}
        order = list(enumerate(cells))
        if policy.order == "sensitive first":
            order.sort(key=lambda one: (self._shown[one[1].gpu].run, one[1].cost("run")))
        elif policy.order == "quiet only":
            order = [one for one in order if one[1].gpu is TYPES[0]]
        begin = draw.randrange(len(order)) if policy.rotates else 0
        self._order = order[begin:] + order[:begin]
        self._newest = dict.fromkeys(range(len(cells)), 0)
        self._number = 0
        self._failed: list[tuple[int, Cell]] = []

    def night(self) -> Night:
        """Run cells as `budget` of a matrix does: one that might exceed it is passed over."""
        self._number += 1
        order = self._order
        if self._policy.rotates:
            order = sorted(order, key=lambda one: self._newest[one[0]])
        waiting = deque([(one, True) for one in self._failed] + [(one, False) for one in order])
        spent, alarms, self._failed = 0.0, 0, []
        while waiting:
            (number, cell), again = waiting.popleft()
            verb: Verb = "ab" if again else self._verb(cell)
            if spent + cell.cost(verb) > self._budget:
                self._failed += [(number, cell)] if again else []
                continue
            failed, minutes = self._judged(number, cell, verb)
            spent += minutes
            self._newest[number] = self._newest[number] if failed else self._number
            if failed and self._policy.confirms and not again:
                waiting.appendleft(((number, cell), True))
            elif failed:
                alarms += 1
                if self._slower and self._slower(cell):
                    return Night(spent, alarms, found=True)
        return Night(spent, alarms)

    def _verb(self, cell: Cell) -> Verb:
        wanted = self._policy.verb
        return self._shown[cell.gpu].verb if wanted == "by noise" else wanted

    def _judged(self, number: int, cell: Cell, verb: Verb) -> tuple[bool, float]:
        """Return whether a cell fails, and its GPU minutes."""
        slower = self._slower is not None and self._slower(cell)
        if verb == "run" and self._slower and not slower:
            return False, cell.cost("run")
        if number not in self._subjects:
            self._subjects[number] = Subject(cell.gpu, self._draw)
        if verb == "run":
            return self._subjects[number].run(slower) == "regression", cell.cost("run")
        found, pairs = self._subjects[number].ab(slower)
        return found == "regression", cell.cost("ab", pairs)


class Found(NamedTuple):
    """Nights and GPU minutes until a regression was found; infinite if it was not."""

    kind: str
    nights: float
    minutes: float


def search(policy: Policy, cells: Sequence[Cell], budget: float, seed: str) -> Found:
    """Return when a policy finds the regression of a seed."""
    draw = random.Random(seed)
    kind, trainer, gpu = draw.choice(KINDS), draw.choice([*LAUNCH_MINUTES]), draw.choice(TYPES)
    slower: Mapping[str, Callable[[Cell], bool]] = {
        "trainer": lambda cell: cell.trainer == trainer,
        "GPU type": lambda cell: cell.gpu is gpu,
        "everything": lambda cell: True,
    }
    own = random.Random(f"{seed} {policy.name}")
    nights = Nights(policy, cells, budget, own, slower[kind])
    minutes = 0.0
    for number in range(1, HORIZON + 1):
        night = nights.night()
        minutes += night.spent
        if night.found:
            return Found(kind, number, minutes)
    return Found(kind, math.inf, math.inf)


def false_alarms(
    policy: Policy, cells: Sequence[Cell], budget: float, seed: int, count: int
) -> int:
    """Return the alarms of so many nights without a regression."""
    nights = Nights(policy, cells, budget, random.Random(f"healthy {seed} {policy.name}"))
    return sum(nights.night().alarms for _ in range(count))
