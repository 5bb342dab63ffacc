"""A user's own relation in the training process: it is asked, told about, and cannot harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.training.relations.own import NO_OUTCOME, OwnRelations
from tests.unit.training.relations.tiny import Loop, gpt2, llama

EXAMPLE = Path(__file__).parents[4] / "examples" / "relations" / "shift.py"
HEAD = """
from canary.relations.relation import CannotAsk, Relation, holds
RELATION = Relation("mine", "sampling", "x holds", "y is wrong", "https://example.org")
"""


def written(folder: Path, body: str) -> Path:
    file = folder / "mine.py"
    file.write_text(HEAD + body)
    return file


def test_the_example_holds_for_rotary_positions_and_breaks_for_absolute_ones() -> None:
    for model, status in ((llama(), "holds"), (gpt2(), "broken")):
        loop = Loop(model, wanted=("shift", "order"), files={"shift": str(EXAMPLE)})
        found = loop.run()
        assert found["shift"]["status"] == status, found["shift"]
        assert found["order"]["status"] == "holds"
        assert (
            loop.told["shift"]["holds"] == "a row has the same log-probabilities at later positions"
        )
    assert found["shift"]["place"].startswith("row 0, token ")
    assert found["shift"]["tolerance"]


def test_a_file_leaves_nothing_beside_it(tmp_path: Path) -> None:
    file = written(tmp_path, "def ask(look): return holds(RELATION, 'fine')")
    loop = Loop(llama(), wanted=("mine",), files={"mine": str(file)})
    assert loop.run()["mine"]["message"] == "fine"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("def ask(look): raise CannotAsk('no tokens here')", "not applicable", "no tokens here"),
        ("def ask(look): return 1 / 0", "undecided", "division by zero"),
        ("def ask(look): return None", "undecided", NO_OUTCOME),
        ("def ask(look): return {'status': 'fine', 'message': ''}", "undecided", NO_OUTCOME),
        ("def ask(look): return {**holds(RELATION, 'a'), 'values': 3}", "undecided", NO_OUTCOME),
        ("def ask(look): return {**holds(RELATION, 'a'), 'tolerance': 10**400}", "undecided", ""),
        ("def ask(look): raise SystemExit(0)", "undecided", "SystemExit"),
        ("def ask(look): return holds(RELATION, 'x' * 9000)", "holds", "x" * 2000),
    ],
)
def test_what_ask_does_wrong_is_an_answer(
    tmp_path: Path, body: str, status: str, said: str
) -> None:
    file = written(tmp_path, body)
    found = Loop(llama(), wanted=("mine", "order"), files={"mine": str(file)}).run()
    assert found["mine"]["status"] == status
    assert said in found["mine"]["message"]
    assert len(found["mine"]["message"]) <= 2_000
    assert found["order"]["status"] == "holds"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise SystemExit(3)", "it cannot be loaded"),
        ("def ask(", "it cannot be loaded"),
        ("import no_such_package_here", "no_such_package_here"),
        (HEAD, "it has no ask(look)"),
        (HEAD.replace('"mine"', '"other"') + "def ask(look): pass", "give it the name of the file"),
        (HEAD.replace('"sampling"', '"odd"') + "def ask(look): pass", "has the group 'odd'"),
        (
            HEAD.replace('org")', 'org", invariants=("x",))') + "def ask(look): pass",
            "no variations and no invariants",
        ),
    ],
)
def test_a_file_without_a_relation_is_a_problem_and_the_training_goes_on(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    own = OwnRelations({"mine": str(file)})
    assert said in own.told["mine"]["problem"]
    assert own.modules == {}
