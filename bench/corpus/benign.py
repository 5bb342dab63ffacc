"""Harmless changes: no check may fail on them."""

from __future__ import annotations

from bench.corpus.row import Row
from tests.faults.laboratory import Benign
from tests.faults.test_benign import BENIGN

INCIDENTS = {
    "again": "The same commit twice.",
    "cosmetic": "Another folder, name and logging frequency.",
    "key_order": "The config's keys in another order, with comments.",
    "threads": "Two threads instead of one.",
    "left_padding": "Padding on the left, with positions and masks that make it equivalent.",
    "eager_attention": "Another attention kernel.",
}


def _taken(benign: Benign) -> Row:
    incident = next(words for name, words in INCIDENTS.items() if name in benign.id)
    return Row(
        benign.id,
        incident,
        benign.canary,
        None,
        plant=benign.plant,
        before=benign.before,
        config=benign.config,
        yaml=benign.yaml,
        timed=benign.timed,
    )


COMMENT = Row("comment", "A comment in the script.", "own_sft", None, plant="# Nothing but words.")

ROWS = (*map(_taken, BENIGN), COMMENT)
