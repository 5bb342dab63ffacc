"""What a training process finds around it: environment variables, caches, scratch folders."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from canary.config.schema import CanaryConfig
from canary.errors import UsageError
from canary.protocol.job import Kind

TRAINING_STACK = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")


def require_training_stack(packages: Sequence[str] = TRAINING_STACK) -> None:
    """Looks for the packages that train, without importing them.

    Raises:
        UsageError: names those that are missing, and the extra that brings them.
    """
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training needs {', '.join(missing)}, not installed here",
            'pip install "rlhf-canary[train]"',
        )


def needs_hub(config: CanaryConfig) -> bool:
    """Whether model or data come from the hub, neither embedded nor a local path, or the attention
    kernel does."""
    return "/" in (config.attn_implementation or "") or any(
        not name.startswith("embedded/") and not Path(name).exists()
        for name in (config.model_name, config.dataset_name)
    )


def child_environment(
    config: CanaryConfig,
    cache_dir: Path,
    kind: Kind,
    device: str | None,
    base: Mapping[str, str],
) -> dict[str, str]:
    """The parent's environment with what makes launches alike.

    Compiled kernels are cached in `cache_dir`, which outlives the run, so that a second run does
    not differ by compiling less. Rows and what is mapped over them lie in the run's own scratch
    folder (`Job.rows_dir`): the probe always prepares them anew and the measured launches always
    find them, which makes the counts of tokenizer calls and cache hits exact.

    `device` is the uuid of the GPU in use, or those of several ranks with commas between; None
    without one.
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
    if kind == "probe":
        environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if config.device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    elif device is not None:
        # A device a rank, by its uuid: a trainer that sees more would use more.
        environment["CUDA_VISIBLE_DEVICES"] = device
    return environment


def remove_tree(path: Path) -> None:
    """Removes a scratch folder; what another process still holds is left to the next run."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        for root, _, files in os.walk(path):
            for name in files:
                Path(root, name).unlink(missing_ok=True)
