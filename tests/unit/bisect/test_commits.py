"""Which commits are suspects, which of them a checkout holds, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from canary.bisect.commits import History
from canary.errors import UsageError
from tests.unit.bisect.workshop import Repository, diamond


def subjects(history: History, state: int) -> set[str]:
    return {c.subject for place, c in enumerate(history.commits) if state >> place & 1}


def state(history: History, subject: str) -> int:
    place = next(i for i, c in enumerate(history.commits) if c.subject == subject)
    return history.masks[place]


def test_a_checkout_holds_the_suspects_among_its_ancestors(tmp_path: Path) -> None:
    history = diamond(tmp_path).between("good", "main")
    assert subjects(history, history.bad_state) == {
        *("a", "b", "s1", "s2", "e1", "merge side", "merge early", "d")
    }
    assert subjects(history, state(history, "b")) == {"a", "b"}
    assert subjects(history, state(history, "s2")) == {"s1", "s2"}
    assert subjects(history, state(history, "merge side")) == {"a", "b", "s1", "s2", "merge side"}
    assert subjects(history, state(history, "e1")) == {"e1"}
    assert state(history, "d") == history.bad_state


def test_states_are_those_of_git_in_a_random_history(tmp_path: Path) -> None:
    made, rng = Repository(tmp_path), random.Random(7)
    made.commit("start")
    made.git("tag", "good")
    for number in range(25):
        if number % 5 == 0:
            made.git("checkout", "-q", "-b", f"b{number}", rng.choice(["good", "main"]))
        made.commit(f"c{number}", {f"{number}.py": ""})
        if number % 5 == 4:
            made.git("checkout", "-q", "main")
            made.merge(f"b{number - 4}")
    history = made.between("good", "main")
    for mask, commit in zip(history.masks, history.commits, strict=True):
        known = made.git("rev-list", "^good", commit.sha).split()
        held = {c.sha for place, c in enumerate(history.commits) if mask >> place & 1}
        assert held == set(known)


def test_a_subject_may_hold_anything(tmp_path: Path) -> None:
    made = Repository(tmp_path)
    made.commit("good")
    odd = "odd \x0b\x1c\u2028 | ` text"
    made.commit(odd, {"a": "1"})
    (commit,) = made.between("HEAD~1", "HEAD").commits
    assert commit.subject == odd


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("c2", "c1", "--good c2 is newer than --bad c1"),
        ("side", "c2", r"no ancestor of --bad c2 \(try their merge base: --good [0-9a-f]{9}\)"),
        ("orphan", "c2", "share no history"),
        ("c1", "--output=x", "no commit '--output=x'"),
    ],
)
def test_ends_that_are_no_good_and_bad_are_refused_in_one_line(
    tmp_path: Path, good: str, bad: str, message: str
) -> None:
    made = Repository(tmp_path)
    for name in ("c0", "c1", "c2"):
        made.commit(name)
        made.git("tag", name)
    made.git("checkout", "-q", "-b", "side", "c1")
    made.commit("s")
    made.git("checkout", "-q", "--orphan", "orphan")
    made.commit("o")
    with pytest.raises(UsageError, match=message) as refused:
        made.between(good, bad)
    assert "\n" not in str(refused.value)


def test_a_shallow_clone_that_lacks_suspects_is_refused(tmp_path: Path) -> None:
    diamond(tmp_path / "whole")
    whole = tmp_path / "whole"
    clone = Repository(tmp_path / "clone")
    clone.git("remote", "add", "origin", whole.as_uri())
    clone.git("fetch", "-q", "--depth=2", "origin", "main")
    clone.git("fetch", "-q", "--depth=1", "origin", "tag", "good")
    with pytest.raises(UsageError, match="git fetch --unshallow"):
        clone.between("good", "origin/main")
