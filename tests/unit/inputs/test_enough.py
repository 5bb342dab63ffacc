"""Rows and steps: what a training takes, what there is, and what is told before it starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from canary.config.load import trainer_defaults
from canary.config.schema import CanaryConfig
from canary.errors import InputError
from canary.inputs.preconditions import most_steps, require_enough, rows_needed, rows_there
from canary.protocol.spec import WorkloadSpec


def config_of(training_type: str = "sft", **changes: Any) -> CanaryConfig:
    fields = trainer_defaults(training_type) | {"training_type": training_type, "batch_size": 4}
    return CanaryConfig(**fields | {"gradient_accumulation_steps": 2} | changes)


def spec_of(steps: int, training_type: str = "sft", ranks: int = 1, **changes: Any) -> WorkloadSpec:
    config = config_of(training_type, max_steps=steps, **changes)
    return WorkloadSpec(config, Path(), Path(), steps, ranks=ranks)


def note_for(spec: WorkloadSpec, rows: int) -> str:
    require_enough(spec, rows)
    (note,) = spec.notes or [""]
    return note


def test_too_few_rows_are_seen_again_and_the_largest_max_steps_is_told() -> None:
    note = note_for(spec_of(10), 45)
    assert note == (
        "10 steps take 80 rows (batch_size 4 x gradient_accumulation_steps 2), but dataset "
        "'embedded/tasks' has 45: rows are seen 1.78 times. With max_steps 5 or less no row is "
        "seen twice; allow_repeat: true silences this note"
    )
    assert note_for(spec_of(5), 45) == ""
    assert note_for(spec_of(10, allow_repeat=True), 45) == ""
    assert "One step takes more rows than the dataset has" in note_for(spec_of(10), 5)


@pytest.mark.parametrize(
    ("training_type", "ranks", "changes"),
    [
        ("sft", 1, {}),
        ("grpo", 1, {"num_generations": 4}),
        ("ppo", 1, {"ppo": {"num_mini_batches": 3}}),
    ],
)
def test_the_largest_max_steps_is_the_last_that_needs_no_more_rows(
    training_type: str, ranks: int, changes: dict[str, Any]
) -> None:
    for rows in (40, 41, 47, 48):
        most = most_steps(spec_of(1, training_type, ranks, **changes), rows)
        assert rows_needed(spec_of(most, training_type, ranks, **changes)) <= rows
        assert rows_needed(spec_of(most + 1, training_type, ranks, **changes)) > rows


@pytest.mark.parametrize(
    ("training_type", "fewest", "words", "changes"),
    [
        ("sft", 4, r"a batch takes 4 rows \(batch_size 4\)", {}),
        ("grpo", 2, r"a rollout takes 2 prompts \(.* / num_generations 4\)", {}),
        ("ppo", 8, "a rollout takes 8 prompts", {}),
    ],
)
def test_what_repetition_cannot_fill_is_refused(
    training_type: str, fewest: int, words: str, changes: dict[str, Any]
) -> None:
    require_enough(spec_of(100, training_type, **changes), fewest)
    with pytest.raises(InputError, match=words):
        require_enough(spec_of(100, training_type, **changes), fewest - 1)


PAIR = json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"})


def test_rows_are_counted_where_they_lie(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text(f"{PAIR}\n\n{PAIR}\n{PAIR}")
    whole = tmp_path / "whole.json"
    whole.write_text(f"[{PAIR}, {PAIR}]")
    named = str(lines)
    assert rows_there(config_of(dataset_name=named)) == 3
    assert rows_there(config_of(dataset_name=named, dataset_size=2)) == 2
    assert rows_there(config_of("kto", dataset_name=named)) == 6
    assert rows_there(config_of(dataset_name=named, dataset_split="train[:1]")) is None
    assert rows_there(config_of(dataset_name=str(whole))) == 2
    assert rows_there(config_of(dataset_name=str(tmp_path))) is None
    assert rows_there(config_of(dataset_name="org/rows")) is None
    assert rows_there(config_of(dataset_name="org/rows", dataset_size=7)) == 7
    assert rows_there(config_of("kto", dataset_name="org/rows", dataset_size=7)) == 14
    assert (rows_there(config_of()) or 0) > 500


def test_parquet_is_counted_by_its_footer(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    place = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"prompt": ["a"] * 5, "completion": ["b"] * 5}), place)
    assert rows_there(config_of("kto", dataset_name=str(place))) == 5


def test_a_file_that_cannot_be_counted_is_left_to_loading(tmp_path: Path) -> None:
    for name in ("a.json", "a.jsonl", "a.parquet"):
        (tmp_path / name).write_text('{"prompt": "a", \n')
        assert rows_there(config_of(dataset_name=str(tmp_path / name))) is None
    (tmp_path / "none.jsonl").write_text("\n")
    with pytest.raises(InputError, match="has no rows in split 'train'"):
        rows_there(config_of(dataset_name=str(tmp_path / "none.jsonl")))
