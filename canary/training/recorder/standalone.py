"""Writes the whole record of a loop from the loop's process."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import yaml

from canary.config.load import load_values
from canary.config.schema import CanaryConfig
from canary.config.spans import WARMUP, WARMUP_AFTER_LOOK, warmup_steps
from canary.errors import DISK_FULL
from canary.machine.devices import DEVICE_ONLY
from canary.machine.packages import imported_packages
from canary.protocol.failure import describe_failure
from canary.protocol.job import Job, Result, disk_full
from canary.protocol.record_writer import RecordWriter
from canary.protocol.trainer_config import as_config
from canary.record.exact import Exact
from canary.record.folder import RunFolder, new_run_id
from canary.record.profile_folder import OFF, window_of
from canary.record.step_row import Row
from canary.training.exact.effective import describe_device
from canary.training.launch import TrainingLaunch
from canary.training.look import Look
from canary.training.recorder.attached import LaunchKeeper, is_failure, process_started
from canary.training.recorder.collector import LoopCollector
from canary.training.recorder.loop import Loop

LOG = (
    "The Recorder does not copy the output of your loop. To find it here, run the loop under "
    "canary exec.\n"
)


def checked(given: Mapping[str, Any]) -> CanaryConfig:
    """Return what a Recorder was given, as the config of a loop.

    Raises:
        ConfigError: a value that a config would not take either.
    """
    values = {"training_type": "exec", "command": ["loop"], **given}
    return load_values(None, {key: (value, "Recorder") for key, value in values.items()}).config


class RecordKeeper(RecordWriter, LaunchKeeper):
    """A run's folder and its record. The training goes on if they cannot be written."""

    def __init__(self, config: CanaryConfig) -> None:
        self._name = config.name
        run_id = new_run_id(config.name, datetime.now(UTC))
        folder = RunFolder.create(Path(config.output_dir).absolute(), run_id)
        RecordWriter.__init__(self, folder, config.name, config={})
        self._broken: OSError | None = None
        self._profile = config.profiler.model_dump()
        self._window = window_of(self._profile, self.path)
        scratch = str(self.folder.scratch)
        job = Job(
            launch=0,
            config_file=str(self.folder.config),
            rows_file=str(self.folder.steps),
            result_file=str(self.folder.scratch / "result.json"),
            scratch_dir=scratch,
            cache_dir=str(self.path),  # what is written there is the canary's
            rows_dir=scratch,
            look_steps=config.look_steps,
            stop_after=config.max_steps,
            profile=None if self._window is None else asdict(self._window),
            stop_on=config.stop_on,
        )
        launch = TrainingLaunch(job, process_started(), is_watched=False)
        launch.on_look, launch.on_unwritten = self._look_over, self._stops
        LaunchKeeper.__init__(self, job, launch)

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    def begin(self, loop: Loop) -> Look:
        """Write what is known before the first step."""
        training = loop.describe()
        self._dtype = str(training["dtype"])
        look_steps = self._job.look_steps
        config = {
            "name": self._name,
            **as_config(training),
            "device": loop.device.type,
            "threads": torch.get_num_threads(),
            "max_steps": self.stop_after,
            "look_steps": look_steps,
            "metrics_warmup_steps": WARMUP_AFTER_LOOK if look_steps else WARMUP,
            "output_dir": str(self.path.parent),
        }
        if self._window is not None:
            config["profiler"] = self._profile
        self.folder.config.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        self.folder.log.write_text(LOG, encoding="utf-8")
        self.record.config.update(config)
        self.describe_machine()
        self.record.env["packages"] = {**imported_packages()}
        ranks = int(os.environ.get("WORLD_SIZE", "1"))
        if ranks > 1:
            words = f"only rank 0 of {ranks} is recorded; canary exec records all ranks"
            self.record.notes.append(words)
        self.record.unmeasured.update(unmeasured_of(loop))
        self.record.env["device"] = describe_device(loop.device, self._dtype)
        self.add_launch(self.launch)
        look = super().begin(loop)
        startup = {**self._training.startup}
        self.record.launches[-1].startup_seconds = self.record.perf.startup_seconds = startup
        self.write()
        if self.stop_after is not None:
            look.length_is(self.stop_after)
        return look

    def _stops(self, error: OSError) -> None:
        self._broken = error
        print(f"canary: recording stops here: {error}", file=sys.stderr, flush=True)

    def _look_over(self, exact: Exact) -> None:
        """Put the signals into the record; the steps that follow are timed."""
        self._stack.close()
        self.record.exact.update(exact)
        self.record.unmeasured.update(self._training.unseen)
        self.record.env["packages"] = {**imported_packages()}
        with self._given_up_on_error():
            self.write()

    def end(self, collector: LoopCollector, error: BaseException | None) -> None:
        """Finish the record, and print its status."""
        if error is not None and is_failure(error):
            collector.give_up()
            result = describe_failure(error)
            with contextlib.suppress(RuntimeError):  # of a device that failed
                collector.rows.flush(wait=True)
        else:
            collector.stop()
            result = self._completed(self._result(collector), collector.steps)
        self._training.close()
        self._stack.close()
        with self._given_up_on_error():
            self._finish(result)
        words = f": {result.reason}" if result.reason else ""
        print(f"canary: {result.status}{words}; {self.path}", file=sys.stderr, flush=True)

    def _completed(self, result: Result, steps: int) -> Result:
        """Keep what the launch found, and return how the run ended."""
        self.close_launch(self.launch, replace(result, status="running"), steps)  # until `_finish`
        self.keep_result(replace(result, exact={}, calls={}))
        if self._broken is None:
            return Result(result.status, result.reason)
        if self._broken.errno in DISK_FULL:
            return disk_full(str(self.path))
        return Result("failed", f"a row could not be written: {self._broken}")

    def warmup(self, rows: Sequence[Row]) -> int:
        """Return the usual number of steps."""
        looked = sum(bool(row.get("look")) for row in rows)
        warmup = warmup_steps(looked, len(rows))
        self.record.config["metrics_warmup_steps"] = warmup
        return warmup

    def _finish(self, result: Result) -> None:
        self.record.env["device"] = describe_device(self._loop.device, self._dtype)
        if self._window is not None:
            rows = self.rows_so_far()
            self.keep_profile(self._window, rows[-1]["step"] if rows else None)
        self.finish(result)
        shutil.rmtree(self.folder.scratch, ignore_errors=True)

    @contextlib.contextmanager
    def _given_up_on_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._broken = error
            print(f"canary: the record cannot be written: {error}", file=sys.stderr, flush=True)


def unmeasured_of(loop: Loop) -> dict[str, str]:
    """Return the reason for each value that is not measured."""
    found = {"profiler": OFF, **loop.unmeasured()}
    sampled = "only canary exec samples it, from outside the process"
    found |= dict.fromkeys(("memory.sampled", "perf.cpu_utilization_avg"), sampled)
    if loop.device.type == "cuda":
        found["perf.gpu_utilization_avg"] = sampled
    else:
        found |= dict.fromkeys(DEVICE_ONLY, f"the loop trains on {loop.device.type}")
    return found
