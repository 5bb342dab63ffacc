"""Relations as checks of a comparison: what fails, what is only shown, and what the line says."""

from __future__ import annotations

from dataclasses import replace

from canary.compare.relations import Before, relation_checks, with_relations
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.relations import RELATIONS
from canary.relations.relation import Outcome, Relation, outcome
from tests.unit.comparing import record

PADDING = outcome("padding", "broken", "a log-probability of -1 becomes -2", "row 1")
HOLDS = outcome("order", "holds", "log-probabilities differ by at most 0")
HELD = Before({"padding": "holds", "order": "holds"}, "abc123456")


def pairs(*outcomes: Outcome) -> list[tuple[Relation, Outcome]]:
    return [(RELATIONS[one["relation"]], one) for one in outcomes]


def passed() -> Comparison:
    return replace(compare_to_baseline(record(9), record(8)), verdict="pass", first_line="Pass: x.")


def test_only_what_was_not_broken_before_fails() -> None:
    def status(before: Before | None) -> str:
        first, *_ = relation_checks(pairs(PADDING, HOLDS), before)
        return first.status

    assert status(HELD) == "fail"
    assert status(Before({"padding": "not applicable"}, "a" * 9)) == "fail"
    assert status(Before({"padding": "broken"}, "a" * 9)) == "warn"
    assert status(Before({"order": "holds"}, "a" * 9)) == "warn"
    assert status(None) == "warn"
    assert status(Before({"padding": "not asked"}, "a" * 9)) == "warn"


def test_a_failed_relation_makes_any_verdict_a_regression() -> None:
    checks = relation_checks(pairs(PADDING, HOLDS), HELD)
    for verdict in ("pass", "inconclusive", "no-baseline", "changed"):
        accepted = "yes" if verdict == "changed" else None
        found = with_relations(replace(passed(), verdict=verdict, accepted=accepted), checks)
        assert found.verdict == "regression"
        assert found.accepted is None
        assert found.first_line.startswith("Regression: relation padding is broken: row 1: a log")
        assert found.exit_code() == 1
        assert found.check("relations.padding").group == "correctness"
        assert found.check("relations").message == "1 relation holds"


def test_a_crash_keeps_its_line() -> None:
    crash = Comparison("regression", "Regression: all 2 current runs ended early.")
    found = with_relations(crash, relation_checks(pairs(PADDING), HELD))
    assert found.first_line == crash.first_line
    assert found.failed_checks


def test_what_does_not_fail_keeps_the_verdict() -> None:
    known = with_relations(passed(), relation_checks(pairs(PADDING, HOLDS), None))
    assert known.verdict == "pass"
    assert "Warning: relation padding is broken" in known.first_line
    fine = with_relations(passed(), relation_checks(pairs(HOLDS), HELD))
    assert fine.first_line == "Pass: x."
    lost = relation_checks(pairs(outcome("padding", "undecided", "no"), HOLDS), HELD)
    assert [check.status for check in lost] == ["warn", "pass"]


def test_what_held_and_is_asked_no_more_is_said() -> None:
    """A change must not leave a relation without an answer, and nobody sees it."""
    names = ("padding", "order", "neighbour", "attention", "replay")
    before = Before(dict.fromkeys(names, "holds"), "abc123456")
    gone = [outcome(name, "not applicable", "each micro-batch has one row") for name in names]
    found = relation_checks(pairs(*gone, HOLDS), before)
    assert [check.status for check in found] == ["warn"] * 4 + ["pass"]
    assert found[0].message.startswith("relation padding held at abc123456 and is not applicable")
    assert (
        found[3].message == "2 more relations held at abc123456 and do not now: attention, replay"
    )
    assert "Warning: relation padding held" in with_relations(passed(), found).first_line


def test_a_check_without_an_answer_is_inconclusive() -> None:
    nothing = relation_checks(pairs(outcome("order", "undecided", "no")), None)
    assert with_relations(passed(), nothing).verdict == "inconclusive"
