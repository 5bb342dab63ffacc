"""One run of a canary: its launches in order, gathered in one record."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from canary.config.checks import require_liger_installed
from canary.config.load import LoadedConfig
from canary.config.spans import look_steps, steps_of
from canary.errors import DISK_FULL, CanaryError, ConfigError, InputError, MachineError, Stopped
from canary.inputs.preconditions import look_beforehand
from canary.machine.devices import HeldDevice
from canary.protocol.failure import describe_failure
from canary.protocol.heartbeat import Readings, reading_path
from canary.protocol.job import Job, Listener, Result, Variation, disk_full
from canary.protocol.trainer_config import as_config
from canary.record.folder import RunFolder, new_run_id
from canary.record.profile import Window
from canary.record.profile_folder import window_of
from canary.record.types import RunRecord
from canary.runner.child_environment import (
    child_environment,
    fewer_than_asked,
    remove_tree,
    require_training_stack,
    torchrun_command,
)
from canary.runner.exec.command import CommandRunner
from canary.runner.exec.streams import log_only, passed_on
from canary.runner.imported import Awaited, LauncherRunner, require_preset
from canary.runner.local import LocalRunner
from canary.runner.session import Session, with_output_dir
from canary.runner.warm import without_warm_start


def run_canary(
    loaded: LoadedConfig,
    listener: Listener,
    output_dir: Path | None = None,
    *,
    echo: bool = False,
    asks_again: bool = False,
    variation: Variation | None = None,
) -> tuple[RunRecord, Path, Result]:
    """Run a canary. Return its record, its folder and how it ended.

    `asks_again`: whether a user's command is asked again about its first update, as built-in
    trainings are. `variation`: what it does in another way.

    A failed run raises nothing: its record says what failed. Ctrl-C and SIGTERM (the caller's
    handlers raise KeyboardInterrupt) give status `interrupted`.

    Raises:
        ConfigError: `speed.liger` is set without its package.
        UsageError: the training packages are missing.
        MachineError: the record cannot be written.
    """
    if loaded.config.training_type != "exec":
        require_training_stack()
    if output_dir is not None:
        loaded = with_output_dir(loaded, output_dir)
    config = loaded.config
    if config.speed.liger and config.training_type != "exec":
        require_liger_installed()
    require_preset(loaded)
    base = Path(config.output_dir).absolute()
    folder = RunFolder.create(base, new_run_id(config.name, datetime.now(UTC)))
    with folder.or_nothing():
        session = Session(
            loaded,
            folder,
            listener,
            echo=echo,
            asks_again=asks_again,
            variation=variation,
        )
    try:
        listener.run_begins(folder.path, config)
        session.write()
        look_beforehand(loaded, base / ".cache", listener.warned)
        result = _launches(session, base / ".cache")
    except (KeyboardInterrupt, MachineError, InputError, ConfigError, OSError) as error:
        result = _ended_by(error, folder.path)
    remove_tree(folder.scratch)
    with folder.or_nothing():
        return session.finish(result), folder.path, result


def _ended_by(error: BaseException, folder: Path) -> Result:
    """Return how a run ended that an error stopped."""
    if isinstance(error, KeyboardInterrupt):
        code = error.code if isinstance(error, Stopped) else None
        reason = "Ctrl-C or SIGTERM"
        return Result(status="interrupted", reason=reason, command_code=code)
    if isinstance(error, CanaryError):
        return describe_failure(error)
    assert isinstance(error, OSError)
    if error.errno in DISK_FULL:
        return disk_full(str(folder))
    reason = f"cannot write the record: {error.strerror or error}"
    return Result(status="failed", reason=reason, hint="look at the folder's permissions")


def _launches(session: Session, cache_dir: Path) -> Result:
    """Run the launches in order, until one does not complete."""
    session.describe_machine()
    config = session.config
    deadline = time.monotonic() + config.timeout
    section = config.imports
    awaited = None if section is None else Awaited.of(section, session.folder.log)
    with HeldDevice(config.device, cache_dir, config.nproc or 1) as watch:
        session.record.unmeasured.update(watch.unmeasured())
        if config.profiler.enabled:
            session.record.unmeasured["profiler"] = "the run ended before its profile was read"
        for launch in range(config.repeats):
            job = _job(session, launch, cache_dir)
            result = _launch(session, job, deadline, watch)
            if awaited is not None:
                result = awaited.into(session, result)
            session.launch_ended(result)
            _keep(session, result)
            if job.profile is not None:
                window = Window(**job.profile)
                session.keep_profile(window, session.last_step, session.first_step)
            session.write()
            if result.status != "completed":
                break
    return result


def _launch(session: Session, job: Job, deadline: float, watch: HeldDevice) -> Result:
    """Run one launch."""
    runner = runner_for(session, job.launch, Path(job.cache_dir), watch)
    session.launch_begins(job.launch, steps_of(session.config))
    # For `canary serve`.
    session.readings = Readings(watch.latest, reading_path(Path(job.scratch_dir)))
    try:
        return runner.run(job, session, deadline)
    finally:
        sampler = watch.stop_sampling()
        if sampler is not None:
            record, sampled = session.record, sampler.figures(session.training_time())
            record.memory.sampled = sampled
            record.perf.cpu_utilization_avg = sampled.get("cpu_percent", {}).get("mean")
            record.perf.gpu_utilization_avg = sampled.get("gpu_utilization", {}).get("mean")


def runner_for(session: Session, launch: int, cache_dir: Path, watch: HeldDevice) -> LocalRunner:
    """Return the runner of one launch."""
    config, folder = session.config, session.folder
    on_start = watch.start_sampling
    if config.training_type != "exec":
        environment = child_environment(config, cache_dir, watch.uuid, os.environ)
        if config.nproc is None:
            return LocalRunner(folder.log, environment, on_start=on_start)
        command = torchrun_command(config.nproc)
        return LocalRunner(folder.log, environment, command=command, on_start=on_start)
    inherited = without_warm_start(os.environ)
    start = passed_on if session.echo and launch == 0 else log_only
    runner = CommandRunner if config.imports is None else LauncherRunner
    return runner(folder.log, inherited, config.command, start, on_start)


def _keep(session: Session, result: Result) -> None:
    session.keep_result(result)
    _keep_ranks(session, result)
    record = session.record
    if result.training:
        record.first_step = result.training.get("resumed_at", 0) + 1
        if session.config.training_type == "exec":
            record.config.update(as_config(result.training))
        if "name" in result.training and not session.is_named:
            record.name = record.config["name"] = result.training["name"]


def _keep_ranks(session: Session, result: Result) -> None:
    """Record the number of ranks and their setup."""
    record = session.record
    distributed = result.training.get("distributed") or {}
    world_size = result.ranks.get("world_size") or distributed.get("world_size", 1)
    if distributed:
        record.env["distributed"] = distributed
    if world_size > 1:
        record.env["world_size"] = world_size
        record.ranks.update(result.ranks)
        if "backend" in distributed:
            record.ranks["backend"] = distributed["backend"]
    elif result.training:
        note = fewer_than_asked(session.config.command, world_size)
        if note and note not in record.notes:
            record.notes.append(note)


def _job(session: Session, launch: int, cache_dir: Path) -> Job:
    folder, config = session.folder, session.config
    scratch = folder.scratch / f"launch{launch}"
    scratch.mkdir(exist_ok=True)
    # Only the first launch is profiled.
    window = None if launch else window_of(config.profiler.model_dump(), folder.path)
    looked, steps = config.look_steps, steps_of(config)
    return Job(
        launch=launch,
        config_file=str(folder.config),
        rows_file=str(folder.steps),
        result_file=str(folder.scratch / f"launch{launch}.result.json"),
        scratch_dir=str(scratch),
        cache_dir=str(cache_dir),
        rows_dir=str(folder.scratch / "rows" / f"launch{launch}"),
        look_steps=looked if config.exact else look_steps(looked, config.max_steps),
        exact=config.exact,
        stop_after=steps if config.exact or config.training_type == "exec" else None,
        threads=config.threads,
        profile=None if window is None else asdict(window),
        stop_on=config.stop_on,
        asks_again=session.asks_again or config.training_type != "exec",
        variation=session.variation,
    )
