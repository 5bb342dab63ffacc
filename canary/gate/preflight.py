"""Check that torch can use the GPU; if not, say in one sentence what to install."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from canary.machine.gpu import Devices, list_devices

ASK_TORCH = (
    "import json, torch; "
    "ok = torch.cuda.is_available(); "
    "print(json.dumps({'available': ok, 'cuda': torch.version.cuda, 'torch': torch.__version__}))"
)
SECONDS = 120


def gpu_problem(python: Path | None = None, environ: Mapping[str, str] | None = None) -> str:
    """Return why torch cannot use a GPU here; empty if it can."""
    devices = list_devices()
    if not devices.found:
        return no_device(devices)
    answer = _ask_torch(python or Path(sys.executable), environ)
    return torch_problem(devices, answer)


def no_device(devices: Devices) -> str:
    """Return the problem of a machine or container without a visible GPU."""
    return (
        f"no GPU to train on: {devices.reason or 'the driver lists none'}; install the NVIDIA "
        "driver and the NVIDIA Container Toolkit on the runner, or set `gpus: none` to train on "
        "the CPU"
    )


def torch_problem(devices: Devices, answer: Mapping[str, object]) -> str:
    """Return the problem that torch's answer means; empty if torch sees the GPU."""
    if answer.get("available") is True:
        return ""
    built = answer.get("cuda")
    if built is None and "torch" in answer:
        return (
            f"torch {answer.get('torch')} is built without CUDA; install a CUDA build, or set "
            "`gpus: none` to train on the CPU"
        )
    if _older(devices.cuda, built):
        return (
            f"the driver is too old: {devices.driver} supports CUDA {devices.cuda}, this torch "
            f"needs CUDA {built}; update the driver, or build the image with a torch for CUDA "
            f"{devices.cuda} (docs/clusters.md)"
        )
    return f"torch cannot use the GPU: {answer.get('error') or 'no reason given'}"


def _older(driver: str | None, built: object) -> bool:
    """Return whether the driver's CUDA has an older major version than the build's."""
    try:
        return int(str(driver).split(".")[0]) < int(str(built).split(".")[0])
    except ValueError:
        return False


def _ask_torch(python: Path, environ: Mapping[str, str] | None) -> dict[str, object]:
    """Ask torch in a separate process: the question initialises CUDA."""
    try:
        done = subprocess.run(
            [str(python), "-c", ASK_TORCH],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
            env=None if environ is None else dict(environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": f"{type(error).__name__} while asking torch"}
    lines = done.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        said = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return {"error": said[:300]}
    if not answer.get("available"):
        warned = [line for line in done.stderr.splitlines() if "CUDA" in line or "driver" in line]
        answer["error"] = (warned or ["torch.cuda.is_available() is false"])[0].strip()[:300]
    return answer
