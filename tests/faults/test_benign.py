"""Changes that change nothing: no check may call one a regression."""

from __future__ import annotations

import pytest
import yaml

from tests.faults.laboratory import CANARIES, Benign, Laboratory, assert_silent

pytestmark = [pytest.mark.train, pytest.mark.slow]


def in_another_order(values: dict[str, object]) -> str:
    """The same config with its keys the other way round, and comments between them."""
    lines = yaml.safe_dump(dict(sorted(values.items(), reverse=True)), sort_keys=False)
    return f"# another order\n{lines}# nothing else\n"


COSMETIC = {
    "name": "another-name",
    "description": "another description",
    "trainer_args": {"logging_steps": 1, "run_name": "another run"},
}

LEFT_PADDING = """
import trl.trainer.sft_trainer as sft
original = sft.pad
def pad(*args, **settings):
    return original(*args, **settings | {"padding_side": "left"})
sft.pad = pad
"""

BENIGN = [
    Benign("sft_again"),
    Benign("dpo_again", "dpo"),
    Benign("grpo_again", "grpo"),
    # Folder, name, run name, logging frequency.
    Benign("sft_cosmetic", config=COSMETIC),
    Benign("dpo_cosmetic", "dpo", config=COSMETIC),
    Benign("grpo_cosmetic", "grpo", config=COSMETIC),
    Benign("key_order", yaml=in_another_order(CANARIES["sft"])),
    # Whether two threads are faster is the machine's matter; what they compute is not.
    Benign("threads", config={"threads": 2}, timed=False),
    # The batches differ, and what is learned from them does not.
    Benign("left_padding", before=LEFT_PADDING, may_warn=("batches",)),
    # Other operators, the same mathematics.
    Benign(
        "eager_attention",
        config={"attn_implementation": "eager"},
        may_warn=("operators", "flops", "host_reads"),
    ),
    *(
        Benign(
            f"eager_attention_{trainer}",
            trainer,
            config={"attn_implementation": "eager"},
            may_warn=("operators", "flops", "host_reads"),
        )
        for trainer in ("reward", "kto", "rloo")
    ),
]


BENCH_ALONE = {"dpo_again", "grpo_again", "eager_attention_reward", "eager_attention_kto"}
"""Rows whose like is tested here: `python -m bench.faults` tries these too."""


@pytest.mark.parametrize(
    "benign", [b for b in BENIGN if b.id not in BENCH_ALONE], ids=lambda benign: benign.id
)
def test_a_benign_change_is_not_called_one(benign: Benign, laboratory: Laboratory) -> None:
    assert_silent(benign, laboratory.compare(benign))


@pytest.mark.parametrize(
    "benign", [b for b in BENIGN if b.id == "left_padding"], ids=lambda benign: benign.id
)
def test_padding_on_the_other_side_changes_the_batches_and_no_count(
    benign: Benign, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(benign)
    before, after = (
        [
            (m["sha256"], m["label_tokens"], m["input_tokens"], m["shapes"])
            for s in side.exact["batches"]
            for m in s
        ]
        for side in (compared.clean, compared.changed)
    )
    assert [rest for _, *rest in before] == [rest for _, *rest in after]
    assert [sha for sha, *_ in before] != [sha for sha, *_ in after]
