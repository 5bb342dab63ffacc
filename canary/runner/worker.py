"""The training process of one launch: `python -m canary.runner.worker JOB.json`.

Reads from top to bottom: tie the process to its parent, import the training stack, build the
trainer, attach the probes, train, leave the result. It writes rows as steps end and never touches
`metrics.json`, which belongs to the parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from canary.collect import jsonio
from canary.config.load import load_config
from canary.config.schema import CanaryConfig
from canary.errors import CanaryError, ConfigError, UsageError
from canary.runner.base import EXIT_DISK_FULL, Job, Result, disk_full
from canary.workload.spec import WorkloadSpec

PR_SET_PDEATHSIG = 1
FULL = (errno.ENOSPC, errno.EDQUOT)


def main(arguments: list[str]) -> int:
    """Runs the job named on the command line; 0 when the training completed."""
    started = time.perf_counter()
    _die_with_parent()
    signal.signal(signal.SIGTERM, _interrupt)
    job = Job.read(Path(arguments[0]))
    rows = RowFile(Path(job.rows_file))
    try:
        result = _train(job, rows, started)
    except BaseException as error:  # noqa: BLE001 - the process's last word must be in the record
        if not isinstance(error, CanaryError):
            with contextlib.suppress(OSError):
                traceback.print_exc()
        result = describe_failure(error)
    finally:
        rows.close()
    try:
        result.write(Path(job.result_file))
    except OSError as error:
        if error.errno in FULL:
            return EXIT_DISK_FULL
        raise
    return 0 if result.status == "completed" else 1


def _die_with_parent() -> None:
    """Where the system can (Linux): the kernel ends this process when its parent is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1 and os.environ.get("CANARY_PARENT") not in (None, "1"):
            os._exit(1)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


class RowFile:
    """Appends a JSON line a step, in one write call each, so that a kill loses no finished step."""

    def __init__(self, path: Path) -> None:
        self._stream: TextIO = path.open("a", encoding="utf-8")

    def append(self, row: dict[str, Any]) -> None:
        """Writes one row and hands it to the kernel."""
        self._stream.write(jsonio.dumps(row) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Closes the file; unwritten content of a full disk is given up."""
        with contextlib.suppress(OSError):
            self._stream.close()


def _train(job: Job, rows: RowFile, started: float) -> Result:
    config = load_config(job.config_file).config
    startup: dict[str, float] = {}
    _set_up_torch(job, config)

    from canary.collect.probes.calls import WrittenFiles, count_calls
    from canary.collect.probes.exact import ExactProbe
    from canary.collect.probes.trainer import TrainerProbe
    from canary.workload import build_trainer

    startup["imports"] = _lap(started, startup)
    collected: list[dict[str, Any]] = []

    def sink(row: dict[str, Any]) -> None:
        rows.append(row)
        if job.kind == "probe":
            collected.append(row)

    with count_calls() as calls:
        trainer = _build(build_trainer, _spec(job, config))
        startup["build"] = _lap(started, startup)
        exact = ExactProbe(trainer) if job.kind == "probe" else None
        TrainerProbe(trainer, sink, job.launch, stop_after=job.stop_after, exact=exact)
        files = WrittenFiles(leave_out=_own_files(job))
        files.begin()
        trainer.train()
        written = files.end()
    startup["training"] = _lap(started, startup)
    counted = {**calls.describe(), **written}
    found: dict[str, Any] = {}
    if exact is not None:
        exact.add_rows(collected)
        found = {
            "steps": len(collected),
            "data": _data_facts(trainer),
            **exact.found,
            "calls": counted,
        }
    return Result(
        status="completed",
        exact=found,
        calls=counted,
        startup_seconds=startup,
        device=_device_facts(trainer, config),
        wall_seconds=time.perf_counter() - started,
    )


def _build(build: Callable[[WorkloadSpec], Any], spec: WorkloadSpec) -> Any:
    """Builds the trainer; a package that is not there, or a setting that breaks it, is the
    config's matter."""
    try:
        return build(spec)
    except ImportError as error:
        raise ConfigError(
            f"these settings need a package that is not installed: {_one_line(error)}",
            "install it, or change the setting that asks for it",
        ) from error
    except (TypeError, ValueError) as error:
        text = str(error)
        for name, value in spec.config.trainer_args.items():
            if name in text or (isinstance(value, str) and value in text):
                raise ConfigError(
                    f"the trainer refuses trainer_args.{name}: {_one_line(error)}",
                    f"correct or remove trainer_args.{name}",
                ) from error
        raise


def _set_up_torch(job: Job, config: CanaryConfig) -> None:
    import torch

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if job.kind == "probe":
        # Kernels without a deterministic form warn into the log and stay: the comparison finds
        # out by itself which signals repeat.
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False


def _spec(job: Job, config: CanaryConfig) -> WorkloadSpec:
    return WorkloadSpec(
        config=config,
        scratch_dir=Path(job.scratch_dir),
        cache_dir=Path(job.cache_dir),
        max_steps=config.max_steps,
        rows_dir=Path(job.rows_dir),
    )


def _own_files(job: Job) -> tuple[Path, ...]:
    """Files that the canary itself writes while it trains."""
    run_dir = Path(job.rows_file).parent
    names = ("steps.jsonl", "probe_steps.jsonl", "log.txt")
    return (*(run_dir / name for name in names), Path(job.cache_dir))


def _lap(started: float, laps: dict[str, float]) -> float:
    return time.perf_counter() - started - sum(laps.values())


def _data_facts(trainer: Any) -> dict[str, Any]:
    from canary.workload.data import dataset_fingerprint, tokenizer_fingerprint

    facts: dict[str, Any] = {"rows": len(trainer.train_dataset)}
    facts["dataset_sha256"] = dataset_fingerprint(trainer.train_dataset)
    tokenizer = getattr(trainer, "processing_class", None)
    if tokenizer is not None:
        facts["tokenizer"] = tokenizer_fingerprint(tokenizer)
    return facts


def _device_facts(trainer: Any, config: CanaryConfig) -> dict[str, Any]:
    import torch

    device = torch.device(trainer.args.device)
    facts: dict[str, Any] = {
        "type": device.type,
        "threads": torch.get_num_threads(),
        "dtype": config.dtype,
        "torch_cuda": torch.version.cuda,
    }
    if device.type == "cuda":
        index = device.index if device.index is not None else torch.cuda.current_device()
        facts.update(index=index, name=torch.cuda.get_device_name(index))
        facts["peak_allocated_bytes"] = torch.cuda.max_memory_allocated(index)
        facts["peak_reserved_bytes"] = torch.cuda.max_memory_reserved(index)
    return facts


def describe_failure(error: BaseException) -> Result:
    """The record's words for whatever ended the training."""
    if isinstance(error, CanaryError):
        return Result(
            status="failed",
            reason=error.message,
            hint=error.hint,
            usage_error=isinstance(error, UsageError),
        )
    if isinstance(error, KeyboardInterrupt):
        return Result(status="interrupted", reason="the training was interrupted")
    if is_out_of_memory(error):
        return Result(
            status="oom",
            reason=f"out of memory: {_one_line(error)}",
            hint="lower batch_size, max_length or the model's size, or set use_peft",
        )
    if isinstance(error, OSError) and error.errno in FULL:
        return disk_full(error.filename)
    return Result(status="failed", reason=f"{_one_line(error)}{_where(error)}")


def is_out_of_memory(error: BaseException) -> bool:
    """torch's own type, Python's, and the CPU allocator's plain RuntimeError."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text
        or "CUDA out of memory" in text
        or "not enough memory" in text
    )


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:400]


def _where(error: BaseException) -> str:
    """The user's own line where there is one, else the innermost that is not the canary's."""
    here = str(Path(__file__).resolve().parents[1]) + os.sep
    everything = list(traceback.extract_tb(error.__traceback__))
    frames = [f for f in everything if not f.filename.startswith(here)] or everything
    if not frames:
        return ""
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    frame = (own or frames)[-1]
    return f" (at {frame.filename}:{frame.lineno})"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
