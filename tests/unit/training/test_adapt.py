"""One set of settings, several versions of trl: what each is given, what is said of the rest."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType

import pytest

from canary.errors import ConfigError
from canary.training import adapt


@dataclass
class Newest:
    max_length: int | None = None
    eval_strategy: str = "no"
    use_cpu: bool = False
    warmup_steps: float = 0
    loss_type: list[str] = field(default_factory=list)


@dataclass
class Older:
    max_seq_length: int | None = None
    evaluation_strategy: str = "no"
    no_cuda: bool = False
    warmup_ratio: float = 0.0
    warmup_steps: int = 0
    loss_type: str = "sigmoid"
    max_prompt_length: int | None = 128


@dataclass
class Bare:
    max_length: int | None = None


WANTED = {"max_length": 64, "eval_strategy": "no", "use_cpu": True, "loss_type": ["sigmoid"]}


def test_the_newest_names_pass_as_they_are() -> None:
    notes: list[str] = []
    assert adapt.settings(Newest, WANTED, notes) == WANTED
    assert notes == []


def test_older_names_and_types_are_found() -> None:
    notes: list[str] = []
    assert adapt.settings(Older, WANTED, notes) == {
        "max_seq_length": 64,
        "evaluation_strategy": "no",
        "no_cuda": True,
        "loss_type": "sigmoid",
        "max_prompt_length": 63,  # not the class's own 128: the canary has cut the prompts
    }
    assert notes == []


def test_older_names_in_a_config_are_found_in_the_newest_class() -> None:
    notes: list[str] = []
    given = {"evaluation_strategy": "steps", "no_cuda": True, "warmup_ratio": 0.1}
    expected = {"eval_strategy": "steps", "use_cpu": True, "warmup_steps": 0.1}
    assert adapt.settings(Newest, given, notes) == expected
    assert notes == []


@dataclass
class Both:
    activation_checkpointing: bool | None = None
    gradient_checkpointing: bool | None = None


def test_of_two_names_for_one_thing_the_last_that_was_given_counts() -> None:
    given = {"activation_checkpointing": False, "gradient_checkpointing": True}
    assert adapt.settings(Both, given, []) == {"activation_checkpointing": True}


def test_a_setting_that_is_nowhere_is_said() -> None:
    notes: list[str] = []
    assert adapt.settings(Bare, {"max_length": 8, "group_by_length": True}, notes) == {
        "max_length": 8
    }
    assert len(notes) == 1
    assert "group_by_length True is not honoured" in notes[0]
    assert "Bare of trl" in notes[0]


@pytest.mark.parametrize(
    ("value", "said"), [("nll", 0), ("dft", 1), (["sigmoid"], 0), (["ipo"], 1)]
)
def test_what_a_version_does_anyway_is_not_said(value: object, said: int) -> None:
    notes: list[str] = []
    assert adapt.settings(Bare, {"loss_type": value}, notes) == {}
    assert len(notes) == said


def test_several_losses_stay_a_list_where_the_class_takes_one() -> None:
    found = adapt.settings(Older, {"loss_type": ["sigmoid", "sft"]}, [])
    assert found["loss_type"] == ["sigmoid", "sft"]  # the class itself refuses it


@pytest.mark.parametrize(
    "name",
    [
        "warmup_ratio",
        "max_seq_length",
        "logging_dir",
        "group_by_length",
        "activation_checkpointing",
    ],
)
def test_a_name_of_another_version_is_no_typing_error(name: str) -> None:
    assert adapt.understood(name, Newest)


def test_a_name_that_another_trainer_has_is_a_typing_error() -> None:
    class GRPOConfig(Newest):
        pass

    assert adapt.understood("num_generations", GRPOConfig)
    assert not adapt.understood("num_generations", Newest)
    assert not adapt.understood("wamup_ratio", GRPOConfig)


class _NewTrainer:
    def __init__(self, model: object, processing_class: object = None) -> None:
        self.given = (model, processing_class)


class _OldTrainer:
    def __init__(self, model: object, tokenizer: object = None) -> None:
        self.given = (model, tokenizer)


@pytest.mark.parametrize("trainer", [_NewTrainer, _OldTrainer])
def test_the_tokenizer_goes_by_either_name(trainer: type) -> None:
    assert adapt.build(trainer, model=1, processing_class=2, peft_config=None).given == (1, 2)


def test_a_parameter_with_a_value_is_never_dropped() -> None:
    with pytest.raises(ConfigError, match="takes no 'peft_config'"):
        adapt.build(_NewTrainer, model=1, peft_config=3)


class _Stub:
    def __init__(self, *args: object, **kwargs: object) -> None:
        raise AssertionError("a stub is never built")


def _place(monkeypatch: pytest.MonkeyPatch, name: str, trainer: type | None) -> None:
    module = ModuleType(name)
    if trainer is not None:
        module.XYZTrainer = trainer  # type: ignore[attr-defined]
        module.XYZConfig = Bare  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)


def test_a_stub_is_passed_over_for_the_real_class(monkeypatch: pytest.MonkeyPatch) -> None:
    _place(monkeypatch, "trl", _Stub)
    _place(monkeypatch, "trl.experimental", None)
    _place(monkeypatch, "trl.experimental.xyz", _NewTrainer)
    assert adapt.offered("XYZ") == (Bare, _NewTrainer)
    assert adapt.trainer_class("XYZTrainer") is _NewTrainer


def test_a_trainer_that_is_nowhere_is_said_to_be_not_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _place(monkeypatch, "trl", _Stub)
    _place(monkeypatch, "trl.experimental", None)
    with pytest.raises(ConfigError, match="'xyz' is not offered by trl"):
        adapt.offered("XYZ")


def test_an_older_trainer_of_the_same_name_is_not_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _place(monkeypatch, "trl", _OldTrainer)
    _place(monkeypatch, "trl.experimental", None)
    with pytest.raises(ConfigError, match="not offered"):
        adapt.offered("XYZ", takes="reward_funcs")
