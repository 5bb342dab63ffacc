"""What is said while runs of two sides alternate: each run, and the interval that narrows."""

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


class Teller:
    """Says it line by line."""

    def __init__(
        self, say: Callable[[str], None], plan: Plan, *, probes_alone: bool = False
    ) -> None:
        self._say = say
        self._plan = plan
        self._probes_alone = probes_alone
        self._spent: list[float] = []
        self._next = plan.pairs or LOOKS[0]

    def begins(self, base: Side, head: Side, folder: Path) -> None:
        """What is compared, how often, and where the records go."""
        fixed = self._plan.pairs
        how = pairs_of(fixed) if fixed else "looks after 3, 5 and 8 pairs"
        how = "one probe of each side" if self._probes_alone else how
        self._say(f"base {base.label}, head {head.label}: {how}")
        self._say(f"records: {folder}")

    def ran(self, pair: int, role: Role, record: RunRecord, seconds: float) -> None:
        """One run has ended."""
        self._spent.append(seconds)
        if record.status != "completed":
            self._say(f"pair {pair + 1}  {role}  {record.status}: {record.reason}")
            return
        left = 2 * self._next - len(self._spent)
        mean = sum(self._spent) / len(self._spent)
        more = f"   about {duration(left * mean)} to the next look" if left > 0 else ""
        timed = record.perf.step_time
        words = f"{1000 * timed.mean:8.1f} ms per step (mean)" if timed.count else "probe alone"
        self._say(f"pair {pair + 1}  {role}  {words}{more}")

    def narrowed(self, pairs: int, clock: Check | None) -> None:
        """The change of the step time, or of CPU time per step, as far as it is known."""
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

    def differs(self, pairs: int, found: Comparison) -> None:
        """What has no noise failed, told before the other pairs run."""
        self._say(f"after {pairs_of(pairs)}: {found.first_line}")

    def looked(self, pairs: int, found: Comparison, next_look: int | None) -> None:
        """A look: decided, or going on."""
        if next_look is None:
            self._say(f"look at {pairs}: {found.verdict}")
            return
        self._next = next_look
        self._say(f"look at {pairs}: not decided yet, on to {pairs_of(next_look)}")


def pairs_of(count: int) -> str:
    """`1 pair`, `3 pairs`."""
    return f"{count} pair{'' if count == 1 else 's'}"


def bar(low: float, change: float, high: float, tolerance: float | None) -> str:
    """An interval in percent drawn between -40% and +40%: `-` inside, `|` zero, `!` tolerance."""

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
    """Seconds below a minute and a half, else minutes."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
