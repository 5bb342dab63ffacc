"""What the look answers itself becomes rules."""

from __future__ import annotations

from typing import Any

import pytest

from canary.compare.rules.asked import ONCE, RULES, UNASKED
from canary.compare.rules.rule import Answer
from canary.record.types import RunRecord
from tests.unit.comparing import example

BY_ID = {rule.id: rule for rule in RULES}


def judged(rule: str, exact: dict[str, Any]) -> Answer:
    record = example("sft")
    kept = {name: one for name, one in record.exact.items() if name not in ("asked", "facts")}
    made = RunRecord.model_validate(record.model_dump() | {"exact": {**kept, **exact}})
    return BY_ID[rule].judge(made)


def told(status: str, words: str = "words", place: str = "") -> dict[str, Any]:
    return {"asked": {"accumulation": {"status": status, "words": words, "place": place}}}


def test_an_answer_is_the_rules() -> None:
    found = judged("accumulation", told("broken", "it differs", "row 3, token 5"))
    assert (found.status, found.words, found.place) == ("broken", "it differs", "row 3, token 5")
    assert found.is_against
    assert judged("accumulation", told("holds")).status == "holds"


def test_a_doubt_makes_a_note() -> None:
    exact = told("note", "it differs")
    exact["asked"]["accumulation"]["doubt"] = "is it a choice?"
    found = judged("accumulation", exact)
    assert (found.status, found.doubt) == ("note", "is it a choice?")


@pytest.mark.parametrize(
    ("exact", "words", "inapplicable"),
    [
        ({}, UNASKED, False),
        ({"facts": {"unseen": {"first updates": "several ranks"}}}, "several ranks", False),
        (told("not asked", "the labels match no nearby token"), "the labels match no", False),
        (told("not asked", "only for online RL"), "only for online RL", True),
    ],
)
def test_what_was_not_asked_says_why(exact: dict[str, Any], words: str, inapplicable: bool) -> None:
    found = judged("accumulation", exact)
    assert found.status == "not asked"
    assert found.words.startswith(words)
    assert found.inapplicable is inapplicable


def test_a_users_command_is_not_called_again() -> None:
    assert judged("causality", told("holds")).words == ONCE


def test_a_rule_has_all_its_words() -> None:
    from canary.training.asking.again import QUESTIONS
    from canary.training.asking.observer import READ

    assert {*BY_ID} == {*READ, *QUESTIONS}
