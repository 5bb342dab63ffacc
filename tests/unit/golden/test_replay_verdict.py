"""What a replay says, given what its launches did. tests/integration/golden trains for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canary.errors import ConfigError, InputError
from canary.golden.check import check
from canary.golden.checking import checked_files
from canary.golden.measured import measured_run
from canary.golden.model import Golden, GoldenMetric, Series
from canary.golden.replay import Launched, Replayed, config_of, judged, replay
from canary.golden.tolerance import EXACT
from canary.golden.view import check_text
from canary.golden.write import write
from canary.protocol.job import Twice
from canary.record.curves import Source
from canary.runner.display.progress import Quiet
from tests.unit.comparing import example
from tests.unit.golden.golden_runs import LOSSES, NORMS, run, run_folder, shifted

FILE = Path("golden.json")
OTHER = shifted(LOSSES, 0.5)
"""The golden losses: they differ from the run's at step 3."""
EQUAL: Twice = {
    "step": 2,
    "differs": [],
    "losses": [1.0, 1.0],
    "tensors": 0,
    "of": 9,
    "named": [],
}


def golden() -> Golden:
    return Golden("canary", {"loss": GoldenMetric(Series((1, 2, 3, 4, 5), OTHER), EXACT)})


def launched(losses: Sequence[float] = LOSSES[:3], *twice: Any, reason: str = "") -> Launched:
    rows: Any = [
        {"launch": 0, "step": step, "loss": loss, "rl": {}} for step, loss in enumerate(losses, 1)
    ]
    return Launched(tuple(rows), twice, reason)


def verdict(tmp_path: Path, *launches: Launched) -> Replayed:
    found = run(tmp_path, values={"loss": LOSSES})
    return judged(found, golden(), launches, {"loss": "loss"}, 3)


def test_equal_launches_that_give_the_runs_values_blame_the_code(tmp_path: Path) -> None:
    one = launched(LOSSES[:3], EQUAL, {**EQUAL, "step": 3})
    found = verdict(tmp_path, one, one)
    assert (found.verdict, found.gives, found.clears_code) == ("deterministic", "run", False)
    assert found.sentence.startswith("steps 2-3 repeat bit for bit, two launches are equal")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"differs": ["loss"], "losses": [1.0, 1.5]}, "in loss (loss 1.0 and 1.5)"),
        (
            {"differs": ["gradients", "update"], "tensors": 4, "named": ["head.weight"]},
            "in gradients, update (4 of 9 gradients, such as head.weight)",
        ),
        ({"differs": ["update"]}, "differs from itself in update:"),
    ],
)
def test_a_step_unequal_to_itself_clears_the_code(tmp_path: Path, changes: Any, words: str) -> None:
    found = verdict(tmp_path, launched(LOSSES[:3], EQUAL), launched(LOSSES[:3], EQUAL | changes))
    assert (found.verdict, found.clears_code) == ("not deterministic", True)
    assert words in found.sentence


def test_launches_that_part_clear_the_code(tmp_path: Path) -> None:
    one, other = launched(LOSSES[:3], EQUAL), launched(shifted(LOSSES[:3], 1e-9, at=1), EQUAL)
    found = verdict(tmp_path, one, other)
    assert found.verdict == "not seeded"
    assert "differ from step 2 on" in found.sentence
    assert "although step 2 repeats" in found.sentence


@pytest.mark.parametrize(
    ("was", "now", "why"),
    [
        ({"dirty": False}, {"sha": "a" * 40}, "though both are of the same commit"),
        ({"dirty": True}, {"sha": "a" * 40}, "the run had uncommitted changes"),
        ({"dirty": False}, {"sha": "a" * 40, "dirty": True}, "there are uncommitted changes now"),
        (
            {"dirty": True},
            {"sha": "b" * 40},
            "the run is of commit aaaaaaaaa, the replay of bbbbbbbbb",
        ),
        ({"dirty": False}, {"sha": None}, "its commit is not known"),
    ],
)
def test_launches_that_give_the_golden_values_leave_the_code_open(
    tmp_path: Path, was: Any, now: Any, why: str
) -> None:
    """The code here may be older than the run's: the replay does not acquit it."""
    one = replace(launched(OTHER[:3], EQUAL), git=now)
    of_run = run(tmp_path, values={"loss": LOSSES}, **was)
    found = judged(of_run, golden(), (one, one), {"loss": "loss"}, 3)
    assert (found.verdict, found.gives, found.clears_code) == ("not repeated", "golden", False)
    assert f"Either the code here is not the run's ({why}), or " in found.sentence
    answer = replace(check(of_run, golden(), FILE), replayed=found)
    assert answer.verdict == "not repeated"
    assert "A replay did not repeat it: step 2 repeats bit for bit" in answer.first_line
    assert check_text(answer, "text").count("give the golden values, not the run's") == 1


def test_launches_that_give_neither_say_so(tmp_path: Path) -> None:
    one = launched(shifted(LOSSES[:3], 7.0), EQUAL)
    found = verdict(tmp_path, one, one)
    assert (found.verdict, found.gives) == ("not repeated", "")
    assert "neither the golden nor the run's values" in found.sentence


def test_a_loop_that_cannot_be_run_twice_is_told(tmp_path: Path) -> None:
    one = launched(reason="the training has several ranks")
    found = verdict(tmp_path, one, one)
    words = "no step was run twice on the same state, because the training has several ranks"
    assert found.notes == (f"{words}; the launches were compared",)
    assert "bit for bit" not in found.sentence


def test_a_cleared_code_is_the_first_line_and_names_no_cause(tmp_path: Path) -> None:
    found = run(tmp_path, values={"loss": LOSSES})
    one = launched(LOSSES[:3], {**EQUAL, "differs": ["loss"], "losses": [1.0, 2.0]})
    answer = replace(
        check(found, golden(), FILE), replayed=judged(found, golden(), [one], {"loss": "loss"}, 3)
    )
    text = check_text(answer, "text")
    words = (
        "Golden: loss differs from golden.json in run-1. That says nothing about the code: step 2"
    )
    assert text.startswith(words)
    assert answer.exit_code == 1


def test_a_run_without_its_config_cannot_be_replayed(tmp_path: Path) -> None:
    found = run(tmp_path, values={"loss": LOSSES})
    with pytest.raises(InputError, match=r"has no config\.yaml"):
        config_of(found)


def test_an_imported_run_cannot_be_replayed(tmp_path: Path) -> None:
    of = example().model_copy(update={"source": Source(format="jsonl")})
    with pytest.raises(InputError, match="was imported"):
        config_of(run(tmp_path, values={"loss": LOSSES}, of=of))


def test_a_secret_that_the_record_hides_cannot_be_replayed(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, values={"loss": LOSSES})
    (folder / "config.yaml").write_text("training_type: exec\ncommand: [train, --token=***]\n")
    with pytest.raises(ConfigError, match="run folders hide secrets"):
        config_of(measured_run(folder))


def test_a_metric_that_is_missing_has_no_step_to_replay(tmp_path: Path) -> None:
    found = run(tmp_path, values={"reward": LOSSES})
    with pytest.raises(InputError, match="no step to replay"):
        replay(found, check(found, golden(), FILE), golden(), Quiet())


def test_an_equal_check_trains_nothing(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    write(folder, tmp_path / "golden.json", "canary", [], {})
    found = checked_files(folder, tmp_path / "golden.json", [], {}, tmp_path, Quiet())
    assert found.equal
    assert found.replayed is None


def test_a_replay_that_cannot_be_leaves_the_answer_with_a_note(tmp_path: Path) -> None:
    write(run_folder(tmp_path), tmp_path / "golden.json", "canary", [], {})
    other = run_folder(tmp_path, "other", {"loss": OTHER, "grad_norm": NORMS})
    found = checked_files(other, tmp_path / "golden.json", [], {}, tmp_path, Quiet())
    assert (found.exit_code, found.first_step) == (1, 3)
    assert found.replayed is None
    assert "not replayed: run other has no config.yaml" in found.notes[0]
    assert found.cause
