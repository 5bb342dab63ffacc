"""Ray's workers belong to the process that calls `ray.init`: by their environment, not by their
parent, which is no Python. Ray itself is not needed for this."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from canary.protocol.job import Job
from canary.runner.exec.command import attached_environment, marks_of

DOCS = Path(__file__).parents[3] / "docs" / "exec.md"
WORKER = Path("ray", "_private", "workers", "default_worker.py")
DRIVER = """
import os, subprocess, sys
LINE
print(os.getpid(), flush=True)
for script in sys.argv[1:]:
    subprocess.run(["sh", "-c", f"{sys.executable} {script}; true"], env=watched, check=True)
"""
"""The driver, and a shell in place of Ray's own program, which starts each worker."""


def test_a_worker_with_the_environment_of_the_docs_belongs_to_its_driver(tmp_path: Path) -> None:
    job = Job(0, "", "", "", str(tmp_path / "launch0"), "", "")
    marks = marks_of(job)
    marks.mkdir(parents=True)
    job_file = tmp_path / "job.json"
    job.write(job_file)
    (line,) = re.findall(r"^watched = .*$", DOCS.read_text(), re.MULTILINE)
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER.replace("LINE", line))
    scripts = [tmp_path / WORKER, tmp_path / "own" / "worker.py"]
    for script in scripts:
        script.parent.mkdir(parents=True)
        script.write_text("import os; print(os.getpid())")
    done = subprocess.run(
        [sys.executable, str(driver), *map(str, scripts)],
        env=attached_environment(os.environ, job, job_file, marks),
        capture_output=True,
        text=True,
        check=True,
    )
    root, rays, own = done.stdout.split()
    first = {pid: (marks / f"seen.{pid}").read_text().split("\n")[0] for pid in (root, rays, own)}
    assert first == {root: root, rays: root, own: own}
