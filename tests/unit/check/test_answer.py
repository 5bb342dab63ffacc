"""The answer of a check: what is said first, what is listed, and that no text steers it."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.check.answer import check_text, first_line, listing
from canary.check.run import LEFT_OUT, Checked, CheckRequest, _worst
from canary.config.load import load_config
from canary.errors import ConfigError, UsageError
from canary.relations import MODULES, RELATIONS
from canary.relations.relation import Outcome, outcome

BROKEN = outcome(
    "padding", "broken", "a log-probability of -1 becomes -2", "row 1, token 3", (-1, -2)
)
HOLDS = outcome("order", "holds", "log-probabilities differ by at most 0")
OPEN = outcome("merge", "undecided", "the test failed: no")


def checked(*outcomes: Outcome) -> Checked:
    return Checked("mine", outcomes, Path("out"), 3, 61.0)


def test_what_is_broken_comes_first_with_its_likely_cause() -> None:
    made = checked(HOLDS, BROKEN, OPEN)
    text = check_text(made, "text")
    assert text.splitlines()[0] == "Broken: padding. 1 other relation holds, 1 is undecided."
    assert "row 1, token 3: a log-probability of -1 becomes -2" in text
    assert f"Likely: {RELATIONS['padding'].likely}." in text
    assert RELATIONS["padding"].source in text
    assert "3 launches in 61 s" in text
    assert made.exit_code == 1
    assert first_line(checked(BROKEN)) == "Broken: padding."
    assert first_line(checked(BROKEN, OPEN)) == "Broken: padding. 1 is undecided."


def test_nothing_broken_is_said_so() -> None:
    assert first_line(checked(HOLDS)) == "No relation is broken: 1 holds."
    assert first_line(checked(OPEN)) == "No relation could be tested: 1 undecided."
    assert first_line(checked()) == "No relation could be tested."
    inapplicable = outcome("packing", "not applicable", "no row holds several documents")
    said = first_line(checked(OPEN, inapplicable))
    assert said == "No relation could be tested: 1 not applicable, 1 undecided."
    assert checked(HOLDS, OPEN).exit_code == 0
    assert checked(OPEN).exit_code == 3


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_relation_that_a_quick_check_leaves_out_is_not_asked(form: str) -> None:
    made = checked(HOLDS, outcome("resume", "not asked", LEFT_OUT))
    text = check_text(made, form)
    assert ("not asked" if form == "json" else "Not asked") in text
    assert "pplicable" not in text
    assert LEFT_OUT in text
    assert made.exit_code == 0


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_message_of_a_model_is_harmless(form: str) -> None:
    bad = outcome("order", "undecided", "it says \x1b[31mred\x1b[0m\n# <img src=x> @me")
    text = check_text(checked(bad), form)
    assert "\x1b" not in text
    assert "\n# " not in text
    assert form == "text" or "<img" not in text


def test_a_broken_answer_outweighs_one_that_holds() -> None:
    relation = RELATIONS["frozen"]
    holds = outcome("frozen", "holds", "fine")
    broken = outcome("frozen", "broken", "moved")
    none = outcome("frozen", "not applicable", "not recorded")
    assert _worst(relation, [holds, broken], False) == broken
    assert _worst(relation, [none, holds], False) == holds
    assert _worst(relation, [], True)["status"] == "not asked"
    assert _worst(relation, [none], True)["status"] == "not asked"
    assert _worst(relation, [holds], True) == holds
    assert _worst(relation, [], False)["status"] == "undecided"


def test_relations_are_chosen_by_name() -> None:
    loaded = load_config(None, [])
    assert CheckRequest(loaded, only=("merge", "order")).relations() == ("order", "merge")
    assert "order" not in CheckRequest(loaded, skip=("order",)).relations()
    with pytest.raises(UsageError, match="no relation is left"):
        CheckRequest(loaded, only=("order",), skip=("order",)).relations()


def test_options_replace_what_the_config_says() -> None:
    loaded = load_config(
        None, ["check.only=[order, merge]", "check.skip=[merge]", "check.quick=true"]
    )
    assert CheckRequest(loaded).relations() == ("order",)
    assert CheckRequest(loaded).is_quick
    assert CheckRequest(loaded, only=("merge",)).relations() == ("merge",)
    assert CheckRequest(loaded, skip=("order",)).relations() == ("merge",)
    assert not CheckRequest(loaded, quick=False).is_quick


def test_a_config_with_an_unknown_relation_is_refused_when_it_loads(tmp_path: Path) -> None:
    for command in ("", "command: [python, train.py]\n"):
        config = tmp_path / "canary.yaml"
        config.write_text(f"{command}check:\n  only: [order, paddin]\n")
        with pytest.raises(ConfigError, match=r"check\.only in .*canary\.yaml:\d.*paddin") as said:
            load_config(config)
        assert said.value.hint == "did you mean 'padding'?"
        assert said.value.exit_code == 2


def test_every_file_has_what_its_relation_needs() -> None:
    assert listing().count("\n") == len(RELATIONS)
    for name, module in MODULES.items():
        relation = RELATIONS[name]
        assert relation.id == name
        assert relation.source.startswith("https://")
        assert (relation.moment is not None) == hasattr(module, "ask")
        assert bool(relation.variations) == hasattr(module, "judge")
        assert bool(relation.variations) == bool(relation.of_loop or relation.no_loop)
        assert not (relation.of_loop and relation.no_loop)
        assert relation.moment or relation.variations or relation.invariants
