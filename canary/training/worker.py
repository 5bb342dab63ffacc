"""The training process of one launch: `python -m canary.training.worker JOB.json`.

It imports the training stack, builds the trainer, attaches the collectors, trains and writes the
result. Only the parent writes `metrics.json`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from canary.config.load import load_config
from canary.config.schema import CanaryConfig
from canary.config.trainers import BUILT_IN_STEPS
from canary.errors import DISK_FULL, CanaryError, ConfigError
from canary.protocol.failure import describe_failure, one_line
from canary.protocol.job import EXIT_DISK_FULL, Job, Result
from canary.protocol.lifeline import die_with_parent
from canary.protocol.spec import WorkloadSpec
from canary.record.ranks import rank_path
from canary.training.collectors.ran import RAN

if TYPE_CHECKING:
    from canary.training.launch import TrainingLaunch


def main(arguments: list[str]) -> int:
    """Run the job named on the command line. Return 0 if the training completed."""
    started = time.perf_counter()
    die_with_parent()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    job = Job.read(Path(arguments[0]))
    RAN.begin(str(Path(job.result_file).parent), trains=True)
    launch = None
    try:
        # Imported here: the training stack takes seconds, and may fail to import.
        from canary.training.launch import TrainingLaunch

        launch = TrainingLaunch(job, started, own_process=True)
        result = _train(job, launch)
    except BaseException as error:  # noqa: BLE001 - the record must hold every failure
        if not isinstance(error, CanaryError):
            with contextlib.suppress(OSError):
                traceback.print_exc()
        result = describe_failure(error)
    try:
        if launch is None:
            result.write(rank_path(Path(job.result_file), int(os.environ.get("RANK", "0"))))
        else:
            launch.write(result)
    except OSError as error:
        if error.errno in DISK_FULL:
            return EXIT_DISK_FULL
        raise
    return 0 if result.status == "completed" else 1


def exit_fast(code: int) -> NoReturn:
    """End the process without Python's teardown. That would take a second. It can also fail: torch
    may abort when process groups are destroyed while other ranks exit, and torchrun then waits for
    minutes. Threads of gilknocker may ask for a GIL that no longer exists."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _train(job: Job, launch: TrainingLaunch) -> Result:
    config = load_config(job.config_file).config

    from canary.training.collectors.calls import count_calls
    from canary.training.collectors.metrics import keep_tensorboard, silence, use_tensorboard_folder
    from canary.training.launch import set_up_torch
    from canary.training.pairs import PAIR
    from canary.training.trainers import build_trainer
    from canary.training.trainers.replay import completions_of

    set_up_torch(job)
    keep_tensorboard(job)
    launch.lap("imports")
    with count_calls() as calls, contextlib.ExitStack() as around:
        spec = _spec(job, config)
        trainer = _build(build_trainer, spec)
        around.enter_context(completions_of(trainer, spec.notes))
        if job.exact:
            silence(trainer)
        else:
            use_tensorboard_folder(trainer)
        launch.lap("build")
        launch.calls = calls
        collector = launch.attach(trainer)
        train = functools.partial(trainer.train, PAIR.resume) if PAIR.resume else trainer.train
        collector.run(train)
    launch.notes += spec.notes
    return launch.completed(trainer)


def _build(build: Callable[[WorkloadSpec], Any], spec: WorkloadSpec) -> Any:
    """Build the trainer. A missing package or an impossible setting raises ConfigError."""
    try:
        return build(spec)
    except ImportError as error:
        raise ConfigError(
            f"the settings need a package that is not installed: {one_line(error)}",
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
    # One folder per rank: no rank reads a file that another has half written.
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
    exit_fast(main(sys.argv[1:]))
