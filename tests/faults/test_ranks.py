"""Real incidents of several ranks, in a script that runs on two."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.faults.laboratory import CAUGHT, told
from tests.integration.exec.user_scripts import watched
from tests.integration.run.rank_scripts import rank_script

pytestmark = [pytest.mark.train, pytest.mark.slow]

# huggingface/accelerate#2790: gradients are synchronised on every micro-batch.
SYNC_MICRO = "trainer.accelerator.no_sync = lambda model=None: contextlib.nullcontext()"

# Half of the labels are lost, on one rank alone.
LOST_LABELS = """
collate = trainer.data_collator
if rank == 1:
    trainer.data_collator = lambda rows: collate(
        [{**row, "labels": [-100] * 8 + row["labels"][8:]} for row in rows]
    )
"""


def trained(folder: Path, before: str = "") -> RunRecord:
    command = rank_script(folder, steps=18, before=before)
    ended = watched(folder, *command, options=("--name", "ranks"))
    assert ended.code == 0, ended.err
    return ended.record()


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return trained(tmp_path_factory.mktemp("clean"))


def test_gradients_synchronised_on_every_micro_batch_are_caught_as_collectives(
    clean: RunRecord, tmp_path: Path
) -> None:
    changed = trained(tmp_path, SYNC_MICRO)
    found = compare_to_baseline(changed, clean, gates=())
    said = told(found)
    assert found.verdict == "regression", said
    assert found.first_difference is not None, said
    first = found.first_difference
    assert (first.stage, first.signal) == ("work", "collectives"), said
    check = found.check("collectives")
    assert check.failed
    # Four micro-batches a step: the all-reduces of three more, and their buffers.
    reduced = [
        record.exact["work"]["operators"]["c10d.allreduce_.default"] for record in (clean, changed)
    ]
    assert reduced[1] == 4 * reduced[0]
    assert changed.ranks["collectives_per_step"] > clean.ranks["collectives_per_step"]


def test_labels_lost_on_the_second_rank_alone_are_caught_as_batches(
    clean: RunRecord, tmp_path: Path
) -> None:
    found = compare_to_baseline(trained(tmp_path, LOST_LABELS), clean, gates=())
    assert found.verdict in CAUGHT, told(found)
    assert found.first_difference is not None
    assert found.first_difference.stage == "batches", told(found)


def test_the_same_script_twice_on_two_ranks_is_bit_equal_and_silent(
    clean: RunRecord, tmp_path: Path
) -> None:
    again = trained(tmp_path)
    assert again.stability.loss_values == clean.stability.loss_values
    for part in ("batches", "trajectory", "first_gradient", "frozen", "work", "ranks"):
        assert again.exact[part] == clean.exact[part], part
    found = compare_to_baseline(again, clean, gates=())
    assert not found.failed_checks, told(found)
    assert not found.differences, told(found)
