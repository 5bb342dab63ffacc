"""What a training process gets: environment variables, caches, and torchrun for several ranks."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from canary.config.schema import CanaryConfig
from canary.errors import UsageError
from canary.machine.program import module

TRAINING_STACK = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")


def require_training_stack(packages: Sequence[str] = TRAINING_STACK) -> None:
    """Check that the training packages are installed, without importing them.

    Raises:
        UsageError: names the missing packages and the extra that installs them.
    """
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training needs packages that are not installed here: {', '.join(missing)}",
            'pip install "rlhf-canary[train]"',
        )


def needs_hub(config: CanaryConfig) -> bool:
    """Whether the model, the data or the attention kernel has to come from the hub."""
    return "/" in (config.attn_implementation or "") or any(
        not name.startswith("embedded/") and not Path(name).exists()
        for name in (config.model_name, config.dataset_name)
    )


def child_environment(
    config: CanaryConfig, cache_dir: Path, device: str | None, base: Mapping[str, str]
) -> dict[str, str]:
    """Return the parent's environment with variables that make launches comparable.

    Compiled kernels are cached in `cache_dir`, which outlives the run: else a second run would
    differ by compiling less. Each launch prepares its dataset rows anew (`Job.rows_dir`): that
    makes the counts of tokenizer calls and cache hits exact.

    `device` is the uuid of the GPU, or the uuids of several ranks' GPUs separated by commas. It is
    None without a GPU.
    """
    environment = dict(base)
    environment |= {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "TRITON_CACHE_DIR": str(cache_dir / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache_dir / "inductor"),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    if not needs_hub(config):
        environment["HF_HUB_OFFLINE"] = "1"
    if config.threads is not None:
        environment["OMP_NUM_THREADS"] = str(config.threads)
        environment["MKL_NUM_THREADS"] = str(config.threads)
    if config.look_steps:
        environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if config.device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    elif device is not None:
        # One device per rank: a trainer uses every device that it sees.
        environment["CUDA_VISIBLE_DEVICES"] = device
    return environment


def remove_tree(path: Path) -> None:
    """Remove a scratch folder as far as possible; other processes may still use a part of it."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        for root, _, files in os.walk(path):
            for name in files:
                Path(root, name).unlink(missing_ok=True)


def torchrun_command(nproc: int) -> tuple[str, ...]:
    """Return the command that starts `nproc` workers; the caller appends the job's file."""
    words = [sys.executable, *module("canary.training.torchrun"), "--nproc-per-node", str(nproc)]
    # Torchrun's own `-m` would look into the working folder first.
    worker = (sys.executable, "-u", *module("canary.training.worker"))
    return (*words, "--standalone", "--no-python", *worker)


PROCESSES = re.compile(r"--(?:nproc[-_]per[-_]node|num[-_]processes)[= ](\d+)")
"""The options of torchrun and `accelerate launch` for the number of ranks."""


def fewer_than_asked(command: Sequence[str], world_size: int) -> str:
    """Return a note if a command asked for several ranks but trained on one, else ""."""
    asked = PROCESSES.search(" ".join(command))
    if asked is None or int(asked[1]) < 2 or world_size > 1:
        return ""
    alone = "; accelerate launch --cpu starts only one: use torchrun --nproc-per-node"
    hint = alone if "--cpu" in command else ""
    return f"the command asked for {asked[1]} processes, but the training ran on one{hint}"
