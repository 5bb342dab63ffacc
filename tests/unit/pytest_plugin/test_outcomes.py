"""What a test with a canary shows, for each verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from canary.record.types import RunRecord
from tests.unit.comparing import record
from tests.unit.pytest_plugin.conftest import Team

pytest_plugins = ["pytester"]

TESTS = """
import pytest

def test_healthy(canary):
    assert canary.assert_no_regression("healthy.yaml").verdict == "pass"

def test_noisy(canary):
    canary.assert_no_regression("noisy.yaml")

def test_noisy_strict(canary):
    canary.assert_no_regression("noisy.yaml", strict=True)

def test_first(canary):
    canary.assert_no_regression("first.yaml")

def test_masked(canary):
    canary.assert_no_regression("masked.yaml", baseline="good.json")

def test_changed(canary):
    canary.assert_no_regression("changed.yaml")

def test_broken(canary):
    canary.assert_no_regression("broken.yaml")

def test_misspelt(canary):
    canary.assert_no_regression("misspelt.yaml")

def test_nothing(canary):
    canary.assert_no_regression("nothing.yaml")

def test_command(canary):
    canary.assert_no_regression_of_command(["python", "train.py"], config="noisy.yaml", name="n")

def test_failed_command(canary):
    canary.assert_no_regression_of_command(["python", "train.py"], config="broken.yaml")

def test_run(canary):
    canary.assert_no_regression_of_run("good.json")

def test_record(canary_record):
    assert canary_record("healthy.yaml").perf.max_mem_mb == 600.0

def test_broken_record(canary_record):
    canary_record("broken.yaml")
"""


def learning_faster() -> RunRecord:
    """As if somebody had changed the learning rate."""
    whole = record(100)
    whole.config["learning_rate"] = 0.001
    rates = whole.exact["trajectory"]["learning_rates"]
    whole.exact["trajectory"]["learning_rates"] = [2 * rate for rate in rates if rate]
    return whole


@pytest.fixture
def shown(team: Team) -> Iterator[pytest.RunResult]:
    team.config("changed", learning_faster())
    team.pytester.makepyfile(test_team=TESTS)
    yield team.run("-rfP", "--junitxml=junit.xml")
    assert team.stored() == team.before, "nothing is stored unless that is asked for"


def section(shown: pytest.RunResult, test: str) -> str:
    """What pytest printed of one test."""
    whole = shown.stdout.str()
    found = re.search(rf"^_+ {test} _+\n(.*?)(?=^(?:_{{3,}}|={{3,}}) )", whole, re.M | re.S)
    assert found is not None, whole
    return found[1]


FAILED = ("noisy_strict", "masked", "changed", "broken", "misspelt", "nothing", "failed_command")


def test_each_verdict_passes_warns_or_fails_as_everywhere(
    shown: pytest.RunResult, team: Team
) -> None:
    shown.assert_outcomes(passed=6, failed=8, warnings=4)
    for name in (*FAILED, "broken_record"):
        shown.stdout.fnmatch_lines([f"FAILED test_team.py::test_{name} - *"])
    whole = shown.stdout.str()
    assert "Traceback" not in whole
    assert not re.search(r"^\S*(?:canary|team)\S*\.py:\d+: (?!CanaryWarning)", whole, re.M)

    masked = section(shown, "test_masked")
    first, _, rest = masked.partition("\n\n")
    assert first.startswith("Regression: 0 EOS among 312 label tokens: the model will never ")
    assert first.endswith("(4 more checks).")
    assert "\n" not in first
    run = "canary_output/20260202-000001-train"
    for wanted in (
        "The EOS labels are masked: 24 -> 0.",
        "labels_contain_eos: 0 EOS among 312 label tokens",
        f"Record: {run}\nAll checks: canary compare {run} good.json\n"
        f"Accept: canary save-baseline {run} good.json\n",
    ):
        assert wanted in rest

    assert re.search(
        r"^Accept: canary save-baseline (\S+-sft_smoke) canary_history --accept REASON\n"
        r"Or train again and accept: pytest test_team.py::test_changed --canary-accept REASON$",
        section(shown, "test_changed"),
        re.M,
    )
    for test in ("test_broken", "test_failed_command"):
        assert section(shown, test).startswith("Error: run 20260202-"), test
        assert re.search(r"^Log: canary_output/\S+/log.txt$", section(shown, test), re.M)
        assert "Captured canary log call -" in section(shown, test)
        assert "\nRuntimeError: it broke\n" in section(shown, test)
    assert section(shown, "test_broken_record").startswith("canary: run 20260202-")
    assert section(shown, "test_misspelt") == (
        "canary: unknown key 'max_step' in misspelt.yaml:2 (did you mean 'max_steps'?)\n"
    )
    assert section(shown, "test_nothing") == "canary: no such data\n"

    strict = section(shown, "test_noisy_strict")
    assert "Undecided\n  step_time_median: " in strict
    assert "Strict: an inconclusive canary fails this test." in strict

    assert re.search(r"CanaryWarning: Learns the same: .* Speed is not decided: .* Record: ", whole)
    how = "To store runs in canary_history: pytest --canary-save"
    assert re.search(f"CanaryWarning: No baseline yet: 0 of 3 .* {how}", whole)
    shown.stdout.fnmatch_lines(['    canary.assert_no_regression("first.yaml")'])
    assert "Pass: learns the same" in section(shown, "test_healthy")

    junit = (team.path / "junit.xml").read_text()
    assert '<property name="canary" value="pass: Pass: learns the same' in junit
    assert f'<property name="canary_run" value="{team.path}/canary_output/20260202-0' in junit


REFUSED = {
    'tier="strong"': "canary: no threshold tier 'strong' (one of default, *)",
    'baseline="none.json"': "canary: no baseline at */none.json (name a run's *)",
    'baseline="good.json", history="h"': "canary: a history and a baseline are given *",
    'history="good.json"': "canary: the history */good.json is a file (name *)",
}


def test_an_argument_that_names_nothing_is_refused_before_anything_trains(team: Team) -> None:
    team.pytester.makepyfile(
        "\n".join(
            f"def test_{number}(canary): canary.assert_no_regression('healthy.yaml', {arguments})"
            for number, arguments in enumerate(REFUSED)
        )
    )
    shown = team.run()
    shown.assert_outcomes(failed=len(REFUSED))
    for line in REFUSED.values():
        shown.stdout.fnmatch_lines([line])
    assert not team.trainings()


def test_paths_are_those_of_the_config_file_wherever_pytest_starts(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = team.path / "tests"
    folder.mkdir()
    (folder / "test_a.py").write_text(
        "def test_a(canary, monkeypatch, tmp_path):\n"
        "    monkeypatch.chdir(tmp_path)\n"
        '    canary.assert_no_regression("healthy.yaml")\n'
    )
    (folder / "test_b.py").write_text(
        'def test_b(canary): canary.assert_no_regression("noisy.yaml")\n'
    )
    (team.path / "tox.ini").write_text(
        "[pytest]\ncanary_history = elsewhere\ncanary_strict = true\n"
    )
    team.history.rename(team.path / "elsewhere")
    monkeypatch.chdir(folder)
    shown = team.run()
    shown.assert_outcomes(passed=1, failed=1)
    shown.stdout.fnmatch_lines([f"All checks: canary compare * {team.path}/elsewhere"])
    team.run("--canary-history=../elsewhere", "test_a.py").assert_outcomes(passed=1)


SENT = """
import execnet
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    hook = item.config.hook
    execnet.dumps(hook.pytest_report_to_serializable(config=item.config, report=report))
    return report
"""
"""Reports become bytes, as a worker of xdist sends them."""


def test_a_strangers_words_end_no_worker_and_control_no_terminal(team: Team) -> None:
    """Half a character of a record cannot be sent to the session."""
    words = {"status": "failed", "reason": "\ud800 \x1b[2J"}
    whole = json.dumps(record(100).model_dump(mode="json") | words)
    (team.path / "strange.json").write_text(whole)
    team.pytester.makepyfile(
        "def test_a(canary):\n"
        '    canary.assert_no_regression_of_run("strange.json")\n'
        "def test_b(canary_record, monkeypatch):\n"
        "    import canary.pytest_plugin.trainings as of_plugin\n"
        "    from pathlib import Path\n"
        '    left = lambda *words: Path("strange.json")\n'
        '    monkeypatch.setattr(of_plugin.Trainings, "of_config", left)\n'
        '    canary_record("healthy.yaml")\n'
    )
    team.pytester.makeconftest(SENT)
    shown = team.run()
    shown.assert_outcomes(failed=2)
    assert "\x1b[2J" not in shown.stdout.str()
