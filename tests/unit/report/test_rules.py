"""The answer of the rules about one run: its first line, its exit code, its forms."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from canary.compare.rules import RULES, answers
from canary.compare.rules.comparison import rule_checks
from canary.config.load import load_config
from canary.errors import ConfigError, UsageError
from canary.record.types import RunRecord
from canary.report.rules import answer_lines, answer_text, exit_code, first_line, refuse_unknown
from tests.unit.comparing import altered, example


def lacking_eos(*, disable: tuple[str, ...] = ()) -> RunRecord:
    """A run whose labels lack EOS."""
    record = altered(example(), "config", "check", to={"disable": [*disable]})
    steps = [[one | {"eos_labels": 0} for one in step] for step in record.exact["batches"]]
    return altered(record, "exact", "batches", to=steps)


def test_a_sound_run_is_right_as_far_as_could_be_asked() -> None:
    found = answers(example())
    assert exit_code(found) == 0
    assert first_line(found).startswith("Nothing wrong was found: ")
    assert [line.split()[:4] for line in answer_lines(found)] == [
        ["rules", "Nothing", "wrong", "was"]
    ]


def test_a_broken_rule_says_what_was_found_and_what_to_do() -> None:
    found = answers(lacking_eos())
    assert exit_code(found) == 1
    assert first_line(found) == (
        "Broken: 0 EOS among 1024 label tokens: the model will never learn to stop."
    )
    (*_, line) = answer_lines(found)
    assert "(labels_contain_eos); let the collator mask padding" in line
    shown = answer_text(found, "run", "text", 80)
    assert "\nlabels_contain_eos: labels contain EOS\n" in shown
    assert "https://github.com/huggingface/transformers/issues/23530" in shown


def test_a_run_that_shows_nothing_is_not_right() -> None:
    found = answers(altered(example(), "exact", to={}))
    assert exit_code(found) == 3
    assert first_line(found) == "No rule could be checked."


def test_a_note_changes_no_exit_code() -> None:
    record = altered(lacking_eos(), "exact", "data", to={"rows": 200})
    found = answers(record)
    assert exit_code(found) == 0
    assert first_line(found).startswith("No rule is broken, but this looks odd: 0 EOS among 1024")
    (*_, line) = answer_lines(found)
    assert line.startswith("  note        0 EOS among 1024 label tokens")


def test_what_could_not_be_asked_is_told_with_its_reason() -> None:
    record = altered(example(), "exact", "first_update", to={})
    text = answer_text(answers(record), "run", "text")
    held, unasked = text.split("\nHolds: ")[1].split("\n", 1)
    assert "trainable_changed" not in held
    assert re.search("trainable_changed.*: the first update was not recorded\\n", unasked)


def test_rules_for_other_trainings_are_counted_and_not_listed() -> None:
    text = answer_text(answers(example("sft")), "run", "text")
    assert "  only for" not in text
    others = sum(said.inapplicable for _, said in answers(example("sft")))
    assert f"\n{others} rules are for other kinds of training.\n" in text
    assert others > 9


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_each_form_has_the_first_line(form: str) -> None:
    found = answers(lacking_eos())
    text = answer_text(found, "run", form, 200)
    assert first_line(found) in text.replace("\\", "")
    assert text.endswith("\n")


def test_json_has_every_rule() -> None:
    document = json.loads(answer_text(answers(lacking_eos()), "run", "json"))
    assert [one["rule"] for one in document["rules"]] == [rule.id for rule in RULES]
    assert document["exit_code"] == 1
    with pytest.raises(UsageError):
        answer_text(answers(example()), "run", "xml")


def test_a_disabled_rule_is_not_asked() -> None:
    found = answers(lacking_eos(disable=("labels_contain_eos",)))
    assert exit_code(found) == 0
    said = {rule.id: one.words for rule, one in found}
    assert said["labels_contain_eos"] == "the config disables it"


@pytest.mark.parametrize(
    ("baseline", "status"),
    [((), "fail"), (("labels_contain_eos",), None)],
)
def test_a_change_cannot_switch_off_the_rule_that_judges_it(
    baseline: tuple[str, ...], status: str | None
) -> None:
    before = altered(example(), "config", "check", to={"disable": [*baseline]})
    checks = rule_checks([lacking_eos(disable=("labels_contain_eos",))], [before])
    assert {one.name: one.status for one in checks}.get("labels_contain_eos") == status


def test_a_config_that_disables_no_rule_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "canary.yaml"
    config.write_text("check:\n  disable: [at_most_one_bo]\n")
    with pytest.raises(ConfigError, match="there is no rule 'at_most_one_bo'") as refused:
        refuse_unknown(load_config(config))
    assert refused.value.hint == "did you mean 'at_most_one_bos'?"


def test_every_rule_says_what_it_needs_and_what_to_do() -> None:
    for rule in RULES:
        assert rule.holds
        assert rule.do
        assert not rule.holds.endswith(".")
        assert not rule.do.endswith(".")
        assert rule.source == "" or rule.source.startswith("https://")
    assert len({rule.id for rule in RULES}) == len(RULES)
