"""Writes the whole record of a loop from the loop's process."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import yaml

from canary.config.spans import WARMUP, WARMUP_AFTER_LOOK, warmup_steps
from canary.machine.devices import DEVICE_ONLY
from canary.machine.gpu import device_in_use, health, list_devices
from canary.machine.packages import imported_packages
from canary.protocol.failure import describe_failure
from canary.protocol.job import Result, StepFile, disk_full
from canary.protocol.record_writer import RecordWriter
from canary.protocol.trainer_config import as_config
from canary.record.alert import Severity
from canary.record.folder import RunFolder, new_run_id
from canary.record.profile_folder import OFF, window_of
from canary.record.step_row import Row
from canary.record.tracked import exact_scalars, row_scalars
from canary.training.anomaly.run_detectors import RunDetectors
from canary.training.collectors.calls import WrittenFiles, can_count_calls, count_calls
from canary.training.collectors.host import HostMeter
from canary.training.collectors.profiler import StepProfiler
from canary.training.exact.signals import ExactSignals
from canary.training.exact.trainer_settings import describe_device, scales_gradients
from canary.training.launch import watching
from canary.training.look import Look, no_look, signals_of, unmeasured_in
from canary.training.recorder.attached import Keeper, is_failure, process_started
from canary.training.recorder.collector import LoopCollector
from canary.training.recorder.loop import Loop

LOG = (
    "The Recorder does not copy the output of your loop. To find it here, run the loop under "
    "canary exec.\n"
)
Tracker = Callable[[int, dict[str, float]], None]


class RecordKeeper(RecordWriter, Keeper):
    """A run's folder and its record. The training goes on if they cannot be written."""

    def __init__(
        self,
        name: str,
        output_dir: Path,
        look_steps: int,
        max_steps: int | None,
        tracker: Tracker | None,
        profiler: Mapping[str, Any] | None = None,
        stop_on: Severity | None = None,
    ) -> None:
        self._name = name
        self._look_steps = look_steps
        self.stop_after = max_steps
        self._tracker = tracker
        run_id = new_run_id(name, datetime.now(UTC))
        super().__init__(RunFolder.create(output_dir.absolute(), run_id), name, {})
        self._broken: OSError | None = None
        self._stack = contextlib.ExitStack()
        self._host = HostMeter()
        self._kept: list[Row] = []
        self._stop_on = stop_on
        self._profile = None if profiler is None else dict(profiler)
        self._window = None if profiler is None else window_of(profiler, self.folder.path)

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    def begin(self, loop: Loop) -> Look:
        """Write what is known before the first step."""
        startup = time.perf_counter() - process_started()
        self._loop = loop
        self._device = loop.device
        training = loop.describe()
        self._dtype = str(training["dtype"])
        config = {
            "name": self._name,
            **as_config(training),
            "device": self._device.type,
            "threads": torch.get_num_threads(),
            "max_steps": self.stop_after,
            "look_steps": self._look_steps,
            "metrics_warmup_steps": WARMUP_AFTER_LOOK if self._look_steps else WARMUP,
            "output_dir": str(self.folder.path.parent),
        }
        if self._profile is not None:
            config["profiler"] = self._profile
        self.folder.config.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        self.folder.log.write_text(LOG, encoding="utf-8")
        self.record.config.update(config)
        self.describe_machine()
        self.record.env["packages"] = {**imported_packages()}
        self.record.notes += notes()
        self.record.unmeasured.update(unmeasured_of(loop))
        self._look_at_device()
        self.add_launch(self.launch)
        self._startup = {"before_training": startup}
        self.record.launches[-1].startup_seconds = self._startup
        self.record.perf.startup_seconds = self._startup
        self._written = StepFile(self.folder.steps)
        self._watch = RunDetectors(
            self.folder.path,
            self.launch,
            scaled_gradients=scales_gradients(training),
            stop_on=self._stop_on,
        )
        self.write()
        if self._look_steps:
            return self._look_begins()
        self._host.begin()
        return no_look()

    def _look_at_device(self) -> None:
        self.record.env["device"] = describe_device(self._device, self._dtype)
        if self._device.type == "cuda":
            variable = os.environ.get("CUDA_VISIBLE_DEVICES")
            device = device_in_use("auto", list_devices().found, variable)
            if device is not None:
                self.record.gpu_health.update(health(device))

    def _look_begins(self) -> Look:
        # A notebook may hold the models of other loops too.
        exact = ExactSignals(self._loop, whole_process=False)
        look = Look(self._look_steps, exact, self._look_over)
        if self.stop_after is not None:
            look.length_is(self.stop_after)
        self._watching = watching(look, self._loop, again=False)
        self._calls = self._stack.enter_context(count_calls()) if can_count_calls() else None
        folder = self.folder
        by_canary = (folder.steps, folder.alerts, folder.log, folder.path)
        self._files = WrittenFiles(leave_out=by_canary)
        self._files.begin()
        return look

    def profiler(self) -> StepProfiler | None:
        """Return the profiler if the user asked for one."""
        return None if self._window is None else StepProfiler(self._window, self._device)

    def keep(self, row: Row) -> None:
        """Write one row. After the first failed write, no more rows are written.

        Raises:
            StopTraining: an alert ends the loop.
        """
        stop = self._watch.judge(row)
        self._track(row["step"], row_scalars(row))
        self._write(row)
        if stop is not None:
            raise stop

    def _write(self, row: Row) -> None:
        if self._broken is not None:
            return
        try:
            self._written.append(row)
            if row.get("look"):
                self._kept.append(row)
        except OSError as error:
            self._broken = error
            print(f"canary: recording stops here: {error}", file=sys.stderr, flush=True)

    def _track(self, step: int, scalars: dict[str, float]) -> None:
        """Call the tracker. After its first error, only the tracker is left out."""
        if self._tracker is None:
            return
        try:
            self._tracker(step, scalars)
        except Exception as error:  # noqa: BLE001 - a tracker may raise anything
            self._tracker = None
            words = f"the tracker failed and gets no more steps: {type(error).__name__}: {error}"
            self.record.notes.append(words)
            print(f"canary: {words}", file=sys.stderr, flush=True)

    def _look_over(self, exact: ExactSignals) -> None:
        """Put the signals into the record; the steps that follow are timed."""
        calls = self._files.so_far()
        self._files.end()
        if self._calls is not None:
            calls = {**self._calls.describe(), **calls}
        self._stack.close()
        made = exact.contain(lambda: signals_of(exact, self._kept, self._loop, calls))
        if made and (facts := self._watching.told(made)):
            made["facts"] = facts
        self.record.exact.update(made or {})
        self.record.unmeasured.update(unmeasured_in(exact))
        self.record.env["packages"] = {**imported_packages()}
        self._track(len(self._kept), exact_scalars(self.record.exact))
        with self._given_up_on_error():
            self.write()
        self._host.begin()

    def end(self, collector: LoopCollector, error: BaseException | None) -> None:
        """Finish the record, and print its status."""
        if error is not None and is_failure(error):
            collector.give_up()
            self._stack.close()
            result = describe_failure(error)
            with contextlib.suppress(RuntimeError):  # of a device that failed
                collector.rows.flush(wait=True)
        else:
            result = self._completed(collector)
            self._keep_host(collector)
        self._host.stop()
        self._written.close()
        with self._given_up_on_error():
            self._finish(result)
        words = f": {result.reason}" if result.reason else ""
        print(f"canary: {result.status}{words}; {self.path}", file=sys.stderr, flush=True)

    def _completed(self, collector: LoopCollector) -> Result:
        collector.stop()
        if self._broken is not None:
            full = self._broken.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = f"a row could not be written: {self._broken}"
            return disk_full(str(self.path)) if full else Result(status="failed", reason=reason)
        if not collector.steps:
            return Result(status="failed", reason=self._loop.why_no_step(collector.begun))
        return Result(status="completed")

    def _keep_host(self, collector: LoopCollector) -> None:
        result = Result(
            "running",  # until `_finish`
            startup_seconds=self._startup,
            unmeasured={**self._host.unmeasured, **collector.unmeasured()},
            host=self._host.end(collector.steps - len(self._kept)),
        )
        self.close_launch(self.launch, result, collector.steps)
        self.keep_result(result)

    def warmup(self, rows: Sequence[Row]) -> int:
        """Return the usual number of steps."""
        looked = sum(bool(row.get("look")) for row in rows)
        warmup = warmup_steps(looked, len(rows))
        self.record.config["metrics_warmup_steps"] = warmup
        return warmup

    def _finish(self, result: Result) -> None:
        self.record.env["device"] = describe_device(self._device, self._dtype)
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


def notes() -> list[str]:
    """Return notes for the reader of the record."""
    found = []
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        found.append(f"only rank 0 of {ranks} is recorded; canary exec records all ranks")
    return found


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
