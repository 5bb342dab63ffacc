"""The demo's repository: two pull requests of one line, whatever the user's git is set to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from canary.campaign.demo import Demo, demo_text
from canary.campaign.demo_repository import BROKEN, HARMLESS, MAIN, SOURCES, branches, own_git
from canary.compare.stats import compare_to_baseline
from canary.config.load import load_config
from canary.record.types import RunRecord
from canary.report.render import render
from canary.runner.outcome import outcome_text
from tests.unit.comparing import altered, example

TRAINING = (SOURCES / "train.py").read_text()


def scripts(project: Path) -> dict[str, str]:
    """The training of each branch as it is checked out."""
    with own_git(), branches(project) as trees:
        return {name: (tree / "train.py").read_text() for name, tree in trees.items()}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who signs with a missing key, has a hook that fails, and runs this from a hook."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("pre-commit", "post-checkout"):
        (hooks / name).write_text("#!/bin/sh\nexit 1\n")
        (hooks / name).chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[commit]\n\tgpgSign = true\n[core]\n\thooksPath = {hooks}\n\tautocrlf = true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    return tmp_path


def test_each_pull_request_changes_its_line_under_any_settings_of_git(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scripts(hostile / "project") == {
        MAIN: TRAINING,
        HARMLESS.branch: HARMLESS.applied(TRAINING),
        BROKEN.branch: BROKEN.applied(TRAINING),
    }
    for name in ("GIT_CONFIG_GLOBAL", "GIT_DIR", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name)
    log = subprocess.run(
        ["git", "log", "--format=%s", f"{MAIN}..{BROKEN.branch}"],
        cwd=hostile / "project",
        capture_output=True,
        text=True,
        check=True,
    )
    assert log.stdout == f"{BROKEN.title}\n"


@pytest.mark.usefixtures("hostile")
def test_the_users_variables_of_git_come_back() -> None:
    before = dict(os.environ)
    with own_git():
        assert "GIT_DIR" not in os.environ
    assert dict(os.environ) == before


def test_the_training_is_short_enough_to_read() -> None:
    assert len(TRAINING.splitlines()) <= 70


LABEL = "mean of the last tenth of the steps"


def with_losses(*losses: float) -> RunRecord:
    return altered(example(), "stability", "loss_values", to=list(losses))


def test_the_demo_and_its_report_show_the_same_loss() -> None:
    """Neither the last step's loss nor the mean of all steps, which a trainer calls train_loss."""
    base = with_losses(*[0.9] * 18, 0.6, 0.4)
    head = altered(with_losses(*[0.7] * 18, 0.55, 0.35), "run_id", to="changed")
    answer = compare_to_baseline(head, base)
    demo = Demo(answer, answer, Path("d"), Path("d/pad_with_eos/r"))
    report = render(answer, "text")
    assert "final loss          0.5000 -> 0.4500" in report
    text = demo_text(demo, report, "canary")
    assert f"A gate on the loss ({LABEL}) sees 0.5000 -> 0.4500 (-10.0%) and passes." in text
    assert f"  final loss  0.4500 ({LABEL}), 0 NaN, 0 Inf" in outcome_text(head).splitlines()


def test_no_clock_of_the_demo_decides_on_a_busy_machine() -> None:
    """Thirty steps on a machine with two speeds are no measurement: what is learned decides."""
    limits = load_config(SOURCES / "canary.yaml").config.thresholds
    keys = ("max_step_time_increase_pct", "max_cpu_time_increase_pct", "max_tps_drop_pct")
    assert [getattr(limits, key) for key in keys] == [50, 50, 33]
