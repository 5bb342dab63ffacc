"""The image's entry point: a writable home, caches and output folder, then `canary` as given."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

SAMPLES = Path(__file__).resolve().parent
"""Its `configs/` is what `run configs/dpo_smoke.yaml` means where nothing is mounted."""

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
"""Variables that name a folder, and where below the scratch folder it lies."""

WRITING = ("ab", "calibrate", "demo", "exec", "run")


def writable(folder: Path) -> bool:
    """Whether files can be made in a folder; permission bits know nothing of a read-only root."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def scratch_folder(wanted: Path) -> Path:
    """The scratch folder, or a temporary one where it cannot be written; OSError without either."""
    if writable(wanted):
        return wanted
    place = next((place for place in TEMPORARY if writable(place)), TEMPORARY[0])
    return Path(tempfile.mkdtemp(prefix="canary-", dir=place))


def settle(environ: MutableMapping[str, str], wanted: Path, scratch: Path) -> None:
    """Points home, caches and temporary files into `scratch`; what names another folder stays,
    but for a home that cannot be written (a foreign uid gets `/` as its home) or temporary folder.
    """
    for name, below in FOLDERS.items():
        given = Path(environ[name]) if environ.get(name) else wanted
        needed = name in ("HOME", "TMPDIR")
        if given.is_relative_to(wanted) or (needed and not writable(given)):
            environ[name] = str(scratch / below)
            (scratch / below).mkdir(parents=True, exist_ok=True)
    environ["CANARY_SCRATCH"] = str(scratch)
    # A uid without a passwd entry has no other name, and torch's compiler asks for one.
    environ.setdefault("USER", "canary")
    environ.setdefault("LOGNAME", environ["USER"])


def _only_sample(text: str) -> bool:
    return text.startswith("configs/") and not Path(text).exists() and (SAMPLES / text).exists()


def completed(arguments: list[str], scratch: Path) -> list[str]:
    """The arguments, with samples found and run folders where they can be written."""
    done = [str(SAMPLES / text) if _only_sample(text) else text for text in arguments]
    own = done[: done.index("--")] if "--" in done else done
    given = any(text.startswith(("-o", "--help", "--output-dir")) for text in own)
    if not done or done[0] not in WRITING or given or writable(Path.cwd()):
        return done
    output = str(RECORDS if writable(RECORDS) else scratch / "records")
    print(f"canary: {Path.cwd()} is read-only; run folders go to {output}", file=sys.stderr)
    return [done[0], "--output-dir", output, *done[1:]]


def main(environ: MutableMapping[str, str], arguments: list[str]) -> None:
    """Prepares the surroundings and hands on to the command line, which ends the process."""
    limit = environ.pop("CANARY_LIMIT_S", "")
    if limit.isdigit():
        # Ends this process, and with it the container, though whoever started it is gone.
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
