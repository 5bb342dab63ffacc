"""Two looks run at once where nothing of theirs can meet, and none outlives the comparison."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from canary.campaign.side import Side, at_once
from canary.record.types import RunRecord
from tests.unit.comparing import record

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


@dataclass(frozen=True)
class Recorded(Side):
    """Starts a process that does nothing, and makes the record."""

    events: list[str] = field(default_factory=list)
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, settings: Sequence[str], *shown: object) -> subprocess.Popen[str]:
        self.events.append(f"start {self.role} {' '.join(settings)}")
        self.children.append(subprocess.Popen(SLEEPS, text=True))
        return self.children[-1]

    def finish(self, child: subprocess.Popen[str]) -> RunRecord:
        child.kill()
        child.wait()
        self.events.append(f"finish {self.role}")
        return record()


def two(
    tmp_path: Path, config: str, *, one_folder: bool
) -> tuple[dict[str, Side], list[str], list[subprocess.Popen[str]]]:
    path = tmp_path / "canary.yaml"
    path.write_text(config)
    events: list[str] = []
    children: list[subprocess.Popen[str]] = []
    sides: dict[str, Side] = {}
    for role in ("base", "head"):
        folder = tmp_path if one_folder else tmp_path / role
        environment: dict[str, str] = {}
        places = (path, folder, Path(sys.executable), environment, tmp_path / "out")
        sides[role] = Recorded(role, role, *places, events=events, children=children)
    return sides, events, children


BUILT_IN = "training_type: sft\n"
COMMAND = f"command: [{sys.executable}, train.py]\n"


@pytest.mark.parametrize(("config", "one_folder"), [(BUILT_IN, True), (COMMAND, False)])
def test_both_looks_run_before_the_first_is_waited_for(
    tmp_path: Path, config: str, one_folder: bool
) -> None:
    sides, events, _ = two(tmp_path, config, one_folder=one_folder)
    with at_once(sides, ["exact=true"]) as launch:
        launch("base")
        launch("head")
        launch("base")
    begun = ["start base exact=true", "start head exact=true"]
    assert events == [*begun, "finish base", "finish head", begun[0], "finish base"]


def test_commands_of_one_folder_take_turns(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    sides, events, _ = two(tmp_path, COMMAND, one_folder=True)
    with at_once(sides, []) as launch:
        launch("base")
        launch("head")
    assert [event.split()[0] for event in events] == ["start", "finish"] * 2


def test_a_look_that_nobody_waited_for_is_stopped(tmp_path: Path) -> None:
    sides, _, children = two(tmp_path, BUILT_IN, one_folder=True)
    with pytest.raises(KeyboardInterrupt), at_once(sides, []):
        raise KeyboardInterrupt
    assert len(children) == 2
    assert all(child.poll() is not None for child in children)


def test_threads_that_wait_sleep_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    """Threads of two looks that spin on the same cores made both 5 times as long."""

    class Noted(Recorded):
        def start(self, settings: Sequence[str], *shown: object) -> subprocess.Popen[str]:
            self.events.append(self.environment["OMP_WAIT_POLICY"])
            return super().start(settings)

    sides, events, _ = two(tmp_path, BUILT_IN, one_folder=True)
    places = [(side.config, side.folder, side.python) for side in sides.values()]
    given: list[dict[str, str]] = [{}, {"OMP_WAIT_POLICY": "ACTIVE"}]
    noted: dict[str, Side] = {
        role: Noted(role, role, *place, own, tmp_path / "out", events=events)
        for role, place, own in zip(sides, places, given, strict=True)
    }
    with at_once(noted, []) as launch:
        launch("base")
        launch("head")
    assert [event for event in events if event.isupper()] == ["PASSIVE", "ACTIVE"]
