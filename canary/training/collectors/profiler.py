"""Runs torch's profiler on a window of measured steps; writes the trace and the operators."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, supported_activities

from canary.record import jsonio
from canary.record.profile import OPERATORS, SCHEMA_VERSION, Traced, Window, summarise_profile


class StepProfiler:
    """Profiles the steps of the window in one training. Only flagged steps pay for profiling: it
    starts in the first step of the window, and writes its files before the last one ends. The next
    step is flagged too: it allocates released memory again, and other ranks wait in it for the rank
    that wrote."""

    def __init__(self, window: Window, device: torch.device) -> None:
        self._window = window
        self._device = device
        self._running: profile | None = None
        self._steps: list[int] = []
        self._over = False
        self._next_too: int | None = None

    def step_ends(self, step: int) -> bool:
        """Finish the window at its last step, while the step runs. Return whether it is flagged."""
        if self._running is None:
            return step == self._next_too
        self._steps.append(step)
        if step >= self._window.last_step:
            self._finish()
            self._next_too = step + 1
        return True

    def training_ended(self) -> None:
        """Finish a window that reaches beyond the training's end."""
        if self._running is not None and self._steps:
            self._finish()
        self.give_up()

    def give_up(self) -> None:
        """Stop without files: the training failed, or no profiled step ended."""
        running, self._running = self._running, None
        if running is not None:
            # After a device failure stopping may fail too; the profile is not needed.
            with contextlib.suppress(RuntimeError):
                running.stop()

    def step_follows(self, done: int) -> None:
        """Start profiling if the window begins after `done` steps."""
        if self._over or self._running is not None or done + 1 != self._window.start_step:
            return
        if torch.autograd._profiler_enabled():
            # Torch would silently take over the running profiler.
            self._leave_reason("another profiler was already running in the training")
            return
        activities = [ProfilerActivity.CPU]
        if not self._no_device():
            activities.append(ProfilerActivity.CUDA)
        running = profile(
            activities=activities,
            record_shapes=self._window.record_shapes,
            profile_memory=self._window.profile_memory,
            with_stack=self._window.with_stack,
        )
        try:
            running.start()
        except RuntimeError as error:
            self._leave_reason(f"torch's profiler did not start: {str(error).splitlines()[0]}")
            return
        self._running = running
        self._began = time.perf_counter()

    def _no_device(self) -> str:
        """Return why the device cannot be traced; empty if it can."""
        if self._device.type != "cuda":
            return f"the steps ran on the {self._device.type.upper()}"
        if ProfilerActivity.CUDA not in supported_activities():
            return "this build of torch cannot trace the device (no CUPTI)"
        return ""

    def _finish(self) -> None:
        running, self._running = self._running, None
        assert running is not None
        self._over = True
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        wall_ms = 1000 * (time.perf_counter() - self._began)
        running.stop()
        unmeasured = self._write_trace(running)
        try:
            traced = Traced(
                steps=tuple(self._steps),
                wall_ms=wall_ms,
                averages=running.key_averages(),
                events=running.events() or (),
                no_device=self._no_device(),
            )
            document = summarise_profile(traced)
        except AttributeError as error:
            self._leave_reason(f"the events of torch {torch.__version__} cannot be read: {error}")
            return
        self._leave(document | {"unmeasured": document["unmeasured"] | unmeasured})
        running.profiler = None
        gc.collect()  # its events hold each other
        # glibc keeps their memory, and it would count as the training's.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)

    def _write_trace(self, running: profile) -> dict[str, str]:
        """Write the trace. Return what is not measured without it."""
        try:
            running.export_chrome_trace(self._window.trace)
        except (OSError, RuntimeError) as error:
            return {"profiler.trace_path": f"the trace could not be written: {error}"}
        return {}

    def _leave_reason(self, reason: str) -> None:
        self._over = True
        self._leave({"schema_version": SCHEMA_VERSION, "unmeasured": {"profiler": reason}})

    def _leave(self, document: dict[str, Any]) -> None:
        path = Path(self._window.folder) / OPERATORS
        text = jsonio.dumps({"torch": torch.__version__} | document, indent=1) + "\n"
        try:
            jsonio.replace_file(path, text)
        except OSError as error:
            print(f"canary: the profile was not written: {error}", file=sys.stderr, flush=True)
