"""Which runs a session stores, and how a person accepts a change there."""

from __future__ import annotations

from tests.unit.pytest_plugin.conftest import Team
from tests.unit.pytest_plugin.test_outcomes import learning_faster

pytest_plugins = ["pytester"]


def test_runs_that_do_not_fail_are_stored_once_and_make_a_baseline(team: Team) -> None:
    team.pytester.makepyfile(
        "import pytest\n"
        '@pytest.mark.parametrize("place", [1, 2, 3, 4])\n'
        "def test_first(canary, place):\n"
        '    canary.assert_no_regression("first.yaml", set=[f"seed={place}"])\n'
        '    canary.assert_no_regression("first.yaml", set=f"seed={place}")\n'
        "def test_broken(canary):\n"
        '    canary.assert_no_regression("broken.yaml")\n'
        "def test_masked(canary):\n"
        '    canary.assert_no_regression("masked.yaml", baseline="good.json")\n'
    )
    shown = team.run("--canary-save")
    shown.assert_outcomes(passed=4, failed=2, warnings=6)
    for number in (1, 2, 3):
        line = f"*this is run {number} of the 3 that it needs, stored in canary_history."
        shown.stdout.fnmatch_lines([line])
    assert len(set(team.stored()) - set(team.before)) == 4


CHANGED = "test_team.py::test_changed"
ACCEPTING = """
def test_healthy(canary):
    canary.assert_no_regression("healthy.yaml")

def test_changed(canary):
    canary.assert_no_regression("changed.yaml")

def test_masked(canary):
    canary.assert_no_regression("masked.yaml", history="of_train")
"""


def test_changed_learning_is_accepted_for_a_reason_and_a_regression_is_not(team: Team) -> None:
    team.config("changed", learning_faster())
    team.pytester.makepyfile(test_team=ACCEPTING)
    team.run("--canary-accept= ", CHANGED).stdout.fnmatch_lines(
        ["canary: --canary-accept needs a reason (it is stored with the run)"]
    )
    assert not team.trainings()

    shown = team.run("--canary-accept", "twice the rate", "-rP")
    shown.assert_outcomes(passed=2, failed=1)
    shown.stdout.fnmatch_lines(["Changed and accepted (twice the rate): *"])
    (new,) = set(team.stored()) - set(team.before)
    assert new.endswith("-sft_smoke+accepted.json")

    # It begins a new period, so that three runs are needed again.
    team.run(CHANGED).stdout.fnmatch_lines(["*CanaryWarning: No baseline yet: 1 of 3 *"])
