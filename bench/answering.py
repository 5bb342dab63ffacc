"""The cost of the report job: `python -m bench.answering [-n ROUNDS] [ACTION...]`.

Runs the steps `Pending status` and `Report` of action.yml against a simulated GitHub, each time in
new runner folders: Python environment, packages, answer. The machine is in turn new, a self-hosted
runner that ran it before, and new with each further checkout ACTION. Prints medians: wall seconds,
CPU seconds of all processes, and the installed size.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.contract.git_server import serving
from tests.github import packages
from tests.github.gatehouse import NAME, git, pull_event, push_event, records_folder
from tests.github.openapi import Description
from tests.github.server import served
from tests.integration.action.composite import ROOT
from tests.integration.action.test_report_script import INPUTS, beside_a_checkout, job
from tests.unit.comparing import record

Figures = tuple[float, float, float]
"""Wall seconds, CPU seconds, megabytes."""


def answered(action: Path, tools: Path | None, step: str, description: Description) -> Figures:
    """Run one step in a new folder; `tools` is the tool cache of a self-hosted runner.

    Raises:
        SystemExit: the step failed.
    """
    with (
        tempfile.TemporaryDirectory() as name,
        served(description) as github,
        serving(Path(name) / "server", github.token) as server,
    ):
        root = Path(name)
        runner = beside_a_checkout(root, github, server)
        runner.install("python3.13", f'exec "{sys.base_prefix}/bin/python3" "$@"')
        sha = git(runner.workspace, "rev-parse", "HEAD")
        if step == "Report":
            records_folder(runner.temp / "canary-records", [record(1, 0.1)])
            job(runner, github, server, "push", push_event(sha))
        else:
            pull = github.state.repositories[NAME].add_pull("a" * 40, base_sha=sha)
            job(runner, github, server, "pull_request", pull_event(pull, "opened", None))
        runner.extra = {**runner.extra, "GITHUB_ACTION_PATH": str(action)}
        if tools is not None:
            hosted = {"RUNNER_ENVIRONMENT": "self-hosted", "RUNNER_TOOL_CACHE": str(tools)}
            runner.extra = {**runner.extra, **hosted}
        start, before = time.perf_counter(), os.times()
        done = runner.step(step, INPUTS | {"token": github.token})
        wall, after = time.perf_counter() - start, os.times()
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        spent = sum(after[2:4]) - sum(before[2:4])
        environment = runner.temp.glob("canary-venv*/**/*")
        size = sum(path.lstat().st_size for path in environment if path.is_file())
        return wall, spent, size / 1e6


def main() -> None:
    """Print one line per step and checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=5, help="rounds")
    parser.add_argument("actions", nargs="*", type=Path, help="further checkouts of the action")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        description = Description(packages.content(packages.OPENAPI, Path(name)))
        tools = Path(name) / "tools"
        machines: dict[str, tuple[Path, Path | None]] = {
            "new machine": (ROOT, None),
            "ran before": (ROOT, tools),
            **{str(path): (path.resolve(), None) for path in given.actions},
        }
        answered(ROOT, tools, "Report", description)
        found: dict[tuple[str, str], list[Figures]] = defaultdict(list)
        for _ in range(given.n):
            for step in ("Pending status", "Report"):
                for machine, (action, kept) in machines.items():
                    found[step, machine].append(answered(action, kept, step, description))
    for (step, machine), figures in found.items():
        wall, spent, size = (statistics.median(column) for column in zip(*figures, strict=True))
        walls = sorted(figure[0] for figure in figures)
        print(
            f"{step:<15} {machine:<14} {wall:5.1f} s ({walls[0]:.1f} to {walls[-1]:.1f}), "
            f"CPU {spent:5.1f} s, {size:4.0f} MB"
        )


if __name__ == "__main__":
    main()
