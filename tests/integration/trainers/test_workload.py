"""Every trainer trains for real, a few steps, on the shapes of models and data that users have."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast, Trainer

from canary.config.schema import TRAINING_TYPES, CanaryConfig
from canary.errors import ConfigError, InputError
from canary.inputs.embedded import EMBEDDED_DATA, EMBEDDED_MODEL
from canary.training.data.dataset import load_rows, truncate_prompt
from canary.training.exact.fingerprints import dataset_fingerprint, tokenizer_fingerprint
from canary.training.models.model import load_model, load_tokenizer
from canary.training.trainers import WorkloadSpec, build_trainer

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

TRAINER_FIELDS: dict[str, dict[str, Any]] = {
    "sft": {"max_length": 96},
    "dpo": {"max_length": 96, "beta": 0.1},
    "reward": {"max_length": 96},
    "kto": {"max_length": 96, "beta": 0.1},
    "grpo": {"max_new_tokens": 8, "num_generations": 2, "temperature": 1.0, "beta": 0.0},
    "rloo": {"max_new_tokens": 8, "num_generations": 2, "temperature": 1.0, "beta": 0.05},
    "orpo": {"max_length": 96, "beta": 0.1},
    "cpo": {"max_length": 96, "beta": 0.1},
    "ppo": {"max_new_tokens": 8, "temperature": 1.0, "ppo": {}},
}
GROUPS = ("grpo", "rloo")
CONVERSATION = "\n\nHuman: {q}\n\nAssistant: {a}"


def make_spec(
    tmp_path: Path, training_type: str, max_steps: int = 3, **changes: Any
) -> WorkloadSpec:
    fields: dict[str, Any] = {
        "name": "test",
        "training_type": training_type,
        "model_name": EMBEDDED_MODEL,
        "dataset_name": EMBEDDED_DATA,
        "dataset_size": 16,
        "max_steps": max_steps,
        "batch_size": 2,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-3,
        "warmup_steps": 0,
        "device": "cpu",
        **TRAINER_FIELDS.get(training_type, {}),
        **changes,
    }
    if fields.get("use_peft"):
        fields = {"lora_r": 4, "lora_alpha": 8, "lora_dropout": 0.0, **fields}
    return WorkloadSpec(
        config=CanaryConfig(**fields),
        scratch_dir=tmp_path / "scratch",
        cache_dir=tmp_path / "cache",
        max_steps=max_steps,
        logging_steps=1,
    )


def logged(trainer: Trainer, key: str) -> list[float]:
    return [entry[key] for entry in trainer.state.log_history if key in entry]


@pytest.fixture(scope="module")
def pythia_like(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-NeoX folder as EleutherAI ships them: no pad token, no chat template."""
    folder = tmp_path_factory.mktemp("pythia")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        ["Human: what is 2+2? Assistant: it is 4, of course"] * 4,
        trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", bos_token="<|endoftext|>"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    shape = GPTNeoXConfig(
        vocab_size=len(fast),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
        attention_dropout=0.1,
        bos_token_id=0,
        eos_token_id=0,
    )
    GPTNeoXForCausalLM(shape).save_pretrained(folder)
    return folder


@pytest.fixture
def preference_rows() -> list[dict[str, Any]]:
    return [
        {"prompt": f"What is {n}+1?", "chosen": f" It is {n + 1}.", "rejected": " No idea at all."}
        for n in range(12)
    ]


def hh_rows(count: int) -> list[dict[str, str]]:
    return [
        {
            "chosen": CONVERSATION.format(q=f"what is {n}+1?", a=f"it is {n + 1}"),
            "rejected": CONVERSATION.format(q=f"what is {n}+1?", a="I will not say"),
        }
        for n in range(count)
    ]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# --- the embedded default


@pytest.mark.parametrize("training_type", TRAINING_TYPES)
def test_every_trainer_trains_an_adapter_on_the_embedded_default(
    tmp_path: Path, training_type: str
) -> None:
    """Whole models train in `tests/integration/run/test_run.py`."""
    trainer = build_trainer(make_spec(tmp_path, training_type, use_peft=True))
    trainable = [p for p in trainer.model.parameters() if p.requires_grad]
    before = [p.detach().clone() for p in trainable]
    trainer.train()
    assert trainer.state.global_step == 3
    losses = logged(trainer, "loss")
    assert len(losses) == 3
    assert all(math.isfinite(loss) for loss in losses)
    assert len(trainable) < sum(1 for _ in trainer.model.parameters())
    if training_type not in GROUPS:  # a group of equal rewards teaches nothing
        assert any(not torch.equal(a, b) for a, b in zip(before, trainable, strict=True))


def test_grpo_with_a_kl_term_has_a_reference_equal_to_the_policy(tmp_path: Path) -> None:
    trainer = build_trainer(make_spec(tmp_path, "grpo", max_steps=1, beta=0.05))
    reference = dict(trainer.ref_model.named_parameters())
    assert all(torch.equal(p, reference[name]) for name, p in trainer.model.named_parameters())
    trainer.train()
    assert logged(trainer, "kl")[0] == pytest.approx(0.0, abs=1e-6)


# --- models and data of the user's own


@pytest.mark.parametrize("training_type", ["sft", "dpo", "reward"])
def test_raw_conversations_train_on_a_model_without_pad_token(
    tmp_path: Path, pythia_like: Path, training_type: str
) -> None:
    data = write_jsonl(tmp_path / "hh.jsonl", hh_rows(12))
    spec = make_spec(
        tmp_path, training_type, model_name=str(pythia_like), dataset_name=str(data), max_length=64
    )
    trainer = build_trainer(spec)
    trainer.train()
    tokenizer = trainer.processing_class
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert trainer.model.get_input_embeddings().num_embeddings > tokenizer.pad_token_id
    assert tokenizer.chat_template is None
    if training_type == "dpo":
        assert logged(trainer, "loss")[0] == pytest.approx(math.log(2), abs=1e-4)


@pytest.mark.parametrize("kind", ["jsonl", "folder", "saved", "saved_splits"])
def test_every_kind_of_local_data_gives_the_same_rows(
    tmp_path: Path, pythia_like: Path, preference_rows: list[dict[str, Any]], kind: str
) -> None:
    dataset = Dataset.from_list(preference_rows)
    place = tmp_path / f"data.{kind}"
    if kind == "jsonl":
        write_jsonl(place, preference_rows)

    elif kind == "folder":
        place.mkdir()
        dataset.to_parquet(str(place / "train-00000.parquet"))
    elif kind == "saved":
        dataset.save_to_disk(str(place))
    else:
        DatasetDict({"train": dataset}).save_to_disk(str(place))
    spec = make_spec(
        tmp_path, "dpo", model_name=str(pythia_like), dataset_name=str(place), dataset_size=10
    )
    rows = load_rows(spec, load_tokenizer(spec))
    assert rows.to_list() == preference_rows[:10]
    assert dataset_fingerprint(rows) == dataset_fingerprint(Dataset.from_list(preference_rows[:10]))


def test_fingerprints_see_order_and_template(tmp_path: Path, pythia_like: Path) -> None:
    rows = [{"text": "a"}, {"text": "b"}]
    assert dataset_fingerprint(Dataset.from_list(rows)) != dataset_fingerprint(
        Dataset.from_list(rows[::-1])
    )
    tokenizer = load_tokenizer(make_spec(tmp_path, "sft", model_name=str(pythia_like)))
    before = tokenizer_fingerprint(tokenizer)
    assert before["chat_template_sha256"] is None
    assert before["special_tokens"]["eos_token"] == {"token": "<|endoftext|>", "id": 0}
    tokenizer.chat_template = "{{ messages }}"
    after = tokenizer_fingerprint(tokenizer)
    assert after["chat_template_sha256"] is not None
    assert after["vocab_sha256"] == before["vocab_sha256"]


def test_long_conversations_lose_old_turns_first_and_keep_the_system_message(
    tmp_path: Path,
) -> None:
    tokenizer = load_tokenizer(make_spec(tmp_path, "sft"))
    system = {"role": "system", "content": "s"}
    last = {"role": "user", "content": "the last question"}
    old = [{"role": "user", "content": "old " * 20}, {"role": "assistant", "content": "yes"}]
    fits = len(
        tokenizer.apply_chat_template([system, last], add_generation_prompt=True, return_dict=True)[
            "input_ids"
        ]
    )
    assert truncate_prompt([system, *old, last], fits, tokenizer) == [system, last]
    shorter = truncate_prompt([system, *old, last], fits - 2, tokenizer)
    assert isinstance(shorter, list)
    assert shorter[0] == system
    assert last["content"].endswith(shorter[1]["content"])
    with pytest.raises(ConfigError, match="max_prompt_length"):
        truncate_prompt([last], 1, tokenizer)


# --- what cannot be used is said in one line


def refusal(spec: WorkloadSpec, kind: type[Exception] = InputError) -> str:
    with pytest.raises(kind) as raised:
        build_trainer(spec)
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_an_unreachable_hub_model_says_so(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    text = refusal(make_spec(tmp_path, "sft", model_name="nobody-at-all/no-model"))
    assert "is not a local folder, and the Hugging Face hub" in text


def test_missing_data_is_named(tmp_path: Path) -> None:
    assert "dataset './no/such.jsonl' does not exist" in refusal(
        make_spec(tmp_path, "sft", dataset_name="./no/such.jsonl")
    )


def test_a_missing_split_is_named(tmp_path: Path, preference_rows: list[dict[str, Any]]) -> None:
    place = tmp_path / "saved"
    DatasetDict({"train": Dataset.from_list(preference_rows)}).save_to_disk(str(place))
    spec = make_spec(tmp_path, "dpo", dataset_name=str(place), dataset_split="test")
    assert "has no split 'test'" in refusal(spec)


def test_more_steps_than_rows_see_them_again_and_say_so_unless_that_is_meant(
    tmp_path: Path,
) -> None:
    spec = make_spec(tmp_path, "sft", dataset_size=4)
    assert len(load_rows(spec, load_tokenizer(spec))) == 4
    (note,) = spec.notes
    assert "3 steps take 6 rows" in note
    assert "has 4" in note
    assert "With max_steps 2 or less" in note
    spec = make_spec(tmp_path, "sft", dataset_size=4, allow_repeat=True)
    assert len(load_rows(spec, load_tokenizer(spec))) == 4
    assert spec.notes == []


@pytest.mark.parametrize("training_type", ["sft", "dpo"])
def test_rows_whose_prompt_fills_max_length_do_not_count(
    tmp_path: Path, pythia_like: Path, training_type: str
) -> None:
    long = {"prompt": "what is " * 20, "chosen": " a", "rejected": " b"}
    short = {"prompt": "2+2?", "chosen": " 4", "rejected": " 5"}
    changes: dict[str, Any] = {"model_name": str(pythia_like), "max_length": 16}
    some = write_jsonl(tmp_path / "some.jsonl", [long] * 6 + [short] * 2)
    spec = make_spec(tmp_path, training_type, dataset_name=str(some), **changes)
    build_trainer(spec)
    assert any("take 6 rows" in note for note in spec.notes)
    none = write_jsonl(tmp_path / "none.jsonl", [long] * 8)
    spec = make_spec(tmp_path, training_type, dataset_name=str(none), **changes)
    assert "no row" in refusal(spec)


def test_quantization_asks_for_an_adapter_and_for_bitsandbytes(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    spec = make_spec(tmp_path, "sft", load_in_4bit=True, use_peft=True)
    with pytest.raises(ConfigError, match="pip install bitsandbytes"):
        load_model(spec, load_tokenizer(spec))


def test_unknown_trainer_args_name_the_nearest(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, "dpo", trainer_args={"label_smothing": 0.1})
    text = refusal(spec, ConfigError)
    assert "trainer_args.label_smothing" in text
    assert "did you mean 'label_smoothing'?" in text


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"max_steps": 7}, "set 'max_steps'"),
        ({"lr_scheduler_type": "no_such_schedule"}, "refuses"),
    ],
)
def test_trainer_args_that_cannot_hold_are_refused(
    tmp_path: Path, args: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(make_spec(tmp_path, "sft", trainer_args=args), ConfigError)
