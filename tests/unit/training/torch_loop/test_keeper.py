"""What a loop that knows nothing of the canary did not show is null with its reason."""

from __future__ import annotations

import pytest

from canary.training.torch_loop.keeper import UNSEEN, why_unseen

EVERYTHING = set(UNSEEN)


def test_a_loop_that_shows_everything_lacks_nothing() -> None:
    assert why_unseen(EVERYTHING) == {}


@pytest.mark.parametrize(
    ("lacks", "key", "words"),
    [
        ({"losses"}, "stability.loss_values", "no single number"),
        ({"samples"}, "perf.samples_per_sec", "no batch"),
        ({"labels"}, "tokens.label_tokens", "no label per token"),
        ({"labels", "tokens"}, "tokens", "no batch of token ids"),
    ],
)
def test_what_a_loop_does_not_show_has_one_reason(lacks: set[str], key: str, words: str) -> None:
    ((found, why),) = why_unseen(EVERYTHING - lacks).items()
    assert found == key
    assert words in why
