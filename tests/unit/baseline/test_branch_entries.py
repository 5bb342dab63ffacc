"""Stored runs that know their commit and verdict, by their names alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from canary.baseline.ancestry import Ancestry
from canary.baseline.entry import Accepted, Context, Entry
from canary.baseline.history import (
    Selection,
    current_period,
    drawer,
    entries,
    periods,
    prune,
    save,
    select,
)
from canary.errors import InputError
from tests.unit.branching import run_ids, sha_of
from tests.unit.comparing import committed, record

NOW = record(9000)


def known(number: int, verdict: str = "pass", accepted: str = "", **rest: Any) -> Context:
    by = Accepted(by="ada", reason=accepted) if accepted else None
    given = {"commit": sha_of(number), "verdict": verdict, "accepted": by} | rest
    return Context.model_validate(given)


def keep(root: Path, number: int, commit: int | None = None, **rest: Any) -> Entry:
    context = known(number if commit is None else commit, **rest)
    return Entry(save(root, record(number), context=context))


def compared(root: Path, ancestry: Ancestry | None = None) -> Selection:
    return select(root, NOW, ancestry=ancestry)


def ids(found: Selection) -> list[str]:
    return [run.run_id for run in found.records]


def line(*numbers: int) -> Ancestry:
    """Commits from the oldest to the merge base."""
    near = {sha_of(number)[:12]: place for place, number in enumerate(reversed(numbers))}
    return Ancestry(near)


def test_a_name_tells_start_run_commit_and_verdict(tmp_path: Path) -> None:
    plain = keep(tmp_path, 1)
    assert plain.path.name == f"20260101T000001_run-00001+g{sha_of(1)[:12]}.json"
    assert (plain.start, plain.run_id) == ("20260101T000001", "run-00001")
    assert (plain.commit, plain.red, plain.accepted) == (sha_of(1)[:12], False, False)
    red = keep(tmp_path, 2, verdict="regression")
    assert red.path.name.endswith("+red.json")
    assert (red.commit, red.red, red.accepted) == (sha_of(2)[:12], True, False)
    accepted = keep(tmp_path, 3, verdict="regression", accepted="meant so")
    assert (accepted.commit, accepted.red, accepted.accepted) == (sha_of(3)[:12], False, True)
    assert accepted.stored().context == known(3, "regression", "meant so")
    assert accepted.stored().accepted == "meant so"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("20260101T000003_run-00003.json", ("run-00003", "", False, False)),
        ("20260101T000003_run-00003+accepted.json", ("run-00003", "", False, True)),
        ("20260101T000003_a_b+c.json", ("a_b+c", "", False, False)),
    ],
)
def test_names_of_earlier_histories_read_the_same(
    name: str, told: tuple[str, str, bool, bool]
) -> None:
    entry = Entry(Path(name))
    assert (entry.run_id, entry.commit, entry.red, entry.accepted) == told
    assert entry.start == "20260101T000003"


@pytest.mark.parametrize("tail", ["+accepted", "+red", f"+g{'a' * 12}", "+red+accepted"])
def test_a_run_id_cannot_pass_for_a_mark(tmp_path: Path, tail: str) -> None:
    """It comes from the record, and the record from a stranger's code."""
    forged = record(1, run_id=f"run{tail}")
    for context in (None, known(1), known(1, "regression")):
        before = list(tmp_path.rglob("*.json"))
        try:
            entry = Entry(save(tmp_path, forged, context=context))
        except InputError:
            assert list(tmp_path.rglob("*.json")) == before
        else:
            assert entry.run_id == forged.run_id
            assert not entry.accepted
            assert entry.commit == (sha_of(1)[:12] if context else "")
            assert entry.red == (context is not None and context.verdict == "regression")


def test_the_commit_that_github_names_stands_for_the_records_own(tmp_path: Path) -> None:
    forged = committed(record(1), "f" * 40)
    entry = Entry(save(tmp_path, forged, context=known(1)))
    assert entry.commit == sha_of(1)[:12]
    assert entry.record().git["sha"] == sha_of(1)


@pytest.mark.parametrize("commit", ["main", "a" * 39, "G" * 40, "../x", "a" * 40 + "\n"])
def test_a_commit_that_is_none_is_refused(commit: str) -> None:
    with pytest.raises(ValidationError):
        Context(commit=commit)


@pytest.mark.parametrize("verdict", ["regression", "changed", "error"])
def test_a_red_run_is_kept_and_never_compared_with(tmp_path: Path, verdict: str) -> None:
    for number in range(1, 8):
        keep(tmp_path, number, verdict=verdict if number in (1, 5) else "pass")
    found = compared(tmp_path)
    assert ids(found) == run_ids(2, 3, 4, 6, 7)
    assert found.stored == 5
    keep(tmp_path, 8)
    assert [run.run_id for run in compared(tmp_path).anchor] == run_ids(2, 3, 4)
    assert len(entries(drawer(tmp_path, NOW))) == 8
    assert compared(tmp_path).stored == 6


@pytest.mark.parametrize("verdict", ["", "pass", "inconclusive", "no-baseline"])
def test_other_verdicts_count(tmp_path: Path, verdict: str) -> None:
    keep(tmp_path, 1, verdict=verdict)
    assert compared(tmp_path).stored == 1


def test_a_run_that_is_judged_anew_is_stored_once(tmp_path: Path) -> None:
    """The same report again; and a label that came after the first of them."""
    keep(tmp_path, 1, verdict="changed")
    keep(tmp_path, 1, verdict="changed")
    accepted = keep(tmp_path, 1, verdict="changed", accepted="meant so")
    assert entries(accepted.path.parent) == [accepted]
    assert keep(tmp_path, 1, verdict="changed") == accepted
    assert entries(accepted.path.parent) == [accepted]


def test_several_accepted_runs_of_one_commit_are_one_level(tmp_path: Path) -> None:
    for number in (1, 2):
        keep(tmp_path, number)
    for number in (3, 4, 5):
        keep(tmp_path, number, commit=3, accepted="meant so")
    keep(tmp_path, 6)
    assert ids(compared(tmp_path)) == run_ids(3, 4, 5, 6)
    found = entries(drawer(tmp_path, NOW))
    assert len(current_period(found)) == 4
    assert periods(found) == [1, 1, 2, 2, 2, 2]


def test_only_runs_of_ancestors_are_compared_with(tmp_path: Path) -> None:
    for number in range(1, 7):
        keep(tmp_path, number)
    found = compared(tmp_path, line(1, 2, 4))
    assert ids(found) == run_ids(1, 2, 4)
    assert (found.stored, found.elsewhere) == (3, 3)
    assert compared(tmp_path).elsewhere == 0


def test_the_nearest_ancestor_is_the_newest_whenever_it_ran(tmp_path: Path) -> None:
    """A nightly run of an old commit came last in time."""
    for number, commit in ((1, 3), (2, 2), (3, 1), (4, 3)):
        keep(tmp_path, number, commit=commit)
    assert ids(compared(tmp_path, line(1, 2, 3))) == run_ids(3, 2, 1, 4)
    assert [r.run_id for r in select(tmp_path, NOW, 2, line(1, 2, 3)).records] == run_ids(1, 4)


def test_a_level_that_the_change_does_not_descend_from_is_not_its_own(tmp_path: Path) -> None:
    """The pull request branched off before the accepted change."""
    for number in (1, 2, 3):
        keep(tmp_path, number)
    keep(tmp_path, 4, accepted="meant so")
    keep(tmp_path, 5)
    assert ids(compared(tmp_path, line(1, 2, 3))) == run_ids(1, 2, 3)
    assert ids(compared(tmp_path, line(1, 2, 3, 4, 5))) == run_ids(4, 5)


def test_runs_without_a_commit_count_as_the_oldest_ancestors(tmp_path: Path) -> None:
    save(tmp_path, record(8))
    keep(tmp_path, 1)
    found = compared(tmp_path, line(1))
    assert ids(found) == run_ids(8, 1)
    assert found.elsewhere == 0


def test_red_runs_of_other_branches_are_not_counted_as_left_out(tmp_path: Path) -> None:
    keep(tmp_path, 1)
    keep(tmp_path, 2, verdict="error")
    assert compared(tmp_path, line(3)).elsewhere == 1


def test_red_runs_are_bounded_too_and_push_no_other_out(tmp_path: Path) -> None:
    for number in range(1, 5):
        keep(tmp_path, number)
    for number in range(5, 25):
        keep(tmp_path, number, verdict="regression")
    prune(tmp_path, 4)
    left = entries(drawer(tmp_path, NOW))
    assert [entry.run_id for entry in left] == run_ids(1, 2, 3, 4, 21, 22, 23, 24)
    for number in range(25, 35):
        keep(tmp_path, number)
    prune(tmp_path, 4)
    assert [e.run_id for e in entries(drawer(tmp_path, NOW))] == run_ids(1, 2, 3, 31, 32, 33, 34)
