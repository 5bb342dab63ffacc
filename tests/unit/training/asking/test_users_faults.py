"""A mask of the wrong side hides text."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.unit.training.asking.chats import (
    IGNORE,
    Chat,
    Plain,
    completions,
    plain,
    tokenizer,
)

Row = dict[str, Any]


def left_padded(rows: list[Row], *, right_mask: bool) -> Row:
    """Pad on the left; the mask may be that of padding on the right."""
    ids = [row["input_ids"] for row in rows]
    width = max(map(len, ids))
    filled = [[tokenizer().pad_token_id] * (width - len(one)) + one for one in ids]
    labels = [[IGNORE] * (width - len(one)) + one for one in ids]
    mask = [[0] * (width - len(one)) + [1] * len(one) for one in ids]
    if right_mask:
        mask = [one[::-1] for one in mask]
    return {
        name: torch.tensor(one) for name, one in zip(NAMES, (filled, mask, labels), strict=True)
    }


NAMES = ("input_ids", "attention_mask", "labels")


@pytest.mark.parametrize(("right_mask", "status"), [(True, "broken"), (False, "holds")])
def test_a_mask_of_the_wrong_side_is_broken(right_mask: bool, status: str) -> None:
    rows = plain(completions())
    rows[0]["input_ids"] = rows[0]["input_ids"][:-1] + rows[1]["input_ids"]
    chat = Chat(
        Plain(rows),
        lambda rows: left_padded(rows, right_mask=right_mask),
        batch_size=4,
    )
    found = chat.run()["hidden_text"]
    assert found["status"] == status, found
    if right_mask:
        assert "are hidden by the attention mask" in found["words"]
