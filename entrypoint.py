"""The image's entry point: a writable home, caches and output folder, then `canary` as given."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

SAMPLES = Path(__file__).resolve().parent
"""Its `configs/` is what `run configs/dpo_smoke.yaml` means where nothing is mounted."""

SCRATCH = "/scratch"
RECORDS = Path("/records")
TEMPORARY = (Path("/tmp"), Path("/var/tmp"))

FOLDERS = {
    "HOME": ".",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "cache",
    "HF_HOME": "cache/huggingface",
    "HF_DATASETS_CACHE": "cache/huggingface/datasets",
    "TRITON_CACHE_DIR": "cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": "cache/inductor",
    "CUDA_CACHE_PATH": "cache/cuda",
    "MPLCONFIGDIR": "cache/matplotlib",
}
"""Variables that name a folder, and where below the scratch folder it lies."""

EXIT_ERROR = 4
"""Of canary.errors, which is imported only after the surroundings are made."""

VERBS_WITH_OUTPUT = ("ab", "calibrate", "demo", "run")


def writable(folder: Path) -> bool:
    """Whether files can be made in a folder; permission bits know nothing of a read-only root."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def scratch_folder(wanted: Path) -> Path | None:
    """The scratch folder, or a temporary one where it cannot be written; None without either."""
    if writable(wanted):
        return wanted
    place = next((place for place in TEMPORARY if writable(place)), None)
    return None if place is None else Path(tempfile.mkdtemp(prefix="canary-", dir=place))


def settle(environ: MutableMapping[str, str], wanted: Path, scratch: Path) -> None:
    """Points home, caches and temporary files into `scratch`.

    A variable that names a folder elsewhere stays as it is, but for a home or a temporary folder
    that cannot be written: a container given a foreign uid gets `/` as its home.
    """
    for name, below in FOLDERS.items():
        given = Path(environ[name]) if environ.get(name) else wanted
        needed = name in ("HOME", "TMPDIR")
        if given.is_relative_to(wanted) or (needed and not writable(given)):
            environ[name] = str(scratch / below)
            (scratch / below).mkdir(parents=True, exist_ok=True)
    environ["CANARY_SCRATCH"] = str(scratch)
    for name in ("USER", "LOGNAME"):
        # A uid without a passwd entry has no name otherwise, and torch's compiler asks for one.
        environ.setdefault(name, "canary")


def completed(arguments: list[str], scratch: Path) -> list[str]:
    """The arguments, with sample configs found and with run folders where they can be written."""
    done = [
        str(SAMPLES / text)
        if text.startswith("configs/") and not Path(text).exists() and (SAMPLES / text).exists()
        else text
        for text in arguments
    ]
    given = any(text in ("-o", "--help") or text.startswith("--output-dir") for text in done)
    if not done or done[0] not in VERBS_WITH_OUTPUT or given or writable(Path.cwd()):
        return done
    folder = RECORDS if writable(RECORDS) else scratch / "records"
    print(f"canary: {Path.cwd()} is read-only; run folders go to {folder}", file=sys.stderr)
    return [done[0], "--output-dir", str(folder), *done[1:]]


def main(environ: MutableMapping[str, str], arguments: list[str]) -> None:
    """Prepares the surroundings and hands on to the command line, which ends the process."""
    wanted = Path(environ.get("CANARY_SCRATCH") or SCRATCH)
    scratch = scratch_folder(wanted)
    if scratch is None:
        print(f"canary: no writable folder (mount one: --volume FOLDER:{wanted})", file=sys.stderr)
        sys.exit(EXIT_ERROR)
    settle(environ, wanted, scratch)
    tempfile.tempdir = environ["TMPDIR"]

    from canary.cli import main as canary

    sys.argv[0] = "canary"
    canary(completed(arguments, scratch))


if __name__ == "__main__":
    main(os.environ, sys.argv[1:])
