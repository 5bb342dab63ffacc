"""Why PPO differs beside loss and sampling: other prompts, rewards, references, work."""

from __future__ import annotations

import pytest

from canary.record.types import RunRecord
from tests.unit.compare.diagnosis.test_ppo_diagnosis import top
from tests.unit.comparing import altered
from tests.unit.ppo_records import later, moved, other_completions, ppo


def other_prompt_ids(*, words: bool) -> RunRecord:
    """Each prompt has a token more; `words`: and other words."""
    whole = other_completions(later(ppo(1), 1), 1)
    for place, (micro,) in enumerate(ppo().exact["batches"]):
        rows = whole.exact["batches"][place][0]["rows"]
        ids = {**rows, "prompt_ids": [f"p{place}{row}" for row in range(8)]}
        changed = whole.exact["batches"][place][0] | {
            "rows": ids,
            "input_tokens": micro["input_tokens"] + 8,
            "shapes": {
                name: [shape[0], shape[1] + ("prompt" in name)]
                for name, shape in micro["shapes"].items()
            },
        }
        if words:
            changed["texts"] = {**micro["texts"], "prompt_ids": ids["prompt_ids"]}
        whole = altered(whole, "exact", "batches", place, 0, to=changed)
    return whole


def test_prompts_of_the_same_words_in_other_tokens_were_tokenized_otherwise() -> None:
    assert top(other_prompt_ids(words=False)).category == "tokenization"
    assert top(other_prompt_ids(words=True)).category == "data"


@pytest.mark.parametrize(
    ("rounded", "category"),
    [
        ({}, "adapter"),
        ({"reference": "bfloat16"}, "numerics"),
        ({"policy": "bfloat16", "reference": "bfloat16"}, "adapter"),
    ],
)
def test_a_reference_that_alone_is_rounded_is_a_matter_of_precision(
    rounded: dict[str, str], category: str
) -> None:
    whole = altered(later(ppo(1), 1), "exact", "model", "reference_sha256", to="f" * 64)
    whole = altered(
        moved(whole, "reference_logprobs", 1), "exact", "model", "rounded_to", to=rounded
    )
    assert top(whole).category == category
