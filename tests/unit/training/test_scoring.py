"""What scores PPO's completions: functions that may abstain, models that never change."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from canary.config.load import load_values
from canary.errors import ConfigError, InputError
from canary.inputs.embedded import EMBEDDED_REWARD, reward_dir, tiny_dir
from canary.protocol.spec import WorkloadSpec
from canary.training.trainers.ppo.rollout import Rollout
from canary.training.trainers.ppo.scoring import (
    RewardFunctions,
    RewardModel,
    Samples,
    build_scorer,
    load_reward_model,
)

CPU = torch.device("cpu")
QUESTIONS = ("Spell cat.", "3 + 4 =", "Copy this line exactly as it stands, every word of it:\nowl")
ANSWERS = ("c a t", "7", "owl moon star")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(str(tiny_dir()), padding_side="left")


def spec_of(tmp_path: Path, **changes: Any) -> WorkloadSpec:
    given = {"training_type": "ppo", "device": "cpu", "batch_size": 2, **changes}
    config = load_values(None, {key: (value, "here") for key, value in given.items()}).config
    return WorkloadSpec(config, tmp_path / "scratch", tmp_path / "cache", 2)


def asked(question: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": question}]


def samples_of(
    tokenizer: Any,
    answers: tuple[str, ...] = ANSWERS,
    ended: bool = True,
    junk: int = 0,
    **columns: Any,
) -> Samples:
    """Rollout-like: prompts padded on the left, completions on the right, `junk` after the end."""
    prompts = [
        tokenizer.apply_chat_template(asked(q), add_generation_prompt=True, tokenize=False)
        for q in QUESTIONS
    ]
    left = tokenizer(prompts, add_special_tokens=False, padding=True, return_tensors="pt")
    end = tokenizer.eos_token if ended else ""
    rows = [tokenizer(answer + end, add_special_tokens=False)["input_ids"] for answer in answers]
    width = max(map(len, rows)) + 2
    ids = torch.tensor(
        [row + [junk or tokenizer.pad_token_id] * (width - len(row)) for row in rows]
    )
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    data = [
        {"prompt": asked(q), **{name: values[place] for name, values in columns.items()}}
        for place, q in enumerate(QUESTIONS)
    ]
    rollout = Rollout(left["input_ids"], left["attention_mask"], ids, mask)
    return Samples(data, answers, rollout)


# --- reward functions


def test_functions_are_summed_and_one_that_abstains_adds_nothing(tokenizer: Any) -> None:
    scorer = RewardFunctions(
        [
            lambda completions, **_: [1.0, None, None],
            lambda completions, **_: [0.25, 2, None],
        ]
    )
    scores = scorer.score(samples_of(tokenizer))
    assert scores.dtype == torch.float32
    assert scores.tolist() == [1.25, 2.0, 0.0]


def test_a_score_that_is_no_number_is_not_taken_for_an_abstention(tokenizer: Any) -> None:
    functions = [lambda completions, **_: [1.0, math.nan, None], lambda completions, **_: [2.0] * 3]
    scores = RewardFunctions(functions).score(samples_of(tokenizer))
    assert str(scores.tolist()) == "[3.0, nan, 2.0]"


def test_functions_are_called_as_trl_calls_them(tokenizer: Any) -> None:
    seen: dict[str, Any] = {}

    async def looks(**given: Any) -> list[float]:
        seen.update(given)
        return [0.0] * 3

    samples = samples_of(tokenizer, answer=["c a t", "7", "owl"], prompts=["not", "the", "prompts"])
    assert RewardFunctions([looks]).score(samples).tolist() == [0.0] * 3
    assert seen["prompts"] == [asked(q) for q in QUESTIONS]
    assert seen["completions"] == [[{"role": "assistant", "content": a}] for a in ANSWERS]
    assert seen["answer"] == ["c a t", "7", "owl"]
    ends = [ids[-1] for ids in seen["completion_ids"]]
    assert ends == [tokenizer.eos_token_id] * 3


def test_without_a_reward_model_the_answers_own_score_is_the_reward(
    tmp_path: Path, tokenizer: Any
) -> None:
    rows = Dataset.from_list([{"prompt": asked("3 + 4 ="), "answer": "7"}])
    scorer = build_scorer(spec_of(tmp_path), rows, tokenizer, CPU)
    samples = samples_of(tokenizer, answer=list(ANSWERS))
    assert scorer.score(samples).tolist() == [1.0, 1.0, 1.0]


def test_a_reward_model_beside_functions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        spec_of(
            tmp_path, ppo={"reward_model": EMBEDDED_REWARD}, reward_functions=["rewards:brevity"]
        )


# --- reward models


@pytest.fixture
def embedded(tmp_path: Path, tokenizer: Any) -> RewardModel:
    return load_reward_model(spec_of(tmp_path), EMBEDDED_REWARD, tokenizer, CPU)


def alone(ids: list[int], folder: Path) -> float:
    """The logit of one sequence, without padding."""
    model = AutoModelForSequenceClassification.from_pretrained(str(folder), dtype=torch.float32)
    with torch.no_grad():
        return model.eval()(input_ids=torch.tensor([ids])).logits.item()


def test_each_score_is_the_logit_of_its_own_sequence(embedded: RewardModel, tokenizer: Any) -> None:
    samples = samples_of(tokenizer)
    assert embedded.takes_ids
    whole = [
        tokenizer.apply_chat_template([*asked(q), {"role": "assistant", "content": a}])
        for q, a in zip(QUESTIONS, ANSWERS, strict=True)
    ]
    expected = torch.tensor(
        [alone(list(getattr(ids, "input_ids", ids)), reward_dir()) for ids in whole]
    )
    torch.testing.assert_close(embedded.score(samples), expected, rtol=1e-5, atol=1e-5)


def test_what_follows_the_end_does_not_count(embedded: RewardModel, tokenizer: Any) -> None:
    clean = embedded.score(samples_of(tokenizer))
    assert torch.equal(embedded.score(samples_of(tokenizer, junk=77)), clean)
    assert not torch.allclose(embedded.score(samples_of(tokenizer, ended=False)), clean, atol=0.1)


def test_the_model_never_changes(embedded: RewardModel, tokenizer: Any) -> None:
    before = copy.deepcopy(embedded.model.state_dict())
    score = embedded.score(samples_of(tokenizer))
    assert not score.requires_grad
    assert not embedded.model.training
    assert not any(value.requires_grad for value in embedded.model.parameters())
    assert all(torch.equal(before[k], value) for k, value in embedded.model.state_dict().items())


def other_model(
    folder: Path, positions: int = 128, labels: int = 1, template: str | None = None
) -> Path:
    """A reward model with a vocabulary of its own, and a pad token that is its end token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        ["spell the cat, copy the line"],
        trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
    fast.chat_template = template
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        num_labels=labels,
    )
    LlamaForSequenceClassification(shape).save_pretrained(folder)
    return folder


TEMPLATE = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }};{% endfor %}"


def test_another_tokenizer_reads_the_texts_through_its_own_template(
    tmp_path: Path, tokenizer: Any
) -> None:
    folder = other_model(tmp_path / "rm", template=TEMPLATE)
    model = load_reward_model(spec_of(tmp_path), str(folder), tokenizer, CPU)
    assert not model.takes_ids
    own = AutoTokenizer.from_pretrained(str(folder))
    texts = [f"[user] {q};[assistant] {a};" for q, a in zip(QUESTIONS, ANSWERS, strict=True)]
    expected = torch.tensor([alone(own(text)["input_ids"], folder) for text in texts])
    scores = model.score(samples_of(tokenizer))
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)


def refusal(tmp_path: Path, tokenizer: Any, name: str) -> str:
    with pytest.raises(InputError) as raised:
        load_reward_model(spec_of(tmp_path), name, tokenizer, CPU)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_what_is_no_reward_model_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    causal = refusal(tmp_path, tokenizer, "embedded/tiny")
    assert "LlamaForCausalLM, not a sequence classifier" in causal
    two = other_model(tmp_path / "two", labels=2)
    assert "has 2 labels" in refusal(tmp_path, tokenizer, str(two))
    missing = refusal(tmp_path, tokenizer, str(tmp_path / "missing"))
    assert "no folder" in missing
    assert "embedded/reward" in missing
    assert "no embedded reward model" in refusal(tmp_path, tokenizer, "embedded/rewards")


def test_a_classifier_without_its_head_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    from safetensors.torch import load_file, save_file

    folder = other_model(tmp_path / "rm")
    weights = load_file(folder / "model.safetensors")
    del weights["score.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert "lacks weights: score.weight" in refusal(tmp_path, tokenizer, str(folder))
