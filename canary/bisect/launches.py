"""Runs states, or replays their logged runs."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from canary.bisect.caches import compiled
from canary.bisect.journal import Journal, Kind, Row, Stage
from canary.bisect.model import CannotRun, State, Workbench
from canary.campaign.side import Side
from canary.errors import MachineError, RecordError, UsageError
from canary.record.folder import load_record
from canary.record.types import RunRecord
from canary.runner.display.progress import CampaignPanel

SETTINGS: dict[Kind, tuple[str, ...]] = {
    "look": ("repeats=1", "exact=true"),
    "whole": ("repeats=1", "exact=false"),
}
REPLAY_SLACK = 1.1
"""The time of the next pair is estimated from those before it."""
LEAST_FREE = 64 << 20
"""Bytes; with fewer on the disk of the records, a failed run tells nothing."""


@dataclass
class Launches:
    """Runs states in their order and logs each run; see `Journal`."""

    bench: Workbench
    journal: Journal
    panel: CampaignPanel | None = None
    clock: Callable[[], float] = time.monotonic
    replayed: int = 0
    """Runs taken from the log."""
    _warmed: set[State] = field(default_factory=set)

    def run(self, stage: Stage, state: State, kind: Kind, name: str = "") -> RunRecord:
        """Run a state once and return its record, even if the run failed. `name`: for the panel.

        Raises:
            CannotRun: the state does not build, or its run leaves no record.
            RecordError: the log or a logged record cannot be used.
        """
        row = self.journal.replayed(stage, state, kind)
        if row is None:
            row = self._run(stage, state, kind, name)
            self.journal.add(row)
        else:
            self.replayed += 1
        if row.run is None:
            raise CannotRun(row.why_not or "it cannot run")
        return self._record(row.run)

    def allowed(self, stage: Stage, budget_s: float | None) -> float | None:
        """Return the seconds for a stage: never less than the log holds of it, so that a finished
        bisect keeps its answer."""
        if budget_s is None:
            return None
        logged = sum(row.seconds for row in self.journal.to_replay if row.stage == stage)
        return max(budget_s, REPLAY_SLACK * logged)

    def _run(self, stage: Stage, state: State, kind: Kind, name: str) -> Row:
        began, label = self.clock(), self.bench.label(state)
        run, why = None, None
        try:
            side = self.bench.side(state)
            record = self._warm(side, state, kind, name)
            if record.status != "completed":
                self._require_space()
            run = str((side.output_dir / record.run_id).relative_to(self.journal.folder))
        except CannotRun as error:
            why = str(error)
        except (UsageError, MachineError) as error:
            why = re.sub(rf"^\w+ \({re.escape(label)}\): ", "", str(error))
            self._require_space()
        seconds = max(0.0, self.clock() - began)
        return Row(
            stage=stage,
            label=label,
            state=hex(state),
            kind=kind,
            run=run,
            why_not=why,
            seconds=seconds,
        )

    def _require_space(self) -> None:
        """Raise MachineError on a full disk, which is not the state's fault and must not be logged
        as such."""
        if shutil.disk_usage(self.journal.folder).free < LEAST_FREE:
            raise MachineError(
                "the disk is full", "free some space; then the same command continues"
            )

    def _warm(self, side: Side, state: State, kind: Kind, name: str) -> RunRecord:
        """Run a side. If its first timed run compiled code, run it again: it was slower by that."""
        first = kind == "whole" and state not in self._warmed
        before = compiled(side.output_dir, side.environment) if first else 0
        record = self._launch(side, kind, name)
        self._warmed.add(state)
        if not first or record.status != "completed":
            return record
        if compiled(side.output_dir, side.environment) == before:
            return record
        return self._launch(side, kind, f"{name}, again with warm caches")

    def _launch(self, side: Side, kind: Kind, name: str) -> RunRecord:
        if self.panel is None:
            return side.run_with(SETTINGS[kind])
        self.panel.name = name
        try:
            return side.run_with(SETTINGS[kind], on_event=self.panel.replay)
        finally:
            self.panel.erase()

    def _record(self, run: str) -> RunRecord:
        folder = self.journal.folder.resolve()
        place = (folder / run).resolve()
        if not place.is_relative_to(folder):
            raise RecordError(f"the log names {run}, which is outside its folder")
        return load_record(place)
