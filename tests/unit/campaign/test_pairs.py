"""Alternation, decisions, budgets and failing sides, without a process."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from canary.campaign.ab import AbRequest, run_ab
from canary.campaign.pairs import PairProgress, Plan, Role, run_pairs
from canary.campaign.side import Side
from canary.compare.report import Check, CheckStatus, Comparison, Verdict
from canary.record.folder import load_record
from canary.record.types import RunRecord
from canary.report.render import render

EXAMPLE = load_record(Path(__file__).parents[3] / "baselines" / "examples" / "sft_smoke.json")


class Machine:
    """Runs sides by making records; `failing` names the launches, by number, that fail."""

    def __init__(self, failing: dict[Role, set[int]] | None = None, seconds: float = 10.0) -> None:
        self.order: list[Role] = []
        self.now = 0.0
        self._failing = failing or {}
        self._seconds = seconds
        self._count: Counter[Role] = Counter()

    def launch(self, role: Role) -> RunRecord:
        self.order.append(role)
        self.now += self._seconds
        self._count[role] += 1
        bad = self._count[role] in self._failing.get(role, set())
        status = {"status": "oom", "reason": "no memory"} if bad else {}
        return EXAMPLE.model_copy(update={"run_id": f"{role}{self._count[role]}", **status})

    def clock(self) -> float:
        return self.now


class Judge:
    """Answers with one verdict at each decision, and keeps what it was asked."""

    def __init__(self, *verdicts: Verdict) -> None:
        self._verdicts = dict(zip((3, 5, 8), verdicts, strict=False))
        self.asked: list[tuple[int, float]] = []
        self.sides: tuple[list[str], list[str]] = ([], [])

    def __call__(self, head: list[RunRecord], base: list[RunRecord], budget: float) -> Comparison:
        self.asked.append((len(head), budget))
        self.sides = [r.run_id for r in head], [r.run_id for r in base]
        if any(record.status != "completed" for record in head):
            return Comparison("regression", "crashed")
        if any(record.status != "completed" for record in base):
            return Comparison("error", "base failed")
        return Comparison(self._verdicts.get(len(head), "inconclusive"), "")


class Ear(PairProgress):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.judgements: list[tuple[int, str, int | None]] = []
        self.runs: list[tuple[int, Role]] = []
        self.narrowings = 0
        self.told: list[str] = []

    def run_ended(self, pair: int, role: Role, record: RunRecord, seconds: float) -> None:
        self.runs.append((pair, role))

    def pair_ended(self, pairs: int, clock: Check | None) -> None:
        self.narrowings += 1

    def exact_failed(self, pairs: int, found: Comparison) -> None:
        self.told.append(found.first_line)

    def judged(self, pairs: int, found: Comparison, next_decision: int | None) -> None:
        self.judgements.append((pairs, found.verdict, next_decision))


def test_sides_alternate_abba() -> None:
    machine = Machine()
    run_pairs(Plan(4), machine.launch, Judge(), Ear(), machine.clock)
    assert machine.order == [
        *("base", "head", "head", "base"),
        *("base", "head", "head", "base"),
    ]


@pytest.mark.parametrize(
    ("verdicts", "judgements"),
    [
        (("pass",), [(3, "pass", None)]),
        (("inconclusive", "regression"), [(3, "inconclusive", 5), (5, "regression", None)]),
        (
            ("inconclusive", "inconclusive", "inconclusive"),
            [(3, "inconclusive", 5), (5, "inconclusive", 8), (8, "inconclusive", None)],
        ),
    ],
)
def test_auto_stops_at_the_judgement_that_decides(
    verdicts: tuple[Verdict, ...], judgements: list[tuple[int, str, int | None]]
) -> None:
    machine, ear = Machine(), Ear()
    found, runs = run_pairs(Plan(), machine.launch, Judge(*verdicts), ear, machine.clock)
    assert ear.judgements == judgements
    assert found.verdict == judgements[-1][1]
    assert len(runs.head) == len(runs.base) == judgements[-1][0] == ear.narrowings


def test_pairs_are_told_to_decide_and_only_the_first_steps_of_a_run_are_a_look() -> None:
    machine, said = Machine(), list[str]()
    told = PairProgress(said.append, Plan())
    side = Side("base", "main", Path("a.yaml"), Path(), Path(sys.executable), {}, Path("out"))
    told.started(side, side, Path("records"))
    run_pairs(Plan(), machine.launch, Judge("inconclusive", "pass"), told, machine.clock)
    assert said[0] == "base main, head main: decides after 3, 5 or 8 pairs"
    assert said[2].endswith("next decision in about 50 s")
    assert "after 3 pairs: not decided yet, continuing to 5 pairs" in said
    assert not [line for line in said if "look" in line]


def test_the_error_budget_is_spent_across_the_decisions_and_whole_for_a_fixed_number() -> None:
    machine, judge = Machine(), Judge()
    run_pairs(Plan(), machine.launch, judge, Ear(), machine.clock)
    assert {pairs: budget for pairs, budget in judge.asked if pairs in (3, 5, 8)} == {
        3: 0.001,
        5: 0.002,
        8: 0.002,
    }
    judge = Judge()
    run_pairs(Plan(2), machine.launch, judge, Ear(), machine.clock)
    assert judge.asked[-1] == (2, 0.005)


def test_a_time_budget_ends_it_before_a_pair_that_would_not_fit() -> None:
    machine, ear = Machine(seconds=10), Ear()
    plan = Plan(budget_s=85)
    found, runs = run_pairs(plan, machine.launch, Judge(), ear, machine.clock)
    assert len(runs.head) == 4
    assert machine.now <= 85
    assert any("stopped after 4 pairs" in note for note in found.notes)
    assert ear.judgements[-1] == (4, "inconclusive", None)


def test_the_first_pair_runs_whatever_the_budget() -> None:
    machine = Machine()
    _, runs = run_pairs(Plan(budget_s=0.1), machine.launch, Judge(), Ear(), machine.clock)
    assert len(runs.head) == 1


def test_a_run_that_fails_once_is_repeated_and_said() -> None:
    machine = Machine({"head": {2}})
    found, runs = run_pairs(Plan(3), machine.launch, Judge("pass"), Ear(), machine.clock)
    assert found.verdict == "pass"
    assert [record.run_id for record in runs.head] == ["head1", "head3", "head4"]
    assert any("oom (no memory) and was repeated" in note for note in found.notes)


def test_a_head_that_fails_twice_is_judged_at_once_against_what_the_base_completed() -> None:
    machine, judge = Machine({"head": {1, 2}}), Judge()
    found, _ = run_pairs(Plan(), machine.launch, judge, Ear(), machine.clock)
    assert found.verdict == "regression"
    assert judge.sides == (["head1", "head2"], ["base1"])


def test_a_base_that_fails_twice_is_an_error_and_never_a_pass() -> None:
    machine, judge = Machine({"base": {1, 2}}), Judge()
    found, _ = run_pairs(Plan(), machine.launch, judge, Ear(), machine.clock)
    assert found.verdict == "error"
    assert found.first_line.startswith("Error: the base does not run: no memory")
    assert not found.passed
    assert "the base does not run" in render(found, "text")


class Exact(Judge):
    """Sees a difference that has no noise, from the first pair on."""

    def __init__(self, status: CheckStatus = "fail") -> None:
        super().__init__("inconclusive")
        self._check = Check("first_loss", "correctness", "exact", status, "another loss")

    def __call__(self, head: list[RunRecord], base: list[RunRecord], budget: float) -> Comparison:
        super().__call__(head, base, budget)
        verdict: Verdict = "regression" if self._check.status == "fail" else "changed"
        return Comparison(verdict, "Regression: another loss.", (self._check,))


def test_an_exact_difference_is_told_at_once_and_decided_by_a_second_look_at_the_base() -> None:
    machine, ear = Machine(), Ear()
    found, runs = run_pairs(Plan(), machine.launch, Exact(), ear, machine.clock)
    assert len(machine.order) == 4
    assert found.verdict == "regression"
    assert ear.told == ["Regression: another loss."]
    assert ear.judgements == [(2, "regression", None)]
    assert any("measure the speed too with --pairs N" in note for note in found.notes)
    assert len(runs.head) == len(runs.base) == 2


def test_a_change_that_a_person_may_accept_stops_early_too() -> None:
    machine, ear = Machine(), Ear()
    run_pairs(Plan(), machine.launch, Exact("changed"), ear, machine.clock)
    assert ear.judgements[0][0] < 3


def test_a_fixed_number_of_pairs_runs_whatever_the_first_one_says() -> None:
    machine, ear = Machine(), Ear()
    run_pairs(Plan(3), machine.launch, Exact(), ear, machine.clock)
    assert len(machine.order) == 6
    assert ear.told == ["Regression: another loss."]
    only = Ear()
    run_pairs(Plan(1), machine.launch, Exact(), only, machine.clock)
    assert only.told == [], "the answer follows at once"


@pytest.mark.parametrize(
    ("failure", "reason", "hinted"),
    [
        ("not found", "the rows are nowhere", True),
        (None, "ValueError: a reward that does not exist", False),
    ],
)
def test_a_file_that_a_checkout_lacks_is_told_by_a_field_and_no_words(
    failure: str | None,
    reason: str,
    hinted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = {"status": "failed", "reason": reason, "failure": failure}
    failed = EXAMPLE.model_copy(update=ended)
    monkeypatch.setattr(Side, "run_with", lambda *_, **__: failed)
    # Each side asks its own Python for what it needs; a command may need no training packages.
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    @contextlib.contextmanager
    def two(*_: object) -> Iterator[tuple[dict[str, Side], Path]]:
        file = tmp_path / "canary.yaml"
        yield (
            {
                role: Side(role, "abc", file, tmp_path, Path(sys.executable), {}, tmp_path / role)
                for role in ("base", "head")
            },
            tmp_path,
        )

    monkeypatch.setattr("canary.campaign.ab._sides", two)
    request = AbRequest(tmp_path / "canary.yaml", base="main")
    found, _ = run_ab(request, lambda _: None)
    assert found.verdict == "error"
    assert any("--setup" in note for note in found.notes) == hinted
