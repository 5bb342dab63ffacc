"""Rows made for a trl that applies no chat template hold the tokens that the newest trl makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from packaging.version import Version

from canary.config.load import load_config
from canary.protocol.spec import WorkloadSpec
from canary.training import adapt
from canary.training.data import older_rows
from canary.training.data.dataset import load_rows
from canary.training.models.model import load_tokenizer
from canary.training.trainers import build_trainer
from tests.integration.conftest import STEPS, settings, write_config

pytestmark = pytest.mark.train


def spec_of(folder: Path, kind: str) -> WorkloadSpec:
    config = load_config(write_config(folder, settings(kind))).config
    return WorkloadSpec(config, folder, folder, STEPS)


def older(spec: WorkloadSpec, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """The rows as trl 0.11 gets them."""
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    with monkeypatch.context() as patch:
        patch.setattr(adapt, "installed", lambda package: Version("0.11.4"))
        return older_rows.as_installed(spec, rows, tokenizer)


def newest(spec: WorkloadSpec) -> list[dict[str, Any]]:
    rows: Any = build_trainer(spec).train_dataset
    return list(rows)


def test_sft_rows_are_the_newest_trls_tokens_and_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path, "sft")
    made, theirs = list(older(spec, monkeypatch)), newest(spec)
    assert [row["input_ids"] for row in made] == [row["input_ids"] for row in theirs]
    assert [row["labels"] for row in made] == [row["labels"] for row in theirs]


def test_reward_rows_are_the_newest_trls_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path, "reward")
    made, theirs = list(older(spec, monkeypatch)), newest(spec)
    for side in ("chosen", "rejected"):
        ours = [row[f"input_ids_{side}"] for row in made]
        assert ours == [row[f"{side}_ids"] for row in theirs]


def test_dpo_rows_are_the_newest_trls_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(tmp_path, "dpo")
    tokenizer = load_tokenizer(spec)
    made, theirs = list(older(spec, monkeypatch)), newest(spec)
    for ours, row in zip(made, theirs, strict=True):
        assert tokenizer(ours["prompt"], add_special_tokens=False)["input_ids"] == row["prompt_ids"]
        for side in ("chosen", "rejected"):
            ids = tokenizer(ours[side], add_special_tokens=False)["input_ids"]
            assert ids == row[f"{side}_ids"]


def test_an_older_trl_is_a_note_and_the_newest_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path, "sft")
    older(spec, monkeypatch)
    assert spec.notes == ["trl 0.11.4 applies no chat template: the canary makes the rows' text"]
    assert older_rows.collator(spec, load_tokenizer(spec)) is None
    again = spec_of(tmp_path, "sft")
    newest(again)
    assert again.notes == []
