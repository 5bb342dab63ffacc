"""The verb `ladder`: what it prints, what it leaves, and how it ends."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canary.cli import main
from canary.errors import RunFailed
from canary.ladder import run
from canary.ladder.report import leave_unfinished, result_page
from canary.ladder.results import Ladder, load_result
from canary.ladder.switches import LEVELS
from tests.unit.laddering import Workshop, config_of, site
from tests.unit.pages.making import Read

pytestmark = pytest.mark.usefixtures("undrawn")
FAST: dict[tuple[str, Any], float] = {("speed.kv_cache", True): 2.0}


@pytest.fixture(autouse=True)
def signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own process keeps its handlers."""
    monkeypatch.setattr("canary.cli.campaign.stoppable", lambda: None)


def made(folder: Path, launch: Workshop | None = None) -> Ladder:
    place = site(config_of("ppo"), launch or Workshop(FAST), folder=folder)
    return run.ladder_at(place, LEVELS)


def answered(monkeypatch: pytest.MonkeyPatch, answer: Ladder | Exception) -> None:
    def answers(*_: object) -> Ladder:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(run, "run", answers)


def ended(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["ladder", *words])
    return int(end.value.code or 0)


def test_a_ladder_is_printed_and_left_in_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    answered(monkeypatch, made(tmp_path))
    assert ended("--format", "json") == 0
    printed = json.loads(capfd.readouterr().out)
    assert printed == json.loads((tmp_path / "ladder.json").read_text())
    assert (tmp_path / "ladder.txt").read_text().startswith("Ladder of job: PPO")
    assert (tmp_path / "ladder.md").read_text().startswith("### Ladder of job: PPO")


def test_what_is_known_is_left_after_each_round_and_says_that_it_goes_on(tmp_path: Path) -> None:
    place = site(config_of("ppo"), Workshop(FAST), folder=tmp_path, rounds=3)
    left: list[tuple[int, str, bool]] = []

    def seen(found: Ladder, rounds: int) -> None:
        leave_unfinished(found, rounds)
        again = load_result(tmp_path)
        left.append((again.rounds, again.notes[0], again.top is not None))

    run.ladder_at(place, LEVELS, seen)
    note = "not finished: {} of 3 rounds are timed"
    assert left == [(1, note.format(1), True), (2, note.format(2), True)]


def test_the_page_has_a_button_per_level_with_its_figures_beside_the_baselines(
    tmp_path: Path,
) -> None:
    found = made(tmp_path)
    page = result_page(found)
    labels = re.findall(r"<label for=[^>]*>(.*?)</label>", page)
    assert labels == [level.level for level in found.levels[1:]]
    section = page[page.index('class="choices"') :].partition("</section>")[0]
    tables = section.split("<table>")[1:]
    for level, table in zip(found.levels[1:], tables, strict=True):
        cells = Read(table).text
        assert level.figures is not None
        assert level.level in cells
        assert f"{level.figures.samples_per_s:.3g}" in cells


def test_a_level_that_is_not_safe_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    unsafe = Workshop(FAST, learns={("speed.kv_cache", True): 0.1})
    answered(monkeypatch, made(tmp_path, unsafe))
    assert ended() == 1
    assert "UNSAFE: basic" in capfd.readouterr().out


def test_a_level_without_a_ratio_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made(tmp_path)
    lost = replace(whole.levels[-1], problem="oom: out of memory", cumulative=None)
    answered(monkeypatch, replace(whole, levels=(*whole.levels[:-1], lost)))
    assert ended() == 1


def test_a_baseline_that_does_not_run_ends_with_4(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    answered(monkeypatch, RunFailed("the baseline level did not run: oom", "oom"))
    assert ended() == 4
    assert capfd.readouterr().err == "canary: the baseline level did not run: oom\n"


def test_a_folder_that_cannot_be_written_is_known_before_anything_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "ladder_at", lambda *_: pytest.fail("a launch was started"))
    (tmp_path / "file").write_text("")
    assert ended("-o", str(tmp_path / "file")) == 4
    said = capfd.readouterr().err
    assert f"cannot make {tmp_path}/file/ladder-" in said
    assert "choose another folder with -o" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "html"], "unknown format 'html'"),
        (["--levels", "fast"], "unknown level 'fast'"),
        (["--rounds", "0"], "--rounds must be 1 or more, got 0"),
        (["no.yaml"], "no config at no.yaml"),
        (["--set", "training_type=exec", "--set", "command=[a]"], "not used by training_type exec"),
    ],
)
def test_wrong_usage_ends_with_2_before_anything_runs(
    words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(*words) == 2
    assert message in capfd.readouterr().err


def test_completions_that_cannot_be_of_one_length_are_refused_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text("training_type: grpo\ntrainer_args: {use_vllm: true}\n")
    assert ended(str(file)) == 2
    said = capfd.readouterr().err
    assert "equal length, but fixed_length is for the model's generate, not for vLLM" in said


def test_report_draws_a_ladder_by_its_folder_or_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, made(tmp_path))
    assert ended() == 0
    for named in (tmp_path, tmp_path / "ladder.json"):
        with pytest.raises(SystemExit) as end:
            main(["report", str(named)])
        assert not end.value.code
        page = tmp_path / "report.html"
        assert "<label" in page.read_text()
        page.unlink()
