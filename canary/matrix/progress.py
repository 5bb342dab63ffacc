"""How a matrix goes: what is done, runs and waits, and for how long still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from canary.campaign.pairs import duration
from canary.errors import printable
from canary.matrix.outcomes import WORST_FIRST
from canary.matrix.running import Matrix
from canary.report.view import verdict_count

EVERY_S = 60.0
"""Between two lines of state."""
LONGEST_REASON = 80


def state_line(matrix: Matrix) -> str:
    """Return the state on one line."""
    done = [one.outcome for one in matrix.entries if one.state == "done" and one.outcome]
    queued = matrix.launcher.queued()
    running = [one for one in matrix.running if one.cell.name not in queued]
    waiting = len(matrix.entries) - len(done) - len(running) - len(queued)
    parts = [f"{len(done)} of {len(matrix.entries)} done"]
    counts = Counter(one.verdict for one in done)
    parts += [
        verdict_count(one, counts[one]) for one in WORST_FIRST if one != "pass" and counts[one]
    ]
    parts.append(f"{len(running)} run" if len(running) != 1 else f"{running[0].cell.name} runs")
    if waiting:
        why = "" if running or queued else ": all devices are in use"
        parts.append(f"{waiting} wait{why}")
    if queued:
        reason = printable(Counter(queued.values()).most_common(1)[0][0])[:LONGEST_REASON]
        parts.append(f"{len(queued)} in the queue: {reason}")
    left = seconds_left(matrix)
    if left:
        parts.append(f"about {duration(left)} left")
    return " · ".join(parts)


def seconds_left(matrix: Matrix) -> float | None:
    """Return how long the matrix will take, if as many cells run on as now; None if nothing is
    known. A cell is expected to take what the others take; what runs has done half of its work."""
    took = [one.outcome.seconds for one in matrix.entries if one.outcome and one.outcome.seconds]
    if not took:
        return None
    running = {one.cell.name for one in matrix.running} - {*matrix.launcher.queued()}
    waiting = sum(one.state != "done" for one in matrix.entries) - len(running)
    return sum(took) / len(took) * (waiting + len(running) / 2) / max(1, len(running))


@dataclass
class View:
    """Tells each cell once as it ends; and the state, once a minute."""

    say: Callable[[str], None]
    """Prints a line for people."""
    clock: Callable[[], float]
    _said: set[str] = field(default_factory=set)
    _when: float | None = None

    def told(self, matrix: Matrix) -> None:
        """Show what is new."""
        for one in matrix.entries:
            if one.state == "done" and one.outcome is not None and one.cell.name not in self._said:
                self._said.add(one.cell.name)
                words, verdict = one.outcome.words, one.outcome.verdict
                if not words.lower().startswith(verdict):
                    words = f"{verdict}: {words}"
                self.say(f"{len(self._said)}/{len(matrix.entries)} {one.cell.name}: {words}")
        now = self.clock()
        if self._when is None:
            self._when = now
        elif now - self._when >= EVERY_S and len(self._said) < len(matrix.entries):
            self.say(state_line(matrix))
            self._when = now
