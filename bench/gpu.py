"""All checks that need a GPU: `python -m bench.gpu`.

Runs `tests/gpu`, then the ladder of a config on a model of more than 100 million random parameters.
Prints figures in Markdown under the device's name, for the docs. `--device cpu` tests this program
without a GPU; its figures mean nothing. Exit code 1 if a test or the ladder failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from canary.machine.environment import cpu_model
from canary.machine.gpu import list_devices, visible
from canary.machine.packages import package_versions

ROOT = Path(__file__).parents[1]
LADDER = "configs/ladder_ppo.yaml"
ON_A_GPU = ("model_name=embedded/random-160m", "device=cuda")
"""Overrides of the ladder's config: a model large enough for a GPU."""
COLUMNS = {
    "trainer": "trainer",
    "what": "what",
    "step_ms": "step, ms",
    "device_ms_per_step": "device, ms per step",
    "idle_pct": "device idle, %",
    "samples_per_s": "samples/s",
    "tokens_per_s": "tokens/s",
    "peak_mb": "peak, MB",
    "gpu_pct": "GPU, %",
    "cpu_ms_per_step": "CPU, ms per step",
}


def main() -> int:
    """Print results as they come, and the failed parts at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("-k", default="", help="only these tests, as pytest selects")
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--no-ladder", action="store_true")
    parser.add_argument("--ladder", default=LADDER, metavar="CONFIG")
    parser.add_argument("--levels", help="of the ladder; default: all")
    parser.add_argument("--set", action="append", default=[], help="override the ladder's config")
    parser.add_argument("-n", "--rounds", type=int, default=3, help="rounds of the ladder")
    given = parser.parse_args()
    name = device_name() if given.device == "cuda" else f"no GPU: {cpu_model()}"
    if name is None:
        print(
            f"no GPU found ({list_devices().reason}); `--device cpu` tests this program without",
            file=sys.stderr,
        )
        return 4
    print(heading(name), flush=True)
    failed = []
    if not given.no_tests and not run_tests(given.device, given.k):
        failed.append("tests/gpu")
    if not given.no_ladder:
        settings = [*(ON_A_GPU if given.device == "cuda" else ("device=cpu",)), *given.set]
        if not run_ladder(given.ladder, given.rounds, given.levels, settings):
            failed.append("the ladder")
    print(f"\nFailed: {', '.join(failed)}." if failed else "\nAll passed.")
    return 1 if failed else 0


def device_name() -> str | None:
    """Return the names of the GPUs that CUDA would see; None without."""
    seen = visible(list_devices().found, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return ", ".join(device.name for device in seen) or None


def heading(name: str) -> str:
    """Return a heading with the device, and the versions that figures depend on."""
    devices, packages = list_devices(), package_versions()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    stack = ", ".join(f"{one} {packages.get(one)}" for one in ("torch", "transformers", "trl"))
    driver = f"driver {devices.driver}, CUDA {devices.cuda}; " if devices.found else ""
    cores = len(os.sched_getaffinity(0))
    day = datetime.now(UTC).date().isoformat()
    return f"## {name}\n\n{day}, commit {commit or 'unknown'}; {driver}{stack}; {cores} CPU cores"


def run_tests(device: str, chosen: str) -> bool:
    """Run the tests. Print how many passed and the figures of each training."""
    with tempfile.TemporaryDirectory() as folder:
        figures, report = Path(folder, "figures.jsonl"), Path(folder, "report.xml")
        environment = os.environ | {
            "CANARY_GPU_TESTS_DEVICE": device,
            "CANARY_GPU_FIGURES": str(figures),
        }
        words = [sys.executable, "-m", "pytest", "tests/gpu", "-q", f"--junitxml={report}"]
        words += ["-p", "no:xdist", *(["-k", chosen] if chosen else [])]
        # pytest prints to standard error: standard output is only for the docs' report.
        code = subprocess.run(words, cwd=ROOT, env=environment, stdout=sys.stderr).returncode
        if report.exists():
            print(f"\n`tests/gpu`: {counted(report)}.")
        if figures.exists():
            print("\n" + table([json.loads(line) for line in figures.read_text().splitlines()]))
    return code == 0


def counted(report: Path) -> str:
    """Return `12 passed, 1 failed`, from a JUnit report."""
    counts: Counter[str] = Counter()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        counts["skipped" if kinds == {"skipped"} else "failed" if kinds else "passed"] += 1
    return ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped"))


def table(figures: Sequence[Mapping[str, Any]]) -> str:
    """Return the trainings as a Markdown table; `-` means not measured."""
    lines = [" | ".join(COLUMNS.values()), " | ".join("---" for _ in COLUMNS)]
    lines += [" | ".join(cell(one.get(key)) for key in COLUMNS) for one in figures]
    return "\n".join(f"| {line} |" for line in lines)


def cell(value: Any) -> str:
    """Return a value as text; numbers below 100 with three digits."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def run_ladder(config: str, rounds: int, levels: str | None, settings: Sequence[str]) -> bool:
    """Run the ladder, which prints its report."""
    words = [sys.executable, "-m", "canary.cli", "ladder", config, "--format", "markdown"]
    words += ["--rounds", str(rounds)]
    words += ["--levels", levels] if levels else []
    for setting in settings:
        words += ["--set", setting]
    print(f"\n`canary {' '.join(words[3:])}`\n", flush=True)
    return subprocess.run(words, cwd=ROOT).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
