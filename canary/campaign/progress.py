"""The lines printed while runs of two sides alternate: each run, and the interval so far."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from canary.campaign.pairs import Plan, Role
from canary.campaign.side import Side
from canary.compare.report import Check, Comparison
from canary.compare.timing.estimate import signed_percent
from canary.compare.timing.sequential import LOOKS
from canary.record.types import RunRecord
from canary.report.view import TELLS_NOTHING, TOO_NOISY

BAR_CELLS = 41
BAR_REACH = 40.0
"""Percent at either end of the drawn interval."""


class PairProgress:
    """Prints the progress line by line; see `PairListener`."""

    def __init__(
        self, say: Callable[[str], None], plan: Plan, *, only_probes: bool = False
    ) -> None:
        self._say = say
        self._plan = plan
        self._only_probes = only_probes
        self._spent: list[float] = []
        self._next = plan.pairs or LOOKS[0]

    def started(self, base: Side, head: Side, folder: Path) -> None:
        """Print what is compared, how often, and where the records go."""
        fixed = self._plan.pairs
        how = pairs_of(fixed) if fixed else "looks after 3, 5 and 8 pairs"
        how = "one probe per side" if self._only_probes else how
        self._say(f"base {base.label}, head {head.label}: {how}")
        self._say(f"records: {folder}")

    def run_ended(self, pair: int, role: Role, record: RunRecord, seconds: float) -> None:
        """Print the result of one run and the time to the next look."""
        self._spent.append(seconds)
        if record.status != "completed":
            self._say(f"pair {pair + 1}  {role}  {record.status}: {record.reason}")
            return
        runs_left = 2 * self._next - len(self._spent)
        mean = sum(self._spent) / len(self._spent)
        more = f"   next look in about {duration(runs_left * mean)}" if runs_left > 0 else ""
        timed = record.perf.step_time
        words = f"{1000 * timed.mean:8.1f} ms per step (mean)" if timed.count else "only the probe"
        self._say(f"pair {pair + 1}  {role}  {words}{more}")

    def pair_ended(self, pairs: int, clock: Check | None) -> None:
        """Draw the interval of the step time, or of CPU time per step, so far."""
        if clock is None or clock.interval is None or clock.delta_pct is None:
            return
        low, high = clock.interval
        words = "CPU time" if clock.name == "cpu_time" else "step time"
        known = f"between {signed_percent(low)} and {signed_percent(high)}"
        if high - low > TELLS_NOTHING:
            known = TOO_NOISY
        self._say(
            f"        {bar(low, clock.delta_pct, high, clock.threshold)}\n"
            f"        {words} {signed_percent(clock.delta_pct)}, {known} after {pairs_of(pairs)}"
        )

    def exact_failed(self, pairs: int, found: Comparison) -> None:
        """Print the failure of an exact check before the other pairs run."""
        self._say(f"after {pairs_of(pairs)}: {found.first_line}")

    def looked(self, pairs: int, found: Comparison, next_look: int | None) -> None:
        """Print the verdict of a look, or that more pairs follow."""
        if next_look is None:
            self._say(f"after {pairs_of(pairs)}: {found.verdict}")
            return
        self._next = next_look
        self._say(f"after {pairs_of(pairs)}: not decided yet, continuing to {pairs_of(next_look)}")


def pairs_of(count: int) -> str:
    """`1 pair`, `3 pairs`."""
    return f"{count} pair{'' if count == 1 else 's'}"


def bar(low: float, change: float, high: float, tolerance: float | None) -> str:
    """Draw an interval from -40% to +40%: `-` inside, `o` change, `|` zero, `!` tolerance."""

    def cell(percent: float) -> int:
        share = (percent + BAR_REACH) / (2 * BAR_REACH)
        return round(min(1.0, max(0.0, share)) * (BAR_CELLS - 1))

    cells = [" "] * BAR_CELLS
    for place in range(cell(low), cell(high) + 1):
        cells[place] = "-"
    cells[cell(0.0)] = "|"
    if tolerance is not None:
        cells[cell(tolerance)] = "!"
    cells[cell(change)] = "o"
    return f"[{''.join(cells)}]"


def duration(seconds: float) -> str:
    """Return seconds below a minute and a half, else minutes."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
