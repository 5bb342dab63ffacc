"""Prepare the place where the gate's canaries run: a copy of the checkout, `setup`, and the GPU."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from canary.campaign.ab import prepare_sides
from canary.campaign.environments import existing_environment, own_environment
from canary.errors import EXIT_OK, CanaryError, MachineError, UsageError
from canary.gate.base_config import fork_point
from canary.gate.inputs import TrainSettings
from canary.gate.records import Manifest, write_manifest

Say = Callable[[str], None]
LONGEST_ERROR = 1_000
SET_UP = ".set-up"
"""Marks a scratch folder in which `setup` has just run, for the next training only."""
ASK_TORCH = (
    "import json, torch; "
    "print(json.dumps([torch.cuda.is_available(), torch.version.cuda, torch.__version__]))"
)
SECONDS = 120
REMEDY = (
    "install the NVIDIA driver and the NVIDIA Container Toolkit on the runner, or set `gpus: none` "
    "to train on the CPU"
)


@dataclass(frozen=True)
class Place:
    """Folders, Python and environment of the canaries."""

    checkout: Path
    """A copy of the checkout, so that the run leaves nothing on the runner."""
    folder: Path
    """The working directory in the copy."""
    python: Path
    environment: Mapping[str, str]
    output: Path
    sides: Path | None = None
    """Base and head, checked out and set up while there was network; None without `setup`."""


def without_places(text: str, settings: TrainSettings) -> str:
    """Return a text without the folders of this machine, which the comment must not show."""
    copy = settings.scratch / "workspace"
    inner = [settings.scratch / "sides" / side for side in ("base", "head")]
    inner = [copy / settings.folder, copy, *inner]
    outer = [settings.scratch, settings.checkout, settings.records, Path(tempfile.gettempdir())]
    for place in (*inner, *outer):
        for shown in dict.fromkeys((str(place.resolve()), str(place))):
            text = text.replace(f"{shown}/", "")
    for place, name in zip(outer, ("scratch folder", "checkout", "records folder"), strict=False):
        for shown in dict.fromkeys((str(place.resolve()), str(place))):
            text = text.replace(shown, f"the {name}")
    return text


def prepare(settings: TrainSettings, environ: Mapping[str, str]) -> Place:
    """Copy the checkout to the scratch folder; use the Python of `setup` if it made one.

    Raises:
        UsageError: there is no checkout, or the working directory is not inside it.
        MachineError: the scratch folder cannot be written.
    """
    copy = settings.scratch / "workspace"
    if not (settings.scratch / SET_UP).exists():
        for old in ("workspace", "setup-env", "sides", "runs"):
            shutil.rmtree(settings.scratch / old, ignore_errors=True)
        if not settings.checkout.is_dir():
            raise UsageError("there is no checkout", "add actions/checkout, or mount a checkout")
        try:
            shutil.copytree(settings.checkout, copy, symlinks=True)
        except (OSError, shutil.Error) as error:
            raise MachineError(
                f"cannot copy the checkout to {settings.scratch}: {str(error)[:300]}",
                "make room for it in the scratch folder",
            ) from error
    folder = (copy / settings.folder).resolve()
    if not folder.is_dir() or not folder.is_relative_to(copy.resolve()):
        raise UsageError(
            f"input working-directory: {settings.folder!r} is not a folder in the checkout"
        )
    (settings.scratch / SET_UP).unlink(missing_ok=True)
    python, environment = Path(sys.executable), dict(environ)
    if (settings.scratch / "setup-env").exists():
        python, environment = existing_environment("setup", settings.scratch, environ)
    sides = settings.scratch / "sides"
    return Place(
        copy,
        folder,
        python,
        environment,
        settings.scratch / "runs",
        sides if sides.exists() else None,
    )


def set_up(settings: TrainSettings, environ: Mapping[str, str], say: Say) -> int:
    """Run the user's `setup` before the canary, with network and without secrets: in an environment
    on top of the image's packages, or for `compare: ab` in one per commit. Return the exit code."""
    try:
        if not settings.setup:
            raise UsageError("input setup is empty", "leave this step out")
        (settings.scratch / SET_UP).unlink(missing_ok=True)
        place = prepare(settings, environ)
        say(f"setup: {settings.setup}")
        if settings.compare == "ab" and settings.base_sha:
            base = fork_point(place.checkout, settings.base_sha)
            commits = {"base": base, "head": "HEAD"}
            into = settings.scratch / "sides"
            prepare_sides(place.folder, commits, settings.setup, into, environ, settings.scratch)
        else:
            log = settings.scratch / "setup.log"
            own_environment("setup", settings.scratch, place.folder, settings.setup, environ, log)
    except CanaryError as error:
        _show_logs(settings.scratch, say)
        return refused(settings, error, say)
    _show_logs(settings.scratch, say)
    (settings.scratch / SET_UP).touch()
    return EXIT_OK


def refused(settings: TrainSettings, error: CanaryError, say: Say) -> int:
    """Say in the records and in the log why nothing can run; return the exit code."""
    said = without_places(str(error), settings)
    write_manifest(settings.records, Manifest(error=said[:LONGEST_ERROR]))
    say(f"error: {error}")
    return error.exit_code


def _show_logs(scratch: Path, say: Say) -> None:
    """Copy what `setup` printed to the job's log: the scratch folder is deleted."""
    for log in sorted(scratch.glob("setup*.log")):
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            say(f"{log.stem}: {line}")


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
