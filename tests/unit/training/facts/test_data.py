"""What a tokenizer of its own, and counts of rows, say of the data."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from canary.record.facts import Facts, TextFacts
from canary.training.collectors.batches import describe_batch
from canary.training.facts.texts import Texts

WORDS = ("<pad>", "<bos>", "<eos>", "user", "bot", "think", "yes", "no", "a", "b")
TEMPLATE = (
    "{{ bos_token }} {% for m in messages %}{{ m.role.replace('assistant', 'bot') }} "
    "{{ m.content }} {% endfor %}"
)


def tokenizer(*, sets_bos: bool = True, template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    raw = Tokenizer(
        models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<pad>")
    )
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if sets_bos:
        raw.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", 1)]
        )
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>"
    )
    made.chat_template = template
    return made


def told(tokens: Any, **more: Any) -> TextFacts:
    facts: Facts = {}
    model = SimpleNamespace(generate=None, generation_config=SimpleNamespace(eos_token_id=[2, 7]))
    watched = Texts(SimpleNamespace(model=model, processing_class=tokens, **more))
    watched.begin()
    watched.end()
    watched.tell(facts, {})
    return facts["texts"]


@pytest.mark.parametrize("sets_bos", [True, False])
def test_what_the_tokenizer_sets_is_asked_of_it(sets_bos: bool) -> None:
    tokens = tokenizer(sets_bos=sets_bos)
    tokens(["a b", "a"], padding=True, padding_side="left")  # which stays set
    assert told(tokens) == {"sets_bos": sets_bos, "template_sets_bos": True}


def test_a_template_that_is_missing_refuses_or_writes_no_bos() -> None:
    assert "template_sets_bos" not in told(tokenizer(template=None))
    assert "template_sets_bos" not in told(tokenizer(template="{{ raise_exception('no') }}"))
    assert told(tokenizer(template=TEMPLATE.replace("{{ bos_token }} ", "")))[
        "template_sets_bos"
    ] is (False)


def test_groups_that_the_users_code_makes_are_named() -> None:
    class Own:
        model = None

        def _prepare_inputs(self) -> None: ...

    facts: Facts = {}
    watched = Texts(Own())
    watched.begin()
    watched.tell(facts, {})
    assert facts["own_advantages"] == "_prepare_inputs"


SPECIAL = SimpleNamespace(pad_token_id=0, bos_token_id=1, eos_token_id=2)


def test_rows_are_counted_by_labels() -> None:
    batch = {
        "input_ids": torch.tensor([[1, 5, 6, 2], [1, 5, 6, 8], [1, 5, 7, 9], [5, 6, 6, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1]] * 3 + [[1, 1, 1, 0]]),
        "labels": torch.tensor(
            [[-100, 5, 6, 2], [-100, 5, 6, 8], [-100, 5, 7, 9], [-100, -100, -100, -100]]
        ),
    }
    found = describe_batch(batch, SPECIAL, frozenset({7}))
    assert (found["learned_rows"], found["rows_without_labels"]) == (4, 1)
    assert found["stop_labels"] == 1
    assert "stop_labels" not in describe_batch(batch, SPECIAL)


def test_prompts_beside_completions_are_no_rows_without_labels() -> None:
    ones = torch.ones(2, 3, dtype=torch.long)
    rollout = {
        f"{side}_{part}": ones for side in ("prompt", "completion") for part in ("ids", "mask")
    }
    found = describe_batch(rollout, SPECIAL)
    assert (found["learned_rows"], found["rows_without_labels"]) == (2, 0)


def test_prompts_among_the_labels_of_pairs_are_counted() -> None:
    ids = torch.tensor([[7, 8, 9, 4, 5], [7, 8, 6, 5, 0]])
    prompt = torch.tensor([[7, 8, 9], [0, 7, 8]])
    masked = torch.tensor([[-100, -100, -100, 4, 5], [-100, -100, 6, 5, -100]])
    batch = {"prompt_input_ids": prompt, "prompt_attention_mask": prompt.ne(0)}
    batch |= {"chosen_input_ids": ids, "rejected_input_ids": ids, "rejected_labels": masked}
    for labels, count in ((masked, 0), (ids, 3)):
        found = describe_batch(batch | {"chosen_labels": labels}, None)
        assert (found["prompt_tokens"], found.get("prompt_labels", 0)) == (6, count)


def test_no_transform_of_the_users_runs() -> None:
    """It may draw random numbers."""

    def transform(rows: Any) -> Any:
        raise AssertionError("the training's next rows would differ")

    rows = Dataset.from_dict({"messages": [[]], "input_ids": [[1]]}).with_transform(transform)
    assert told(tokenizer(), train_dataset=rows)["template_sets_bos"]
