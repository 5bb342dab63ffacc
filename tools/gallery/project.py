"""The project of an incident: a git repository before the change, and a clone with the change."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import yaml

from bench.corpus.bases import BUILT_IN, SCRIPTS
from bench.corpus.row import Row
from canary.machine.git import run_git
from tests.integration.run.rank_scripts import rank_script
from tests.planting import plant

CONFIG = "canary.yaml"
MODULE = "trainer_setup"
STEPS: Mapping[str, int] = {"ppo": 10, "own_ranks": 20, "sft": 24, "sft_lora": 24}
"""By base; the others train `USUAL_STEPS`. SFT has hard rows behind step 24, so its loss rises."""
USUAL_STEPS = 30
PROBE_STEPS = 10
LIMITS: dict[str, object] = {
    "base_tier": "smoke",
    "max_step_time_increase_pct": 50,
    "max_cpu_time_increase_pct": 50,
    "max_tps_drop_pct": 33,
}
"""Wide for time, as those of `canary demo`: the runs are short, and the machine may be busy."""
SETUP = '''"""What this project changes about its trainer."""


def prepare(spec):
    """Runs before the trainer is built."""
{before}

def set_up(trainer, spec):
    """Runs on the built trainer, before it trains."""
{plant}'''
AUTHOR = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (
        ("NAME", "Gallery"),
        ("EMAIL", "gallery@example.invalid"),
        ("DATE", "2026-01-05T09:00:00Z"),
    )
}
"""The same for every commit, so that equal files give equal commits."""


@dataclass(frozen=True)
class Project:
    """Two checkouts of one project, and what a training in them needs."""

    base: Path
    head: Path
    environment: Mapping[str, str]
    """Variables of a training; the folder of the checkout is not on PYTHONPATH yet."""
    diff: str
    """From the base's commit to the head's."""


def write_project(row: Row, title: str, folder: Path) -> Project:
    """Write the project of a row into an empty folder, and commit the change under a title."""
    base, head, hook = folder / "base", folder / "head", folder / "hook"
    write_files(row, base, changed=False)
    _git(base, "init", "--quiet", "--initial-branch=main")
    _commit(base, "The project")
    _git(folder, "clone", "--quiet", str(base), str(head))
    write_files(row, head, changed=True)
    _commit(head, title)
    diff = _git(head, "diff", "--unified=1", "--no-color", "--no-ext-diff", "HEAD~1", "HEAD")
    plant(
        hook,
        f"import {MODULE}; {MODULE}.set_up(trainer, spec)",
        f"import {MODULE}; {MODULE}.prepare(spec)",
    )
    return Project(base, head, _environment(row, hook), _shown(diff))


def write_files(row: Row, folder: Path, *, changed: bool) -> None:
    """Write the project's files, before or after the change."""
    folder.mkdir(parents=True, exist_ok=True)
    if row.base in SCRIPTS:
        config = _write_script(row, folder, changed=changed)
    else:
        config = BUILT_IN[row.base] | (dict(row.config) if changed else {})
        before, body = (
            indent(f"{code.strip()}\n", "    ") if code and changed else ""
            for code in (row.before, row.plant)
        )
        text = SETUP.replace("{before}", before).replace("{plant}", body)
        (folder / f"{MODULE}.py").write_text(text)
    steps = STEPS.get(row.base, USUAL_STEPS)
    config |= {"max_steps": steps, "probe_steps": PROBE_STEPS, "thresholds": LIMITS}
    config.pop("repeats", None)
    (folder / CONFIG).write_text(yaml.safe_dump(config))


def _write_script(row: Row, folder: Path, *, changed: bool) -> dict[str, object]:
    """Write the user's script; return the config that starts it."""
    assert row.base == "own_ranks"
    code = row.plant if changed else ""
    _, *words = rank_script(folder, steps=STEPS[row.base], before=code)
    return {"name": "two_ranks", "training_type": "exec", "command": ["python", *words]}


def _environment(row: Row, hook: Path) -> dict[str, str]:
    """Return the environment of a user whose PATH has this Python's programs."""
    left_out = ("PYTHONPATH", "OMP_NUM_THREADS")
    found = {name: value for name, value in os.environ.items() if name not in left_out}
    found["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    if row.base in SCRIPTS:
        return found | {"OMP_NUM_THREADS": "1"}
    return found | {"PYTHONPATH": str(hook)}


def _commit(folder: Path, title: str) -> None:
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--no-gpg-sign", "-m", title)


def _git(folder: Path, *arguments: str) -> str:
    ended = run_git(folder, *arguments, environ=os.environ | AUTHOR)
    if ended.code:
        raise RuntimeError(f"git {arguments[0]}: {ended.err.decode(errors='replace').strip()}")
    return ended.out.decode()


def _shown(diff: str) -> str:
    """Return a diff without the lines that only git needs."""
    kept = [line for line in diff.splitlines() if not line.startswith(("diff --git", "index "))]
    return "\n".join(kept) + "\n"
