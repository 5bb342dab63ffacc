"""Short texts of links: an issue by its number, a paper by its id, anything else by its place."""

from __future__ import annotations

import pytest

from canary.check.page import short_link
from canary.relations import RELATIONS


@pytest.mark.parametrize(
    ("link", "text"),
    [
        ("https://github.com/huggingface/transformers/issues/24725", "transformers#24725"),
        ("https://github.com/huggingface/trl/pull/3526", "trl#3526"),
        ("https://github.com/huggingface/trl/tree/main/tests/invariant", "trl"),
        ("https://github.com/huggingface/trl/blob/v1.9.0/trl/trainer/utils.py#L182", "trl"),
        ("https://arxiv.org/abs/2506.09280", "arXiv:2506.09280"),
        ("https://docs.pytorch.org/docs/stable/data.html#x", "docs.pytorch.org"),
        ("javascript:alert(1)", "javascript:alert(1)"),
        ("a note of ours", "a note of ours"),
    ],
)
def test_a_link_is_named_as_people_do(link: str, text: str) -> None:
    assert short_link(link) == text


def test_each_source_of_a_relation_has_a_short_text() -> None:
    assert max(len(short_link(one.source)) for one in RELATIONS.values()) < 30
