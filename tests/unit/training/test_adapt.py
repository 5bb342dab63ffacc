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
    max_length: int | None = None
    max_seq_length: int | None = None
    eval_strategy: str = "no"
    no_cuda: bool = False
    use_cpu: bool = False
    gradient_checkpointing: bool = True
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
    wanted = WANTED | {"activation_checkpointing": False}
    assert adapt.settings(Older, wanted, notes) == {
        "max_length": 64,
        "eval_strategy": "no",
        "use_cpu": True,
        "gradient_checkpointing": False,
        "loss_type": "sigmoid",
        "max_prompt_length": 63,  # not the class's own 128: the canary has cut the prompts
    }
    assert notes == []


def test_a_setting_that_is_nowhere_is_said() -> None:
    notes: list[str] = []
    assert adapt.settings(Bare, {"max_length": 8, "group_by_length": True}, notes) == {
        "max_length": 8
    }
    assert len(notes) == 1
    assert "group_by_length True is ignored" in notes[0]
    assert "Bare of trl" in notes[0]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("loss_type", "nll", 0), ("loss_type", "dft", 1), ("trust_remote_code", True, 0)],
)
def test_what_a_version_does_anyway_is_not_said(name: str, value: object, said: int) -> None:
    notes: list[str] = []
    assert adapt.settings(Bare, {name: value}, notes) == {}
    assert len(notes) == said


@pytest.mark.parametrize(
    "name",
    ["warmup_ratio", "activation_checkpointing"],
)
def test_a_name_of_another_version_is_no_typing_error(name: str) -> None:
    assert adapt.understood(name, Newest)


def test_a_name_that_another_trainer_has_is_a_typing_error() -> None:
    class GRPOConfig(Newest):
        pass

    assert adapt.understood("num_generations", GRPOConfig)
    assert not adapt.understood("num_generations", Newest)
    assert not adapt.understood("wamup_ratio", GRPOConfig)


class _Trainer:
    def __init__(self, model: object, processing_class: object = None) -> None:
        self.given = (model, processing_class)


def test_a_parameter_with_a_value_is_never_dropped() -> None:
    with pytest.raises(ConfigError, match="does not take 'peft_config'"):
        adapt.build(_Trainer, model=1, peft_config=3)


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
    _place(monkeypatch, "trl.experimental.xyz", _Trainer)
    assert adapt.offered("XYZ") == (Bare, _Trainer)


def test_a_trainer_that_is_nowhere_is_said_to_be_not_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _place(monkeypatch, "trl", _Stub)
    _place(monkeypatch, "trl.experimental", None)
    with pytest.raises(ConfigError, match="'xyz' is not offered by trl"):
        adapt.offered("XYZ")
