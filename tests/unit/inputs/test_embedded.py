"""The embedded default: what is shipped is what its scripts build, and is fit for a canary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from canary.errors import InputError
from canary.inputs.embedded import (
    RANDOM_SIZES,
    View,
    data_file,
    parse_random_name,
    reward_dir,
    tiny_dir,
)
from canary.inputs.embedded.scoring import PARTIAL_CREDIT, score
from canary.training.models.model import random_llama
from tools.embedded.__main__ import differing_files
from tools.embedded.build_checkpoint import sample_figures
from tools.embedded.build_reward import (
    TOKENIZER_FILES,
    held_out_pairs,
    training_pairs,
    written_figures,
)
from tools.embedded.tasks import VIEWS

NAMED_PARAMETERS = {"10m": 1e7, "30m": 3e7, "70m": 7e7, "160m": 1.6e8, "410m": 4.1e8, "1b": 1e9}


def records(view: View) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data_file(view).read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(str(tiny_dir()))


@pytest.fixture(scope="module")
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(str(tiny_dir())).eval()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_data_and_tokenizer_rebuild_to_the_shipped_bytes() -> None:
    assert differing_files() == []


def test_a_changed_data_file_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for view in VIEWS:
        (tmp_path / f"{view}.jsonl").write_bytes(data_file(view).read_bytes())
    with (tmp_path / "preference.jsonl").open("a") as file:
        file.write("{}\n")
    monkeypatch.setattr(
        "tools.embedded.__main__.data_file", lambda view: tmp_path / f"{view}.jsonl"
    )
    assert differing_files() == [tmp_path / "preference.jsonl"]


def test_only_the_answer_scores_one() -> None:
    assert score("27", "27") == 1.0
    assert score(" 27\n", "27") == 1.0
    assert score("27 27", "27") < 1.0
    assert score("", "27") == 0.0
    assert score("xyz", "27") == 0.0


def test_a_longer_right_prefix_scores_more_and_a_longer_wrong_tail_less() -> None:
    answer = "bell castle drum"
    assert 0 < score("bell", answer) < score("bell castle", answer) < PARTIAL_CREDIT
    assert score(answer + " drum drum", answer) < score(answer + " drum", answer) < PARTIAL_CREDIT
    assert 0 < score("murd", "drum") < score("drmu", "drum")


def test_pad_and_eos_are_apart_and_role_tokens_are_single(tokenizer: Any) -> None:
    assert len({tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id}) == 3
    assert tokenizer("<|user|>hi<|assistant|>", add_special_tokens=False)["input_ids"][0] == 4
    assert tokenizer.convert_tokens_to_ids("<|assistant|>") == 5


def test_template_puts_the_prompt_first_and_marks_the_answer_with_its_eos(tokenizer: Any) -> None:
    record = records("prompt_completion")[0]
    prompt = tokenizer.apply_chat_template(
        record["prompt"], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    whole = tokenizer.apply_chat_template(
        record["prompt"] + record["completion"],
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    ids, marked = whole["input_ids"], whole["assistant_masks"]
    assert ids[: len(prompt)] == prompt
    assert ids[-1] == tokenizer.eos_token_id
    assert ids.count(tokenizer.bos_token_id) == ids.count(tokenizer.eos_token_id) == 1
    assert marked == [0] * len(prompt) + [1] * (len(ids) - len(prompt))


def test_checkpoint_is_small_float32_and_without_dropout(model: Any, tokenizer: Any) -> None:
    assert 200_000 < sum(p.numel() for p in model.parameters()) < 1_300_000
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.config.attention_dropout == 0.0
    assert model.get_input_embeddings().num_embeddings == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id


def test_sampled_completions_end_at_unequal_lengths_and_are_partly_right(
    model: Any, tokenizer: Any
) -> None:
    figures = sample_figures(model, tokenizer)
    assert figures.ended_share >= 0.8
    assert len(set(figures.lengths)) >= 8
    assert 0.1 < figures.mean_score < 0.9


@pytest.mark.parametrize("size", RANDOM_SIZES)
def test_random_model_has_the_parameters_of_its_name(size: str) -> None:
    with torch.device("meta"):
        model = random_llama(size, 0, 1024)
    parameters = sum(p.numel() for p in model.parameters())
    assert parameters == pytest.approx(NAMED_PARAMETERS[size], rel=0.10)


def test_random_names_give_sizes_and_an_unknown_size_names_the_known_ones() -> None:
    assert parse_random_name("embedded/random-70m") == "70m"
    assert parse_random_name("embedded/tiny") is None
    with pytest.raises(InputError, match="did you mean") as caught:
        parse_random_name("embedded/random-75m")
    assert "10m, 30m" in str(caught.value)


def test_no_training_pair_asks_what_a_held_out_pair_asks() -> None:
    asked = {str(pair["prompt"]) for pair in training_pairs(2000)}
    assert len(asked) > 1000
    assert asked.isdisjoint(str(pair["prompt"]) for pair in held_out_pairs())


def test_the_reward_model_prefers_the_right_answer_of_pairs_it_never_saw() -> None:
    figures = written_figures(reward_dir(), held_out_pairs()[:400])
    assert figures.accuracy > 0.95
    assert 1 < figures.mean_margin < 3, "scores have deviation 1"


def test_the_reward_model_reads_with_the_tokenizer_of_the_checkpoint() -> None:
    for name in TOKENIZER_FILES:
        assert (reward_dir() / name).read_bytes() == (tiny_dir() / name).read_bytes()
