"""Check that torch can use the GPU; if not, say in one sentence what to install."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

ASK_TORCH = (
    "import json, torch; "
    "print(json.dumps([torch.cuda.is_available(), torch.version.cuda, torch.__version__]))"
)
SECONDS = 120
REMEDY = (
    "install the NVIDIA driver and the NVIDIA Container Toolkit on the runner, or set `gpus: none` "
    "to train on the CPU"
)


def gpu_problem(python: Path, environ: Mapping[str, str]) -> str:
    """Return why torch cannot use a GPU here; empty if it can. Torch answers in a separate process,
    because the question initialises CUDA."""
    try:
        done = subprocess.run(
            [str(python), "-c", ASK_TORCH],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
            env=dict(environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"torch cannot use the GPU: {type(error).__name__} while asking it"
    try:
        available, cuda, version = json.loads((done.stdout.strip().splitlines() or ["no"])[-1])
    except ValueError:
        said = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return f"torch cannot use the GPU: {said[:300]}"
    if available is True:
        return ""
    if cuda is None:
        return f"torch {version} is built without CUDA; install a CUDA build, or set `gpus: none`"
    # Torch says itself if the driver is missing or too old.
    warned = [line for line in done.stderr.splitlines() if "CUDA" in line or "driver" in line]
    said = warned[0].strip()[:300] if warned else "torch.cuda.is_available() is false"
    return f"torch for CUDA {cuda} finds no GPU: {said}; {REMEDY}"
