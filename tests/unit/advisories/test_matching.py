"""Who an advisory applies to: versions, three-valued conditions, and what a record tells."""

from __future__ import annotations

import time
from typing import Any

import pytest

from canary.advisories.advisory import Advisory, advisories
from canary.advisories.condition import Known, Test, holds, in_range, words
from canary.advisories.facts import known_of
from canary.advisories.keys import ARGUMENTS, KEYS
from canary.advisories.matching import matches
from canary.record.types import RunRecord
from tests.unit.comparing import altered, example


@pytest.mark.parametrize(
    ("version", "versions", "inside"),
    [
        ("2.13.0+cpu", ">=2.10,<=2.13.0", True),
        ("1.9.0", ">=0.24,<1.9.0", False),
        ("1.9.0rc1", ">=0.24,<1.9.0", False),
        ("5.0.0.dev0", ">=4.50", True),
        ("2.12.1", "==2.12.*", True),
        ("", ">=1", False),
        (None, ">=1", False),
        ("not a version", ">=1", False),
        ("1" * 100_000, ">=1", False),
    ],
)
def test_a_version_is_in_a_range_as_pep_440_says(
    version: str | None, versions: str, inside: bool
) -> None:
    assert in_range(version, versions) is inside


@pytest.mark.parametrize(
    ("key", "test", "facts", "answer"),
    [
        ("training.gradient_accumulation_steps", ">1", {}, None),
        ("training.gradient_accumulation_steps", ">1", 2, True),
        ("training.gradient_accumulation_steps", ">1", 1, False),
        ("training.gradient_accumulation_steps", ">1", "many", False),
        ("training.packing", True, True, True),
        ("training.packing", True, 1, False),
        ("trainer", ["sft", "dpo"], ["dpo", "transformers"], True),
        ("trainer", "grpo", ["dpo", "transformers"], False),
        ("training.temperature", "!=1.0", 1.0, False),
        ("training.temperature", "!=1.0", 0.7, True),
        ("adapter.target_modules", "lm_head", [], False),
        ("model.model_type", ["gemma3"], None, False),
    ],
)
def test_a_test_is_true_false_or_not_known(
    key: str, test: Test, facts: Any, answer: bool | None
) -> None:
    known = Known(facts={} if facts == {} else {key: facts})
    assert holds(key, test, known) is answer


def test_another_package_is_asked_by_its_version() -> None:
    known = Known({"transformers": "4.50.0", "vllm": None})
    assert holds("package.transformers", ">=4.48.1,<4.53", known) is True
    assert holds("package.transformers", ">=5", known) is False
    assert holds("package.vllm", "installed", known) is False
    assert holds("package.transformers", "installed", known) is True
    assert holds("package.deepspeed", "installed", known) is None


def made(**changed: Any) -> Advisory:
    fields = {
        "id": "trl-x",
        "package": "trl",
        "versions": ">=1.0,<2",
        "condition": {"trainer": "dpo", "training.packing": True},
        "when": None,
        "wrong": "Something goes wrong.",
        "remedy": "Do something.",
        "issue": "https://github.com/huggingface/trl/issues/1",
        "fix": None,
        "relation": None,
        "read": advisories()[0].read,
    }
    return Advisory.model_validate({**fields, **changed})


def test_what_is_not_known_is_a_condition_and_what_is_false_is_left_out() -> None:
    (found,) = matches([made()], Known({"trl": "1.5"}, {"trainer": ["dpo"]}))
    assert (found.version, found.only_if) == ("1.5", "packing is on")
    assert not matches([made()], Known({"trl": "1.5"}, {"trainer": ["sft"]}))
    assert not matches([made()], Known({"trl": "2.0"}, {}))
    assert not matches([made()], Known({"trl": None}, {}))
    assert not matches([made()], Known())


def test_a_condition_that_no_record_tells_stays_open_and_sure_ones_come_first() -> None:
    known = Known({"trl": "1.5"}, {"trainer": ["dpo"], "training.packing": True})
    found = matches([made(id="trl-a", when="the moon is full"), made()], known)
    assert [(one.advisory.id, one.only_if) for one in found] == [
        ("trl-x", ""),
        ("trl-a", "the moon is full"),
    ]


def test_conditions_are_said_in_words() -> None:
    assert words("trainer", ["sft", "dpo", "kto"]) == "the trainer is sft, dpo or kto"
    assert words("trainer", "transformers") == "the trainer is based on transformers.Trainer"
    assert words("training.gradient_accumulation_steps", ">1") == "gradient_accumulation_steps > 1"
    assert words("package.trl", "<2") == "trl is <2"
    assert all(words(key, True) for key in KEYS)


def with_settings(record: RunRecord, **settings: Any) -> RunRecord:
    all_settings = {key.replace("__", "."): value for key, value in settings.items()}
    return altered(record, "exact", "evidence", to={"settings": all_settings, "code": {}})


def test_a_record_tells_trainer_arguments_model_and_machine() -> None:
    record = with_settings(example("dpo"), args__seed=1, model__attention_dropout=0.3)
    facts = known_of(record).facts
    assert facts["trainer"] == ["dpo", "transformers"]
    assert facts["training.gradient_accumulation_steps"] == 2
    assert facts["training.packing"] is False  # a default, since the arguments are recorded
    assert "training.loss_type" not in facts  # its default moved between versions
    assert facts["model.attention_dropout"] == 0.3
    assert facts["quantization"] == "none"
    assert (facts["device"], facts["ranks"], facts["adapters"]) == ("cpu", 1, False)
    assert known_of(record).packages["trl"] == "1.16.0"


def test_adapters_tell_their_settings_and_lists_are_flat() -> None:
    record = altered(example("dpo"), "config", "use_peft", to=True)
    record = with_settings(
        record, peft__default__target_modules=["lm_head", "q_proj"], peft__default__use_dora=False
    )
    facts = known_of(record).facts
    assert facts["adapter.target_modules"] == ["lm_head", "q_proj"]
    assert facts["adapter.use_dora"] == [False]
    assert "adapter.lora_bias" not in facts


@pytest.mark.parametrize(
    ("path", "trainers"),
    [
        ("trl.experimental.gkd.gkd_trainer.GKDTrainer", ["gkd", "sft", "transformers"]),
        ("transformers.trainer.Trainer", ["transformers"]),
        ("__main__.MyTrainer", None),
    ],
)
def test_a_class_of_a_users_script_is_recognised(path: str, trainers: list[str] | None) -> None:
    kind = "sft" if trainers and "sft" in trainers else "custom"
    record = example("sft")
    record = altered(record, "config", to={"training_type": kind, "trainer": path})
    facts = known_of(record).facts
    assert facts.get("trainer") == trainers


def test_a_record_of_nothing_tells_nothing() -> None:
    empty = RunRecord(run_id="x", timestamp="2026-01-01T00:00:00+00:00")
    assert known_of(empty) == Known()
    assert not matches(advisories(), known_of(empty))


def test_an_argument_has_a_default_only_if_no_known_fault_needs_it_open() -> None:
    assert ARGUMENTS["packing"] is False
    assert ARGUMENTS["loss_type"] is None


def test_a_dropout_of_the_model_makes_the_fault_sure() -> None:
    record = with_settings(example("dpo"), args__seed=1, model__attention_dropout=0.3)
    sure = {one.advisory.id for one in matches(advisories(), known_of(record)) if not one.unknown}
    assert "trl-dropout-functional" in sure
    quiet = with_settings(example("dpo"), args__seed=1, model__attention_dropout=0.0)
    ids = {one.advisory.id for one in matches(advisories(), known_of(quiet))}
    assert "trl-dropout-functional" not in ids


@pytest.mark.parametrize("value", [10**400, [1, {}], {"a": 1}, None, "x" * 100_000, True, -1.5])
def test_a_strange_record_matches_or_not_but_never_fails(value: Any) -> None:
    settings = {f"args.{name}": value for name in ARGUMENTS}
    settings |= {"model.attention_dropout": value, "peft.a.target_modules": value}
    config = {"training_type": value, "trainer": value, "use_peft": value, "dtype": value}
    record = altered(example("dpo"), "exact", "evidence", to={"settings": settings, "code": {}})
    record = altered(record, "config", to=config)
    matches(advisories(), known_of(record))


def test_a_record_with_a_million_settings_is_read_in_a_moment() -> None:
    settings = {f"peft.x.{number}": number for number in range(300_000)}
    record = altered(example("dpo"), "exact", "evidence", to={"settings": settings, "code": {}})
    record = altered(record, "config", "use_peft", to=True)
    began = time.process_time()
    known_of(record)
    assert time.process_time() - began < 2
