"""`check: true` on a pull request: relations that it breaks, and answers that cannot be trusted."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from canary.check.answer import check_document
from canary.check.run import Checked
from canary.relations import RELATIONS
from canary.relations.relation import RelationStatus, outcome
from tests.github.gatehouse import BASE_CONFIG, Gatehouse, Said, git
from tests.github.server import GitHub
from tests.github.state import Pull
from tests.unit.hostile import PAYLOADS

MESSAGE = "a log-probability of -1 becomes -2"
SOURCE = RELATIONS["padding"].source


@pytest.fixture
def house(tmp_path: Path, github: GitHub) -> Gatehouse:
    return Gatehouse(tmp_path, github)


def document(statuses: Mapping[str, RelationStatus] | None = None) -> dict[str, Any]:
    """The answer of a check in which all relations hold, but for these."""
    outcomes = tuple(
        outcome(name, (statuses or {}).get(name, "holds"), MESSAGE, "row 1, token 3", (-1.0, -2.0))
        for name in RELATIONS
    )
    return check_document(Checked("mine", outcomes, Path("out"), 3, 61.0))


def leaving(text: str) -> Callable[[Path], None]:
    """What writes an answer into the records of the training job."""

    def leave(folder: Path) -> None:
        (folder / "records" / "00-canary" / "check.json").write_text(text)

    return leave


def asked(house: Gatehouse, report: Callable[[], Said], answer: str | None = None) -> Said:
    """A report whose training job left this answer; None: one in which all hold."""
    house.spoil = leaving(json.dumps(document()) if answer is None else answer)
    try:
        return report()
    finally:
        house.spoil = None


def pushed(house: Gatehouse, **statuses: RelationStatus) -> Said:
    answer = json.dumps(document(statuses))
    return asked(house, lambda: house.push_main(house.run(), check="true"), answer)


def judged(house: Gatehouse, pull: Pull, answer: str | None = None, **inputs: Any) -> Said:
    given = {"check": "true"} | inputs
    return asked(house, lambda: house.judge(pull, house.run(), **given), answer)


def with_broken(*names: str) -> str:
    return json.dumps(document(dict.fromkeys(names, "broken")))


def stored(house: Gatehouse) -> list[dict[str, Any]]:
    """The stored runs, oldest first."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=house.bare, capture_output=True, text=True, check=True
        )
        return done.stdout

    names = git("ls-tree", "-r", "--name-only", "canary-baselines").splitlines()
    found = [name for name in sorted(names) if "_" in Path(name).name and name.endswith(".json")]
    return [json.loads(git("show", f"canary-baselines:{name}")) for name in found]


def test_a_push_stores_what_its_check_showed(house: Gatehouse) -> None:
    said = pushed(house, padding="broken", merge="not applicable")
    assert said.outputs["verdict"] == "no-baseline"
    (entry,) = stored(house)
    assert entry["context"]["relations"]["padding"] == "broken"
    assert entry["context"]["relations"]["merge"] == "not applicable"
    assert entry["context"]["relations"]["order"] == "holds"
    assert house.push_main(house.run()).code == 0
    assert stored(house)[1]["context"]["relations"] is None


def test_a_relation_that_a_pull_request_breaks_is_a_regression(house: Gatehouse) -> None:
    for _ in range(3):
        pushed(house)
    pull = house.pull()
    said = judged(house, pull, with_broken("padding"))
    assert said.outputs["verdict"] == "regression"
    assert said.code == 1
    state, words = house.status(pull.head_sha)
    assert state == "failure"
    assert "relation padding is broken" in words
    (comment,) = house.comments(pull)
    assert "row 1, token 3" in comment.body
    assert "it was not broken" in comment.body
    assert "padding is attended to" in comment.body
    assert f"([read more]({SOURCE}))" in comment.body
    report = Path(said.outputs["report-path"])
    assert (next(report.rglob("check.txt"))).read_text().startswith("Broken: padding.")


def test_a_check_in_which_all_hold_passes(house: Gatehouse) -> None:
    for _ in range(3):
        pushed(house)
    pull = house.pull()
    said = judged(house, pull)
    assert said.outputs["verdict"] == "pass"
    assert "relation" not in house.status(pull.head_sha)[1]


def test_what_was_broken_before_is_known(house: Gatehouse) -> None:
    for _ in range(4):
        pushed(house, padding="broken")
    pull = house.pull()
    said = judged(house, pull, with_broken("padding"))
    assert said.outputs["verdict"] == "pass"
    (comment,) = house.comments(pull)
    assert "this is known: it was broken at" in comment.body
    assert judged(house, pull, with_broken("padding", "order")).outputs["verdict"] == "regression"


def test_a_push_that_breaks_a_relation_is_red_once_and_known_afterwards(house: Gatehouse) -> None:
    for _ in range(3):
        pushed(house)
    assert pushed(house, order="broken").outputs["verdict"] == "regression"
    assert sum("+red" in name for name in house.entries()) == 1
    assert pushed(house, order="broken").outputs["verdict"] == "pass"


def test_the_nearest_stored_check_decides_and_runs_without_one_are_passed_over(
    house: Gatehouse,
) -> None:
    pushed(house)
    pushed(house, padding="broken")
    house.pushes(2)
    pull = house.pull()
    said = judged(house, pull, with_broken("padding"))
    assert said.outputs["verdict"] == "pass"
    pushed(house, padding="holds")
    assert judged(house, pull, with_broken("padding")).outputs["verdict"] == "pass"
    tip = git(house.work, "rev-parse", "main")
    newer = house.hub_repository.add_pull(house.commit("later"), base_sha=tip)
    assert judged(house, newer, with_broken("padding")).outputs["verdict"] == "regression"


def test_without_a_stored_check_a_broken_relation_is_only_shown(house: Gatehouse) -> None:
    house.baseline()
    pull = house.pull()
    said = judged(house, pull, with_broken("padding"))
    assert said.outputs["verdict"] == "pass"
    (comment,) = house.comments(pull)
    assert "no stored check says whether it was broken before" in comment.body


def test_a_relation_that_becomes_undecided_is_shown(house: Gatehouse) -> None:
    for _ in range(3):
        pushed(house)
    pull = house.pull()
    answer = json.dumps(document({"merge": "undecided"}))
    assert judged(house, pull, answer).outputs["verdict"] == "pass"
    (comment,) = house.comments(pull)
    assert "and is undecided now" in comment.body


def test_a_check_that_could_ask_nothing_is_not_a_pass(house: Gatehouse) -> None:
    house.baseline()
    answer = json.dumps(document(dict.fromkeys(RELATIONS, "undecided")))
    said = judged(house, house.pull(), answer)
    assert said.outputs["verdict"] == "inconclusive"


def test_without_the_input_the_answer_is_not_read(house: Gatehouse) -> None:
    house.baseline()
    said = judged(house, house.pull(), "nonsense", check="false")
    assert said.outputs["verdict"] == "pass"


def test_a_missing_answer_is_an_error(house: Gatehouse) -> None:
    house.baseline()
    pull = house.pull()
    said = house.judge(pull, house.run(), check="true")
    assert said.outputs["verdict"] == "error"
    assert "no usable answer of canary check" in house.status(pull.head_sha)[1]
    (comment,) = house.comments(pull)
    assert "give both jobs" in comment.body


def test_a_failed_run_stays_a_regression_without_an_answer(house: Gatehouse) -> None:
    house.baseline()
    failed = [
        house.run().model_copy(update={"status": "failed", "reason": "it broke"}) for _ in range(2)
    ]
    said = house.judge(house.pull(), *failed, check="true")
    assert said.outputs["verdict"] == "regression"


HOSTILE: dict[str, str] = {
    "huge": " " * (2 << 20),
    "deep": "[" * 100_000,
    "types": json.dumps({"schema_version": 1, "relations": {"padding": "holds"}}),
    "status": json.dumps(document() | {"relations": [{"relation": "order", "status": "ok"}]}),
    "id": json.dumps(document() | {"relations": [{"relation": "<b>", "status": "holds"}]}),
    "nothing": json.dumps(document() | {"relations": []}),
    "unknown": json.dumps(
        document()
        | {"relations": [*document()["relations"], {"relation": "mine", "status": "broken"}]}
    ),
    "nan": '{"schema_version": NaN}',
    "keys": json.dumps({f"k{n}": 1 for n in range(10_000)}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_is_an_error_with_one_clear_line(house: Gatehouse, name: str) -> None:
    house.baseline()
    pull = house.pull()
    said = judged(house, pull, HOSTILE[name])
    assert said.outputs["verdict"] == "error"
    (comment,) = house.comments(pull)
    assert "no usable answer of canary check" in comment.body
    assert "<b>" not in comment.body


def test_an_answer_that_is_a_pipe_is_refused(house: Gatehouse) -> None:
    house.baseline()

    def pipe(folder: Path) -> None:
        os.mkfifo(folder / "records" / "00-canary" / "check.json")

    house.spoil = pipe
    said = house.judge(house.pull(), house.run(), check="true")
    assert said.outputs["verdict"] == "error"


def test_texts_of_an_answer_stay_text(house: Gatehouse) -> None:
    for _ in range(3):
        pushed(house)
    made = document({"padding": "broken"})
    evil = " ".join(PAYLOADS)
    for one in made["relations"]:
        if one["relation"] == "padding":
            one |= {
                "message": evil,
                "place": evil,
                "source": "https://evil.example",
                "likely": evil,
            }
    pull = house.pull()
    said = judged(house, pull, json.dumps(made))
    assert said.outputs["verdict"] == "regression"
    (comment,) = house.comments(pull)
    assert "<img" not in comment.body
    assert "](https://evil" not in comment.body
    assert "@everyone" not in comment.body
    assert f"([read more]({SOURCE}))" in comment.body
    begins = tuple(line.lstrip()[:6] for line in said.log.splitlines())
    assert "::set-" not in begins
    assert "::stop" not in begins
    assert "##[add-mask]" not in said.log
    assert comment.body.count("<!-- rlhf-canary:end -->") <= 1


def test_a_pull_request_cannot_leave_relations_out(house: Gatehouse) -> None:
    config = BASE_CONFIG + "check:\n  only: [order, padding]\n"
    sha = house.commit(files={"canary.yaml": config})
    both = narrowed("order", "padding")
    asked(house, lambda: house.push_main(house.run(), sha=sha, check="true"), both)
    pull = house.pull()
    said = judged(house, pull, narrowed("order"))
    assert said.outputs["verdict"] == "error"
    (comment,) = house.comments(pull)
    assert "it lacks padding" in comment.body


def test_only_a_quick_base_config_may_leave_relations_out(house: Gatehouse) -> None:
    quick = json.dumps(document({"resume": "not asked"}))
    house.baseline()
    pull = house.pull()
    said = judged(house, pull, quick)
    assert said.outputs["verdict"] == "error"
    assert "it lacks resume" in house.comments(pull)[0].body
    sha = house.commit(files={"canary.yaml": BASE_CONFIG + "check:\n  quick: true\n"})
    asked(house, lambda: house.push_main(house.run(), sha=sha, check="true"), quick)
    (*_, entry) = stored(house)
    assert entry["context"]["relations"]["resume"] == "not asked"
    later = house.hub_repository.add_pull(house.commit("later"), base_sha=sha)
    assert judged(house, later, with_broken("resume")).outputs["verdict"] == "pass"
    assert "it was not asked at" in house.comments(later)[0].body


def narrowed(*names: str) -> str:
    made = document()
    kept = [one for one in made["relations"] if one["relation"] in names]
    return json.dumps(made | {"relations": kept})
