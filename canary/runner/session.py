"""The record of one run, kept up to date while the run goes on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from canary.config.load import METRICS_WARMUP, LoadedConfig
from canary.config.render import resolved_yaml
from canary.config.schema import CanaryConfig
from canary.protocol.job import Kind, Listener, Result
from canary.protocol.readings import Readings
from canary.protocol.record_writer import RecordWriter
from canary.protocol.trainer_config import asked_config
from canary.record.folder import (
    RunFolder,
)
from canary.record.step_row import Row
from canary.runner.distributed import Rendezvous

WRITE_EVERY_S = 1.0
"""Seconds between two writes of `metrics.json` while a launch runs."""


class Session(RecordWriter):
    """Keeps the record of one run up to date; a listener (the terminal) hears the same events."""

    def __init__(
        self,
        loaded: LoadedConfig,
        folder: RunFolder,
        listener: Listener,
        *,
        echo: bool = False,
        rendezvous: Rendezvous | None = None,
    ) -> None:
        super().__init__(folder, loaded.config.name, asked_config(loaded.config))
        self.config: CanaryConfig = loaded.config
        self.is_named = loaded.is_named
        self.echo = echo
        """Whether a user's command has this process's own streams."""
        self.rendezvous = rendezvous or Rendezvous()
        self._listener = listener
        self.readings: Readings | None = None
        """Of the launch that runs, where it is sampled."""
        self._measured = False
        self._launch_steps = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        """The first and the last step that the launch has ended, as the training counts."""
        self._written = 0.0
        folder.config.write_text(resolved_yaml(loaded), encoding="utf-8")

    def training_time(self) -> tuple[float, float] | None:
        """When the newest launch trained its steps after warm-up, in seconds since the epoch."""
        rows = self.measured_rows()
        warmup, newest = self.warmup(rows), self.record.launches[-1].index
        told = [row for row in rows if row["launch"] == newest and row["step"] > warmup]
        if not told:
            return None
        return told[0]["time"] - told[0]["wall_s"], told[-1]["time"]

    # What the runner reports, kept and passed on.

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Not sent by runners."""
        self._listener.run_begins(run_dir, config)

    def warned(self, text: str) -> None:
        """Not sent by runners."""
        self._listener.warned(text)

    def launch_begins(self, kind: Kind, index: int, steps: int | None) -> None:
        """A launch is about to start."""
        self.add_launch(kind, index)
        self._launch_steps = 0
        self.first_step = self.last_step = None
        self.write()
        self._listener.launch_begins(kind, index, steps)

    def step_ended(self, kind: Kind, row: Row) -> None:
        """A row came in; `metrics.json` follows at most once a second."""
        self._launch_steps += 1
        self.last_step = int(row["step"])
        if self.first_step is None:
            self.first_step = self.last_step
        first = kind == "measured" and not self._measured
        self._measured = self._measured or first
        self._listener.step_ended(kind, row)
        if first or time.monotonic() - self._written > WRITE_EVERY_S:
            # A user's command goes on where its record cannot be written; the last write says so.
            own = self.config.training_type == "exec"
            with contextlib.suppress(OSError) if own else contextlib.nullcontext():
                self.write()

    def launch_ended(self, kind: Kind, result: Result) -> None:
        """A launch is over, well or not."""
        self.close_launch(self.record.launches[-1].index, result, self._launch_steps)
        self._listener.launch_ended(kind, result)

    def sampled(self, reading: Mapping[str, float]) -> None:
        """Not sent by runners."""
        self._listener.sampled(reading)

    def waiting(self) -> None:
        """The runner has nothing new; the terminal may redraw."""
        reading = None if self.readings is None else self.readings.fresh()
        if reading is not None:
            self.sampled(reading)
        self._listener.waiting()

    def write(self) -> None:
        """Replaces `metrics.json` with what is known now."""
        self._written = time.monotonic()
        super().write()

    def warmup(self, rows: Sequence[Row]) -> int:
        """Steps left out of the speeds; of a training of unknown length, by what it had."""
        given = self.config.metrics_warmup_steps
        if given is None:
            done = max((row["step"] for row in rows), default=0)
            given = min(METRICS_WARMUP, done // 5)
            self.record.config["metrics_warmup_steps"] = given
        return given


def with_output_dir(loaded: LoadedConfig, output_dir: Path) -> LoadedConfig:
    """The config as if the folder had stood in it."""
    config = loaded.config.model_copy(update={"output_dir": str(output_dir)})
    return replace(loaded, config=config, origins=loaded.origins | {"output_dir": "-o"})
