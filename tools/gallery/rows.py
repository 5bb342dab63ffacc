"""The changes that the gallery trains: rows of the fault corpora, and two of its own."""

from __future__ import annotations

from bench.corpus.row import Row
from bench.faults import CORPORA
from tests.faults import test_ranks

EOS_OF_ANSWERS = Row(
    "eos_of_answers",
    "Padding is EOS, EOS leaves the trained tokens, and the model never stops "
    "(huggingface/trl#3200, huggingface/transformers#23530).",
    "dpo",
    "data",
    plant="""
original, eos = trainer.data_collator, trainer.processing_class.eos_token_id
def collate(rows):
    batch = original(rows)
    batch["completion_mask"][batch["input_ids"] == eos] = 0
    return batch
trainer.data_collator = collate
""",
)
"""What `canary demo` plants."""

LABELS_OF_ONE_RANK = Row(
    "labels_of_one_rank",
    "Half of the labels are lost, on one rank alone.",
    "own_ranks",
    "data",
    plant=test_ranks.LOST_LABELS,
)

OWN = (EOS_OF_ANSWERS, LABELS_OF_ONE_RANK)


def row_of(id: str) -> Row:
    """Return the row of that id; KeyError without one."""
    rows = {row.id: row for corpus in CORPORA.values() for row in corpus}
    return (rows | {row.id: row for row in OWN})[id]
