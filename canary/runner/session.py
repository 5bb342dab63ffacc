"""The record of one run, updated while the run goes on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from canary.config.load import LoadedConfig
from canary.config.render import resolved_yaml
from canary.config.schema import CanaryConfig
from canary.config.spans import warmup_steps
from canary.files import replace_file
from canary.imports.record import warmup_of
from canary.protocol.heartbeat import Readings
from canary.protocol.job import Listener, Result, Variation
from canary.protocol.record_writer import RecordWriter
from canary.protocol.trainer_config import asked_config
from canary.record.folder import RunFolder
from canary.record.step_row import Row
from canary.record.summary import last_untimed

WRITE_EVERY_S = 1.0
"""Least seconds between two writes of `metrics.json` while a launch runs."""


def _shown(config: Path) -> str:
    """Return a config's path as a user would name it: one of a worktree, which will be removed, as
    it is in the repository."""
    roots = (folder for folder in config.parents if (folder / ".git").exists())
    root = next(roots, None) if config.is_absolute() else None
    return str(config if root is None else config.relative_to(root))


class Session(RecordWriter, Listener):
    """Updates the record of one run, and passes what a runner sends on to a listener."""

    def __init__(
        self,
        loaded: LoadedConfig,
        folder: RunFolder,
        listener: Listener,
        *,
        echo: bool = False,
        asks_again: bool = False,
        variation: Variation | None = None,
    ) -> None:
        super().__init__(folder, loaded.config.name, asked_config(loaded.config))
        self.config: CanaryConfig = loaded.config
        self.record.config_file = None if loaded.source is None else _shown(loaded.source)
        self.is_named = loaded.is_named
        self.echo = echo
        """Whether a user's command gets this process's standard streams."""
        self.variation = variation
        """What the launches do in another way."""
        self.asks_again = asks_again
        """Whether the look of a user's command calls the model again."""
        self._listener = listener
        self.readings: Readings | None = None
        """Samples of the machine during the launch that runs."""
        self._begun = False
        self._launch_steps = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        """First and last finished step of the launch, as the training counts them."""
        self._written = 0.0
        replace_file(folder.config, resolved_yaml(loaded))

    def training_time(self) -> tuple[float, float] | None:
        """Return start and end (epoch seconds) of the newest launch's timed steps, or None."""
        newest = self.record.launches[-1].index
        rows = [row for row in self.rows_so_far() if row["launch"] == newest]
        last = last_untimed(rows, self.warmup(rows))
        after = [row for row in rows if row["step"] > last]
        if not after:
            return None
        return after[0]["time"] - after[0]["wall_s"], after[-1]["time"]

    # Events of the runner: recorded, then passed on.

    def launch_begins(self, index: int, steps: int | None) -> None:
        """Record that a launch is about to start."""
        self.add_launch(index)
        self._launch_steps = 0
        self.first_step = self.last_step = None
        self.write()
        self._listener.launch_begins(index, steps)

    def step_ended(self, row: Row) -> None:
        """Count the step; write `metrics.json` at most once per second."""
        if self.last_step is not None and int(row["step"]) <= self.last_step:
            self._launch_steps = 0  # the training began its steps anew
        self._launch_steps += 1
        self.last_step = int(row["step"])
        if self.first_step is None:
            self.first_step = self.last_step
        first, self._begun = not self._begun, True
        self._listener.step_ended(row)
        if first or time.monotonic() - self._written > WRITE_EVERY_S:
            # A user's command goes on if its record cannot be written: the last write says so.
            is_users = self.config.training_type == "exec"
            with contextlib.suppress(OSError) if is_users else contextlib.nullcontext():
                self.write()

    def launch_ended(self, result: Result) -> None:
        """Record the result of a launch."""
        self.close_launch(self.record.launches[-1].index, result, self._launch_steps)
        self._listener.launch_ended(result)

    def waiting(self) -> None:
        """Pass on new samples of the machine, and let the terminal redraw."""
        reading = None if self.readings is None else self.readings.fresh()
        if reading is not None:
            self._listener.sampled(reading)
        self._listener.waiting()

    def write(self) -> None:
        """Replace `metrics.json` by the present state."""
        self._written = time.monotonic()
        super().write()

    def warmup(self, rows: Sequence[Row]) -> int:
        """Return the warm-up steps. Without a given number they depend on the steps done so far."""
        given = self.config.metrics_warmup_steps
        if self.record.source is not None:
            given = warmup_of(rows, given)
        elif given is None:
            first = [row for row in rows if row["launch"] == rows[0]["launch"]]
            given = warmup_steps(sum(bool(row.get("look")) for row in first), len(first))
        self.record.config["metrics_warmup_steps"] = given
        return given


def with_output_dir(loaded: LoadedConfig, output_dir: Path) -> LoadedConfig:
    """Return the config with this output folder."""
    config = loaded.config.model_copy(update={"output_dir": str(output_dir)})
    return replace(loaded, config=config, origins=loaded.origins | {"output_dir": "-o"})
