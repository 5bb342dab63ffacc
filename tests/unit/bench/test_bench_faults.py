"""The bench of diagnosis: its corpus hides what it asks for, and its scores count every row."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from bench.corpus.bases import BUILT_IN, SCRIPTS, Training, digest
from bench.corpus.row import Category, Row
from bench.corpus.score import Outcome, calibration, outcome, rates, troubled, wilson
from bench.faults import CORPORA
from canary.compare.diagnosis.suspects import Diagnosis, RegressionCategory, Suspect
from canary.compare.report import Comparison, Verdict
from canary.config.schema import CanaryConfig

ROWS = [row for rows in CORPORA.values() for row in rows]
FAULTS = [
    row for name in ("listed", "blind", "second", "ppo", "ppo_blind") for row in CORPORA[name]
]
PRODUCT = Path(__file__).parents[3] / "canary"
DOCS = Path(__file__).parents[3] / "docs"
FIGURES = {
    "faults.json": {"listed", "blind", "benign"},
    "faults_second.json": {"second"},
    "faults_ppo.json": {"ppo", "ppo_benign"},
    "faults_ppo_blind.json": {"ppo_blind", "ppo_blind_benign"},
}


def test_ids_are_unique_so_that_no_row_stands_for_two() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)


def test_the_product_names_no_row_so_that_it_can_map_none_to_an_answer() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in PRODUCT.rglob("*.py"))
    blind = [*CORPORA["blind"], *CORPORA["second"], *CORPORA["ppo_blind"]]
    assert [row.id for row in blind if row.id in source] == []


@pytest.mark.parametrize("file", FIGURES)
def test_the_committed_figures_have_every_row_of_their_corpora_and_its_class_of_now(
    file: str,
) -> None:
    document = json.loads((DOCS / file).read_text(encoding="utf-8"))
    kept = document["rows"]
    assert {row["id"]: (row["expected"], row["also"]) for row in kept} == {
        row.id: (row.category, row.also) for name in FIGURES[file] for row in CORPORA[name]
    }
    assert not [row["id"] for row in kept if row["trouble"]]
    told = (DOCS / "figures.md").read_text(encoding="utf-8")
    lines = [*told.splitlines(), *told.split("\n\n")]
    for name, rate in document["rates"].items():
        corpus, (right, total) = name.partition(",")[0], rate["of"]
        assert any(f"`{corpus}`" in one and f"{right} of {total} " in one for one in lines), name


def test_nothing_written_for_a_training_gives_its_row_or_class_away(tmp_path: Path) -> None:
    for number, row in enumerate(FAULTS):
        place = tmp_path / str(number)
        place.mkdir()
        command = Training(row.base, row).write(place)
        files = [path for path in place.rglob("*") if path.is_file()]
        names = [path.relative_to(place).as_posix() for path in files]
        assert row.id not in " ".join([*names, *command])
        assert all(row.id not in path.read_text() for path in files), row.id
        defined = [
            node.name
            for node in ast.walk(ast.parse(f"{row.before}\n{row.plant}"))
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        ]
        assert not [name for name in defined if name.lower() in get_args(Category)], row.id


def test_each_row_is_planted_into_a_base_that_can_hold_it() -> None:
    for row in ROWS:
        assert row.base in (*BUILT_IN, *SCRIPTS)
        if row.base in SCRIPTS:
            assert (row.before, dict(row.config), row.yaml) == ("", {}, None)
        elif row.config:
            changed = CanaryConfig.model_validate({**BUILT_IN[row.base], **row.config})
            assert changed != CanaryConfig.model_validate(BUILT_IN[row.base]), row.id


def test_a_training_is_stored_by_what_decides_it() -> None:
    row = CORPORA["listed"][0]
    name = digest(Training(row.base, row))
    assert name == digest(Training(row.base, row))
    others = [
        Training(row.base),
        Training(row.base, row, "again"),
        Training(row.base, replace(row, plant=row.plant + "\npass")),
        Training(row.base, replace(row, environment={"A": "1"})),
        Training(row.base, replace(row, config={"seed": 7})),
    ]
    assert len({name, *map(digest, others)}) == len(others) + 1


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (9, 10, 0.5958, 0.9821), (50, 100, 0.4038, 0.5962), (0, 0, 0.0, 1.0)],
)
def test_wilsons_interval_has_the_published_ends(
    successes: int, trials: int, low: float, high: float
) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=1e-4)


def said(verdict: Verdict, category: str | None, confidence: float = 0.8) -> Comparison:
    suspects = (
        () if category is None else (Suspect(RegressionCategory(category), confidence, "words"),)
    )
    return Comparison(verdict, "", diagnosis=Diagnosis("", suspects))


def scored(verdict: Verdict, category: str | None, **row: Any) -> Outcome:
    return outcome(Row("x", "", "sft", "data", **row), "blind", said(verdict, category))


def test_only_the_expected_class_of_a_caught_fault_is_right() -> None:
    assert scored("regression", "data").right
    assert scored("changed", "data").right
    assert not scored("regression", "objective").right
    assert not scored("regression", "unknown").right
    assert not scored("regression", None).right
    # Nobody reads the suspects of a green comparison.
    assert not scored("inconclusive", "data").right
    assert not scored("pass", "data").right


def test_a_second_class_is_right_only_where_the_row_says_so() -> None:
    assert scored("regression", "host", also="host").right
    assert not scored("regression", "host").right


def test_a_row_that_could_not_be_compared_stays_in_the_denominator() -> None:
    lost = troubled(CORPORA["blind"][0], "blind", "no record")
    found = {rate.name: rate for rate in rates([scored("regression", "data"), lost])}
    for name in ("blind, caught", "blind, top suspect right"):
        assert (found[name].successes, found[name].trials) == (1, 2)


def test_a_benign_row_fails_by_its_verdict_or_when_it_is_lost() -> None:
    row = CORPORA["benign"][0]
    outcomes = [
        outcome(row, "benign", said("inconclusive", None)),
        outcome(row, "benign", said("regression", None)),
        outcome(row, "benign", said("changed", None)),
        troubled(row, "benign", "no record"),
    ]
    found = {rate.name: rate for rate in rates(outcomes)}["benign, failed"]
    assert (found.successes, found.trials) == (3, 4)


def test_calibration_sets_what_was_claimed_against_what_was_right() -> None:
    row = Row("x", "", "sft", "data")
    claims = [("data", 0.95), ("data", 1.0), ("host", 0.92), ("io", 0.6), ("data", 0.4)]
    outcomes = [outcome(row, "blind", said("regression", *claim)) for claim in claims]
    outcomes.append(outcome(row, "blind", said("pass", "host", 0.95)))
    found = [(b.low, round(b.claimed, 3), b.right.successes, b.right.trials)
             for b in calibration(outcomes)]  # fmt: skip
    assert found == [(0.0, 0.4, 1, 1), (0.5, 0.6, 0, 1), (0.9, 0.957, 2, 3)]
