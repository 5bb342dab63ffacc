"""Faults of data and tokenization in SFT: real incidents, caught before or at step 1."""

from __future__ import annotations

import pytest

from canary.record.exact import Micro, TokenCount
from tests.faults.laboratory import Fault, Laboratory, assert_caught

pytestmark = [pytest.mark.train, pytest.mark.slow]

# huggingface/trl#3200, huggingface/transformers#23530: pad is EOS, and the collator that masks
# padding out of the labels masks every EOS with it.
EOS_MASKED = Fault(
    "eos_masked",
    plant="""
original, eos = trainer.data_collator, trainer.processing_class.eos_token_id
def collate(rows):
    batch = original(rows)
    batch["labels"][batch["labels"] == eos] = -100
    return batch
trainer.data_collator = collate
""",
    cause="data",
    stage="batches",
    signals=("label_tokens",),
    telling=("batches", "first_loss", "labels_contain_eos"),
)

# The class of huggingface/trl#6433: one more space before each answer.
TEMPLATE_SPACE = Fault(
    "tpl_space",
    before="""
from transformers import AutoTokenizer
original = AutoTokenizer.from_pretrained
def from_pretrained(*args, **kwargs):
    tokenizer = original(*args, **kwargs)
    old = "{{- message['content'] + eos_token }}"
    assert old in tokenizer.chat_template
    new = "{{- ' ' + message['content'] + eos_token }}"
    tokenizer.chat_template = tokenizer.chat_template.replace(old, new)
    return tokenizer
AutoTokenizer.from_pretrained = from_pretrained
""",
    cause="tokenization",
    stage="data",
    signals=("tokenizer.chat_template_sha256",),
    telling=("data", "batches", "first_loss"),
)

# huggingface/trl#1185: the plain collator of language models trains on the prompts too.
PROMPT_LOSS = Fault(
    "prompt_loss",
    plant="""
original = trainer.data_collator
def collate(rows):
    batch = original(rows)
    batch["labels"] = batch["input_ids"].clone()
    batch["labels"][batch["attention_mask"] == 0] = -100
    return batch
trainer.data_collator = collate
""",
    cause="data",
    stage="batches",
    signals=("label_tokens",),
    telling=("batches", "first_loss", "first_gradient"),
)

# huggingface/trl#5305: another default of the truncation length.
MAX_LENGTH = Fault(
    "maxlen",
    before="""
import trl
original = trl.SFTConfig.__post_init__
def post_init(self):
    original(self)
    self.max_length = 40
trl.SFTConfig.__post_init__ = post_init
""",
    cause="data",
    stage="data",
    signals=("dataset_sha256",),
    telling=("data", "batches", "first_loss"),
)

# The same, said in the config: a person has to accept it.
MAX_LENGTH_CONFIG = Fault(
    "maxlen_config",
    config={"max_length": 40},
    cause="data",
    stage="config",
    signals=("max_length",),
    telling=("data", "batches", "first_loss"),
)

# huggingface/trl#5076: packing that cuts documents at the border of a sequence.
PACKED_WRAPPED = Fault(
    "pack_wrapped",
    "sft_packed",
    before="""
import trl.trainer.sft_trainer as sft
original = sft.pack_dataset
def pack_dataset(dataset, seq_length, strategy="bfd", map_kwargs=None):
    return original(dataset, seq_length, "wrapped", map_kwargs)
sft.pack_dataset = pack_dataset
""",
    cause="data",
    stage="data",
    signals=("dataset_sha256",),
    telling=("data", "batches", "first_loss"),
)

FAULTS = [
    EOS_MASKED,
    TEMPLATE_SPACE,
    PROMPT_LOSS,
    MAX_LENGTH,
    MAX_LENGTH_CONFIG,
    PACKED_WRAPPED,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_of_the_data_is_caught_where_it_enters(
    fault: Fault, laboratory: Laboratory
) -> None:
    assert_caught(fault, laboratory.compare(fault))


def total(batches: list[list[Micro]], name: TokenCount) -> int:
    """A count over all micro-batches of a look."""
    return sum(micro[name] for step in batches for micro in step)


@pytest.mark.parametrize("fault", [EOS_MASKED], ids=lambda fault: fault.id)
def test_masked_eos_takes_one_label_from_each_sequence(
    fault: Fault, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(fault)
    before, after = (side.exact["batches"] for side in (compared.clean, compared.changed))
    assert total(before, "eos_labels") == total(before, "sequences") == 12 * 2 * 4
    assert total(after, "eos_labels") == 0
    assert total(before, "label_tokens") - total(after, "label_tokens") == total(
        before, "eos_labels"
    )
