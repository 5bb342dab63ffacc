"""A user's own relations from outside: names, files, and what the training tells about them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from canary.check.own import own_files, told_outcome, told_outcomes, told_relation, with_files
from canary.check.run import CheckRequest
from canary.config.load import LoadedConfig, load_config
from canary.errors import ConfigError, UsageError
from canary.relations import RELATIONS
from canary.relations.relation import outcome


def loaded(folder: Path, *files: str, only: str = "") -> LoadedConfig:
    config = folder / "canary.yaml"
    config.write_text(f"check:\n  relations: [{', '.join(files)}]\n  only: [{only}]\n")
    return load_config(config)


def test_the_name_of_a_file_is_the_relation(tmp_path: Path) -> None:
    found = loaded(tmp_path, "checks/shift.py")
    assert CheckRequest(found).relations() == (*RELATIONS, "shift")
    assert CheckRequest(found, only=("shift",)).relations() == ("shift",)
    assert CheckRequest(loaded(tmp_path, "shift.py", only="shift")).relations() == ("shift",)
    more = with_files(found, [Path("other.py")])
    assert CheckRequest(more, skip=tuple(RELATIONS)).relations() == ("shift", "other")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (("shift.txt",), "cannot name a relation"),
        (("../<b>.py",), "cannot name a relation"),
        (("padding.py",), "has the name of a built-in relation"),
        (("a/shift.py", "b/shift.py"), "two files have the name 'shift.py'"),
        (tuple(f"r{number}.py" for number in range(51)), "more than 50 files"),
    ],
)
def test_files_that_cannot_name_a_relation_are_refused(
    tmp_path: Path, files: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError, match=r"check\.relations in .*canary\.yaml:2") as found:
        loaded(tmp_path, *files)
    assert said in found.value.message
    with pytest.raises(UsageError, match="--relations"):
        with_files(load_config(None), [Path(file) for file in files])


def test_only_wanted_files_are_looked_at_and_they_must_be_files(tmp_path: Path) -> None:
    file = tmp_path / "shift.py"
    found = loaded(tmp_path, str(file))
    assert own_files(found, ("order",)) == {}
    with pytest.raises(UsageError, match=r"check\.relations in .*: cannot read .*shift\.py"):
        own_files(found, ("shift",))
    with pytest.raises(UsageError, match="cannot read"):
        own_files(loaded(tmp_path, '"a\\0b/shift.py"'), ("shift",))
    os.mkfifo(file)
    with pytest.raises(UsageError, match="not a regular file"):
        own_files(found, ("shift",))
    file.unlink()
    file.write_text("")
    assert own_files(found, ("shift",)) == {"shift": str(file)}


def test_what_the_training_tells_has_limits() -> None:
    relation = told_relation(
        "mine", "mine.py", {"mine": {"holds": "x" * 9_000, "group": "machine"}}
    )
    assert len(relation.holds) == 2_000
    assert relation.group == "machine"
    assert told_relation("mine", "a/mine.py", {}).holds == "what mine.py says"
    with pytest.raises(UsageError, match=r"a/mine\.py: it has no ask"):
        told_relation("mine", "a/mine.py", {"mine": {"problem": "it has no ask(look)"}})
    with pytest.raises(UsageError, match="RELATION is no relation"):
        told_relation("mine", "mine.py", {"mine": {"group": "odd"}})
    good = outcome("mine", "broken", "no", "row 1", (1, 2), 0.1)
    assert told_outcome("mine", good) == good
    odd = {**good, "status": "fine"}
    assert told_outcome("mine", odd)["status"] == "undecided"  # type: ignore[arg-type]


def test_what_a_training_tells_is_read_with_limits() -> None:
    """The training process may write any answer."""
    told: list[object] = [
        5,
        {"relation": ["order"]},
        {"relation": "order", "status": "evil"},
        {"relation": "padding", "status": "holds", "message": "fine", "values": [1.0] * 9},
        {"relation": "other", "status": "broken", "message": "not wanted"},
        dict(outcome("replay", "holds", "equal")),
    ]
    found = told_outcomes(told, ("order", "padding", "replay"))
    assert {name: one["status"] for name, one in found.items()} == {
        "order": "undecided",
        "padding": "undecided",
        "replay": "holds",
    }


@pytest.mark.parametrize("text", ["x" * 3_000, "a row with half a character: \ud83d"])
def test_odd_texts_do_not_hide_that_a_relation_is_broken(text: str) -> None:
    found = told_outcome("order", outcome("order", "broken", text, place=text))
    assert found["status"] == "broken"
    assert found["message"].encode()[:20] == text.encode("utf-8", "replace")[:20]
    assert len(found["place"]) <= 2_000
