"""The image's entry point: set up a writable home, caches and output folder, then run `canary`."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

SAMPLES = Path(__file__).resolve().parent
"""`run configs/dpo_smoke.yaml` reads its `configs/` if no such file is mounted."""

RECORDS = Path("/records")
TEMPORARY = (Path("/tmp"), Path("/var/tmp"))

FOLDERS = {
    "HOME": ".",
    "TMPDIR": ".",
    "XDG_CACHE_HOME": "cache",
    "HF_HOME": "cache/huggingface",
    "HF_DATASETS_CACHE": "cache/huggingface/datasets",
    "TRITON_CACHE_DIR": "cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": "cache/inductor",
    "CUDA_CACHE_PATH": "cache/cuda",
    "MPLCONFIGDIR": "cache/matplotlib",
}
"""Variable that names a folder -> that folder's path in the scratch folder."""

WRITING = (
    "ab",
    "bisect",
    "calibrate",
    "check",
    "demo",
    "exec",
    "import",
    "ladder",
    "matrix",
    "run",
)
"""Verbs with an output folder. That of a bisect is its own, and the same command continues it."""


def writable(folder: Path) -> bool:
    """Return whether files can be created in a folder; mode bits do not show a read-only mount."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def scratch_folder(wanted: Path) -> Path:
    """Return the scratch folder, or a temporary one if it is not writable. May raise OSError."""
    if writable(wanted):
        return wanted
    place = next((place for place in TEMPORARY if writable(place)), TEMPORARY[0])
    return Path(tempfile.mkdtemp(prefix="canary-", dir=place))


def settle(environ: MutableMapping[str, str], wanted: Path, scratch: Path) -> None:
    """Point home, caches and temporary files into `scratch`. A variable that names another folder
    stays, except an unwritable HOME or TMPDIR: an unknown uid gets `/` as its home."""
    for name, below in FOLDERS.items():
        given = Path(environ[name]) if environ.get(name) else wanted
        needed = name in ("HOME", "TMPDIR")
        if given.is_relative_to(wanted) or (needed and not writable(given)):
            environ[name] = str(scratch / below)
            (scratch / below).mkdir(parents=True, exist_ok=True)
    environ["CANARY_SCRATCH"] = str(scratch)
    # torch's compiler asks for a user name, which a uid without a passwd entry lacks.
    environ.setdefault("USER", "canary")
    environ.setdefault("LOGNAME", environ["USER"])


def _only_sample(text: str) -> bool:
    return text.startswith("configs/") and not Path(text).exists() and (SAMPLES / text).exists()


def completed(arguments: list[str], scratch: Path) -> list[str]:
    """Return the arguments with full paths of samples, and with a writable output folder."""
    done = [str(SAMPLES / text) if _only_sample(text) else text for text in arguments]
    options = done[: done.index("--")] if "--" in done else done
    given = any(text.startswith(("-o", "--help", "--output-dir")) for text in options)
    if not done or done[0] not in WRITING or given or writable(Path.cwd()):
        return done
    output = RECORDS if writable(RECORDS) else scratch / "records"
    output = output / "bisect" if done[0] == "bisect" else output
    print(f"canary: {Path.cwd()} is read-only; run folders go to {output}", file=sys.stderr)
    return [done[0], "--output-dir", str(output), *done[1:]]


def main(environ: MutableMapping[str, str], arguments: list[str]) -> None:
    """Prepare the environment and run the command line, which ends the process."""
    limit = environ.pop("CANARY_LIMIT_S", "")
    if limit.isdigit():
        # Ends this process, and so the container, even if the process that started it is gone.
        signal.alarm(int(limit))
    wanted = Path(environ.get("CANARY_SCRATCH") or "/scratch")
    try:
        scratch = scratch_folder(wanted)
        settle(environ, wanted, scratch)
    except OSError as error:
        print(f"canary: {error} (mount a folder: --volume FOLDER:{wanted})", file=sys.stderr)
        sys.exit(4)

    from canary.cli import main as canary

    sys.argv[0] = "canary"
    canary(completed(arguments, scratch))


if __name__ == "__main__":
    main(os.environ, sys.argv[1:])
