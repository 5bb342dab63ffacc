"""One run of a canary: its launches in order, gathered in one record."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from canary.config.checks import require_liger_installed
from canary.config.load import LoadedConfig
from canary.config.schema import CanaryConfig
from canary.errors import ConfigError, InputError, MachineError, Stopped, UsageError
from canary.inputs.preconditions import look_beforehand
from canary.machine.devices import HeldDevice
from canary.protocol.heartbeat import Readings, reading_path
from canary.protocol.job import NODE_RANK, Job, Kind, Listener, Result, disk_full
from canary.protocol.saved_model import require_place
from canary.protocol.trainer_config import as_config
from canary.record.folder import RunFolder, new_run_id
from canary.record.profile import Window
from canary.record.profile_folder import window_of
from canary.record.tracked import exact_scalars
from canary.record.types import RunRecord
from canary.relations.relation import Variation
from canary.runner.child_environment import child_environment, remove_tree, require_training_stack
from canary.runner.distributed import Rendezvous, fewer_than_asked, torchrun_command
from canary.runner.exec.command import CommandRunner
from canary.runner.exec.left_files import Refused
from canary.runner.exec.relaunch import (
    ProbeStopped,
    UserFiles,
    ended_badly_after_training,
    forget_files,
    not_run,
    stopped_probe,
    without_probe,
)
from canary.runner.exec.start_command import Start, started_with
from canary.runner.exec.streams import LogOnly, PassedOn, Streams
from canary.runner.imported import Awaited, LauncherRunner, require_preset
from canary.runner.local import LocalRunner
from canary.runner.session import Session, with_output_dir
from canary.runner.warm import warm_starts, without_warm_start

AGAIN_S, AGAIN_TIMES = 120.0, 10
"""Time limit of a repeated command: these seconds, plus this many times the first launch."""


def run_canary(
    loaded: LoadedConfig,
    listener: Listener,
    output_dir: Path | None = None,
    *,
    echo: bool = False,
    rendezvous: Rendezvous | None = None,
    relations: Sequence[str] = (),
    relation_files: Mapping[str, str] | None = None,
    variation: Variation | None = None,
    copied: Path | None = None,
) -> tuple[RunRecord, Path, Result]:
    """Run a canary. Return its record, its folder and how it ended.

    `rendezvous`: where this machine's ranks meet the ranks of other machines. `relations`: what
    the probe asks beside its first update; `relation_files`: the user's own of them, by id.
    `variation`: what it does in another way. `copied`: a copy of the working folder, in which a
    user's command runs.

    A failed run raises nothing: its record says what failed. Ctrl-C and SIGTERM (the caller's
    handlers raise KeyboardInterrupt) give status `interrupted`. If they end the probe of a user's
    command, the record keeps the outcome of the command itself.

    Raises:
        ConfigError: `speed.liger` is set without its package.
        UsageError: the training packages are missing, or `save_model` names an unusable folder.
        MachineError: the record cannot be written.
    """
    if loaded.config.training_type != "exec":
        require_training_stack()
    if output_dir is not None:
        loaded = with_output_dir(loaded, output_dir)
    config = loaded.config
    if config.speed.liger and config.training_type != "exec":
        require_liger_installed()
    if config.save_model is not None:
        require_place(_saved_model_folder(config.save_model))
    require_preset(loaded)
    base = Path(config.output_dir).absolute()
    folder = RunFolder.create(base, new_run_id(config.name, datetime.now(UTC)))
    session = Session(
        loaded,
        folder,
        listener,
        echo=echo,
        rendezvous=rendezvous,
        relations=relations,
        relation_files=relation_files,
        variation=variation,
        copied=copied,
    )
    ended: Result | None = None
    try:
        listener.run_begins(folder.path, config)
        session.write()
        nodes = session.rendezvous.nnodes
        look_beforehand(loaded, base / ".cache", nodes, listener.warned)
        with _starts(config, nodes):
            result = _launches(session, base / ".cache")
    except ProbeStopped as stopped:
        ended, result = stopped.measured, stopped_probe(session, stopped.measured)
    except KeyboardInterrupt as stopped:
        code = stopped.code if isinstance(stopped, Stopped) else None
        reason = "interrupted by Ctrl-C or SIGTERM"
        result = Result(status="interrupted", reason=reason, command_code=code)
    except (MachineError, InputError, ConfigError) as error:
        usage = isinstance(error, UsageError)
        result = Result("failed", error.message, error.hint, usage_error=usage)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            result = disk_full(str(folder.path))
        else:
            reason = f"cannot write the record: {error.strerror or error}"
            hint = "look at the folder's permissions"
            result = Result(status="failed", reason=reason, hint=hint)
    remove_tree(folder.scratch)
    forget_files(folder)
    return session.finish(ended or result), folder.path, result


def _launches(session: Session, cache_dir: Path) -> Result:
    """Run the launches in order, until one does not complete."""
    session.describe_machine()
    config = session.config
    began = time.monotonic()
    deadline = began + config.timeout
    measured = Result(status="failed", reason="the config asks for no launch")
    files = UserFiles(session) if _tracks_files(config) else None
    section = config.imports
    awaited = None if section is None else Awaited.of(section, session.folder.log)
    with HeldDevice(config.device, cache_dir, config.nproc or 1) as watch:
        session.record.gpu_health.update(watch.health())
        session.record.unmeasured.update(watch.unmeasured())
        if config.profiler.enabled:
            session.record.unmeasured["profiler"] = "the run ended before its profile was read"
        for launch, kind in enumerate(plan_of(config)):
            if kind == "measured" and launch and ended_badly_after_training(measured):
                continue  # on to the probe
            job = _job(session, kind, launch, cache_dir, files)
            try:
                with files.around(job) if files is not None else contextlib.nullcontext():
                    start = files.start if files is not None else None
                    result = _launch(session, job, deadline, watch, start)
                if awaited is not None:
                    result = awaited.into(session, result)
            except Refused as why:
                not_run(session, kind, why)
                return measured
            except KeyboardInterrupt as stopped:
                if config.training_type == "exec" and kind == "probe" and config.repeats:
                    raise ProbeStopped(measured) from stopped
                raise
            if not launch and files is not None:
                # A repeated process may wait forever for another stage of the command.
                now = time.monotonic()
                deadline = min(deadline, now + AGAIN_S + AGAIN_TIMES * (now - began))
            session.launch_ended(kind, result)
            if without_probe(session, kind, result):
                return measured
            _keep(session, kind, result)
            if job.profile is not None:
                window = Window(**job.profile)
                session.keep_profile(window, session.last_step, session.first_step)
            session.write()
            if kind == "measured" or config.training_type != "exec" or not config.repeats:
                measured = result
            if result.status != "completed" and not ended_badly_after_training(result):
                return result
    return measured


def _starts(config: CanaryConfig, nodes: int) -> contextlib.AbstractContextManager[None]:
    """Return a context in which several launches share one import of the training stack."""
    alone = config.training_type != "exec" and config.nproc is None and nodes == 1
    return warm_starts() if alone and len(plan_of(config)) > 1 else contextlib.nullcontext()


def _tracks_files(config: CanaryConfig) -> bool:
    """Whether the canary has to undo file changes: the command runs again, or is only probed."""
    plan = plan_of(config)
    return config.training_type == "exec" and (len(plan) > 1 or plan == ["probe"])


def _launch(
    session: Session, job: Job, deadline: float, watch: HeldDevice, start: Start | None
) -> Result:
    """Run one launch. `start`: the process of a user's command to start again."""
    runner = runner_for(session, job.kind, job.launch, Path(job.cache_dir), watch, start)
    session.launch_begins(job.kind, job.launch, steps_of(session.config, job.kind))
    with _sampling(watch, session, job.kind):
        # For trackers in the training process, and for `canary serve`.
        session.readings = Readings(watch.latest, reading_path(Path(job.scratch_dir)))
        return runner.run(job, session, deadline)


def plan_of(config: CanaryConfig) -> list[Kind]:
    """Return the launches in order. A user's command is measured first: that launch has the
    terminal, and fills the caches. So the probe always counts the hits of a warm cache."""
    measured: list[Kind] = ["measured"] * config.repeats
    probe: list[Kind] = ["probe"] if config.probe_steps else []
    return measured + probe if config.training_type == "exec" else probe + measured


def steps_of(config: CanaryConfig, kind: Kind) -> int | None:
    """Return the optimizer steps of a launch; None for all steps of a user's training."""
    if kind == "measured":
        return config.max_steps
    return min(config.probe_steps, config.max_steps or config.probe_steps)


def runner_for(
    session: Session,
    kind: Kind,
    launch: int,
    cache_dir: Path,
    watch: HeldDevice,
    start: Start | None = None,
) -> LocalRunner:
    """Return the runner of one launch."""
    config, folder = session.config, session.folder
    on_start = watch.start_sampling if kind == "measured" else None
    if config.training_type != "exec":
        environment = child_environment(config, cache_dir, kind, watch.uuid, os.environ)
        if config.nproc is None and session.rendezvous.nnodes == 1:
            return LocalRunner(folder.log, environment, on_start=on_start)
        if session.rendezvous.node_rank is not None:
            environment[NODE_RANK] = str(session.rendezvous.node_rank)
        command = torchrun_command(config.nproc or 1, session.rendezvous, launch)
        return LocalRunner(folder.log, environment, command=command, on_start=on_start)
    inherited, spool = without_warm_start(os.environ), folder.scratch / "stdin"
    if start is not None:
        again: Streams = LogOnly(Path(start.stdin) if start.stdin else spool, start.cwd)
        environment = started_with(start, inherited)
        return CommandRunner(folder.log, environment, start.words, again, on_start, again=True)
    if session.copied is not None:
        streams: Streams = LogOnly(spool, str(session.copied))
        environment = inherited | {"PWD": str(session.copied)}
        words = in_copy(config.command, session.copied)
        return CommandRunner(folder.log, environment, words, streams, on_start)
    streams = PassedOn(spool) if session.echo and launch == 0 else LogOnly(spool)
    runner = CommandRunner if config.imports is None else LauncherRunner
    return runner(folder.log, inherited, config.command, streams, on_start)


def in_copy(words: Sequence[str], copied: Path) -> tuple[str, ...]:
    """Return a command for a copy of the working folder. A program that the copy lacks, as one of a
    virtual environment, is that of the folder itself."""
    program = Path(words[0])
    is_path = len(program.parts) > 1 and not program.is_absolute()
    if is_path and not (copied / program).exists():
        return (str(Path.cwd() / program), *words[1:])
    return (*words,)


@contextlib.contextmanager
def _sampling(watch: HeldDevice, session: Session, kind: Kind) -> Iterator[None]:
    try:
        yield
    finally:
        sampler = watch.stop_sampling()
        if kind == "measured" and sampler is not None:
            _keep_samples(session, sampler.figures(session.training_time()))


def _keep_samples(session: Session, sampled: dict[str, dict[str, float]]) -> None:
    record = session.record
    record.memory.sampled = sampled
    record.perf.cpu_utilization_avg = sampled.get("cpu_percent", {}).get("mean")
    record.perf.gpu_utilization_avg = sampled.get("gpu_utilization", {}).get("mean")


def _keep(session: Session, kind: Kind, result: Result) -> None:
    session.keep_result(kind, result, users_own=session.config.training_type == "exec")
    _keep_ranks(session, result)
    record = session.record
    if result.training:
        record.env["packages"] = result.training["packages"]
        record.env["installed"] = result.training.get("installed", {})
        record.first_step = result.training.get("resumed_at", 0) + 1
        if session.config.training_type in ("exec", "custom"):
            record.config.update(as_config(result.training, kind))
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


def _window(session: Session, launch: int) -> Window | None:
    """Return the steps to profile: only the first measured launch has some."""
    if launch != _first_measured(session.config):
        return None
    return window_of(session.config.profiler.model_dump(), session.folder.path)


def _first_measured(config: CanaryConfig) -> int | None:
    plan = plan_of(config)
    return plan.index("measured") if "measured" in plan else None


def _saved_model_folder(save_model: str) -> Path:
    return Path(save_model).expanduser().absolute()


def _job(
    session: Session, kind: Kind, launch: int, cache_dir: Path, files: UserFiles | None
) -> Job:
    folder, config = session.folder, session.config
    scratch = folder.scratch / f"launch{launch}"
    scratch.mkdir(exist_ok=True)
    window = _window(session, launch)
    saves = config.save_model is not None and launch == _first_measured(config)
    steps = steps_of(config, kind)
    return Job(
        kind=kind,
        launch=launch,
        config_file=str(folder.config),
        rows_file=str(folder.probe_steps if kind == "probe" else folder.steps),
        result_file=str(folder.scratch / f"launch{launch}.result.json"),
        scratch_dir=str(scratch),
        cache_dir=str(cache_dir),
        rows_dir=str(folder.scratch / "rows"),
        stop_after=steps if kind == "probe" or config.training_type == "exec" else None,
        files=None if files is None else str(files.folder_of(launch)),
        threads=config.threads,
        profile=None if window is None else asdict(window),
        stop_on=config.stop_on if kind == "measured" else None,
        save_model=str(_saved_model_folder(config.save_model))
        if saves and config.save_model
        else None,
        exact_scalars=exact_scalars(session.record.exact) if kind == "measured" else {},
        relations=list(session.relations) if kind == "probe" else [],
        relation_files=dict(session.relation_files) if kind == "probe" else {},
        variation=session.variation if kind == "probe" else None,
    )
