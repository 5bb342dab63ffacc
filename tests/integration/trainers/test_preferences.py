"""Reward and KTO on models and data of the user's own; ORPO and CPO where trl has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from canary.errors import ConfigError
from canary.inputs.embedded import tiny_dir
from canary.training.models.model import load_model, load_tokenizer
from canary.training.trainers import build_trainer
from tests.integration.trainers.test_workload import logged, make_spec, refusal, write_jsonl

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]


def head(spec: Any) -> torch.Tensor:
    found: torch.Tensor = load_model(spec, load_tokenizer(spec)).score.weight.detach()
    return found


def test_the_new_head_of_a_reward_model_comes_from_the_seed(tmp_path: Path) -> None:
    specs = [
        make_spec(tmp_path / str(place), "reward", seed=seed)
        for place, seed in enumerate((1, 1, 2))
    ]
    one, again, other = map(head, specs)
    assert one.shape[0] == 1
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def classifier(folder: Path, labels: int) -> Path:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_dir(), num_labels=labels)
    model.config.pad_token_id = 0
    model.save_pretrained(folder)
    make_tokenizer = load_tokenizer(make_spec(folder / "x", "sft"))
    make_tokenizer.save_pretrained(folder)
    return folder


def test_a_reward_model_keeps_the_head_it_has(tmp_path: Path) -> None:
    folder = classifier(tmp_path / "rm", 1)
    saved = AutoModelForSequenceClassification.from_pretrained(folder).score.weight
    spec = make_spec(tmp_path, "reward", model_name=str(folder))
    assert torch.equal(head(spec), saved)
    trainer = build_trainer(spec)
    trainer.train()
    assert trainer.state.global_step == 3


def test_a_classifier_of_several_labels_is_no_reward_model(tmp_path: Path) -> None:
    folder = classifier(tmp_path / "topics", 3)
    text = refusal(make_spec(tmp_path, "reward", model_name=str(folder)))
    assert "is a classifier of 3 labels, but a reward model has one" in text


def test_labelled_rows_train_kto_in_unequal_numbers(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": f"{n}+1=", "completion": str(n + 1), "label": n % 3 != 0} for n in range(12)
    ]
    data = str(write_jsonl(tmp_path / "labels.jsonl", rows))
    trainer = build_trainer(make_spec(tmp_path, "kto", dataset_name=data))
    assert [row["label"] for row in trainer.train_dataset] == [n % 3 != 0 for n in range(12)]
    trainer.train()
    assert logged(trainer, "loss")[0] == pytest.approx(0.5, abs=1e-6)


def test_a_label_that_says_neither_yes_nor_no_is_refused(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "completion": "b", "label": n} for n in (1, 0, 7, 1)]
    data = str(write_jsonl(tmp_path / "labels.jsonl", rows))
    text = refusal(make_spec(tmp_path, "kto", dataset_name=data, dataset_size=4))
    assert "'label' of usable row 3 is 7" in text


def test_a_trl_without_the_trainer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(name: str) -> Any:
        raise ModuleNotFoundError(name)

    from canary.training.trainers import building

    monkeypatch.setattr("importlib.import_module", gone)
    with pytest.raises(ConfigError) as raised:
        building.build(make_spec(tmp_path, "orpo"))
    assert "'orpo' is not offered by trl" in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize("training_type", ["sft", "dpo", "ppo"])
def test_a_functional_dropout_is_off_where_trl_switches_dropout_off(
    tmp_path: Path, training_type: str
) -> None:
    """trl's disable_dropout reaches nn.Dropout only; a configured attention dropout stays on."""
    folder = tmp_path / "dropping"
    spec = make_spec(tmp_path, "sft")
    tokenizer = load_tokenizer(spec)
    model = load_model(spec, tokenizer)
    model.config.attention_dropout = 0.1
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    trainer = build_trainer(make_spec(tmp_path, training_type, model_name=str(folder)))
    wanted = 0.1 if training_type == "sft" else 0.0
    assert trainer.model.config.attention_dropout == wanted
