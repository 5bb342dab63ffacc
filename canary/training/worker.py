"""The training process of one launch: `python -m canary.training.worker JOB.json`.

Reads from top to bottom: tie the process to its parent, import the training stack, build the
trainer, attach the probes, train, leave the result. It writes rows as steps end and never touches
`metrics.json`, which belongs to the parent.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from canary.config.load import load_config
from canary.config.schema import CanaryConfig
from canary.config.trainers import BUILT_IN_STEPS
from canary.errors import CanaryError, ConfigError
from canary.protocol.failure import FULL, describe_failure, one_line
from canary.protocol.job import EXIT_DISK_FULL, Job, Result
from canary.protocol.saved_model import leave_model, require_savable
from canary.protocol.spec import WorkloadSpec
from canary.record.ranks import rank_path
from canary.training.lifeline import die_with_parent

if TYPE_CHECKING:
    from canary.training.launch import Inside

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Numbers of mallopt(3)."""
KEPT = 1 << 30
"""Bytes at the end of the heap that stay with the process."""


def keep_freed_memory() -> None:
    """Has malloc keep what is freed, where it is glibc's.

    Deterministic torch fills each new tensor, and a large one comes from the kernel page by page:
    half of a probe's time went there. No launch whose memory is measured does this.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(M_MMAP_MAX, 0)
            mallopt(M_TRIM_THRESHOLD, KEPT)


def main(arguments: list[str]) -> int:
    """Runs the job named on the command line; 0 when the training completed."""
    started = time.perf_counter()
    die_with_parent()
    signal.signal(signal.SIGTERM, _interrupt)
    job = Job.read(Path(arguments[0]))
    inside = None
    try:
        # From here on: the training stack takes seconds, and may be what fails.
        from canary.training.launch import Inside

        inside = Inside(job, started, own_process=True)
        result = _train(job, inside)
    except BaseException as error:  # noqa: BLE001 - the process's last word must be in the record
        if not isinstance(error, CanaryError):
            with contextlib.suppress(OSError):
                traceback.print_exc()
        result = describe_failure(error)
    try:
        if inside is None:
            result.write(rank_path(Path(job.result_file), int(os.environ.get("RANK", "0"))))
        else:
            inside.leave(result)
    except OSError as error:
        if error.errno in FULL:
            return EXIT_DISK_FULL
        raise
    return 0 if result.status == "completed" else 1


def leave(code: int) -> NoReturn:
    """Ends the process without taking its modules apart: that takes a second. Torch aborts now and
    then where its process groups are taken apart while others go, and torchrun then waits for
    minutes; threads of gilknocker may want Python's lock when there is none any more."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _train(job: Job, inside: Inside) -> Result:
    config = load_config(job.config_file).config

    from canary.training.collectors.calls import count_calls
    from canary.training.launch import set_up_torch
    from canary.training.reporting import Reporter, keep_tensorboard, silence
    from canary.training.trainers import build_trainer
    from canary.training.trainers.replay import completions_of

    set_up_torch(job)
    if job.kind == "probe":
        keep_freed_memory()
    keep_tensorboard(job)
    inside.lap("imports")
    with count_calls() as calls, contextlib.ExitStack() as around:
        spec = _spec(job, config)
        trainer = _build(build_trainer, spec)
        drawn = around.enter_context(completions_of(trainer, job.kind, spec.notes, job.stop_after))
        if job.kind == "measured":
            inside.tell = Reporter(trainer, job).step
        else:
            silence(trainer)
        inside.lap("build")
        if job.save_model is not None:
            require_savable(trainer)
        inside.attach(trainer).run(trainer.train)
    inside.notes += spec.notes
    result = inside.completed(trainer, calls)
    if drawn is not None:
        result = replace(result, exact={**result.exact, "generation": drawn.described()})
    if job.save_model is not None:
        leave_model(trainer, spec, Path(job.save_model))
    return result


def _build(build: Callable[[WorkloadSpec], Any], spec: WorkloadSpec) -> Any:
    """Builds the trainer; a package that is not there, or a setting that breaks it, is the
    config's matter."""
    try:
        return build(spec)
    except ImportError as error:
        raise ConfigError(
            f"these settings need a package that is not installed: {one_line(error)}",
            "install it, or change the setting that asks for it",
        ) from error
    except (TypeError, ValueError) as error:
        text = str(error)
        for name, value in spec.config.trainer_args.items():
            if name in text or (isinstance(value, str) and value in text):
                raise ConfigError(
                    f"the trainer refuses trainer_args.{name}: {one_line(error)}",
                    f"correct or remove trainer_args.{name}",
                ) from error
        raise


def _spec(job: Job, config: CanaryConfig) -> WorkloadSpec:
    rank = int(os.environ.get("RANK", "0"))
    # Each rank saves a model of its own: none reads what another has half written.
    scratch = Path(job.scratch_dir) / (f"rank{rank}" if rank else "")
    scratch.mkdir(exist_ok=True)
    return WorkloadSpec(
        config=config,
        scratch_dir=scratch,
        cache_dir=Path(job.cache_dir),
        max_steps=config.max_steps or BUILT_IN_STEPS,
        rows_dir=Path(job.rows_dir),
        ranks=int(os.environ.get("WORLD_SIZE", "1")),
    )


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
