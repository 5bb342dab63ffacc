"""Real incidents in scripts of users' own, watched in a clean and in a faulty version."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.faults.laboratory import AT_A_TIME, CAUGHT, told
from tests.integration.exec.user_scripts import PYTHON, sft_script, watched, write_data

pytestmark = [pytest.mark.train, pytest.mark.slow]

STEPS = 36


@dataclass(frozen=True)
class ScriptFault:
    """A change of the script, and what must be said of it."""

    id: str
    before: str
    """Code between the building of the trainer and `train()`."""
    stage: str | None
    """The first stage that differs; None where an invariant alone tells it."""
    telling: tuple[str, ...]
    """Checks that must fail."""
    clean: str = ""
    """The same place in the clean version."""


LOSS = """
original = trainer.compute_loss
def compute_loss(model, inputs, *args, **kwargs):
    {body}
trainer.compute_loss = compute_loss
"""

FILTER = "trainer.args.logging_nan_inf_filter = True\n"

FAULTS = [
    # huggingface/trl#3200: EOS is taken for padding, and nothing learns to stop.
    ScriptFault(
        "eos_masked",
        """
collate, eos = trainer.data_collator, trainer.processing_class.eos_token_id
def collator(rows):
    batch = collate(rows)
    batch["labels"][batch["input_ids"] == eos] = -100
    return batch
trainer.data_collator = collator
""",
        "batches",
        ("batches", "labels_contain_eos"),
    ),
    # huggingface/transformers#34191: the mean of the micro-batches' means.
    ScriptFault(
        "mean_of_means",
        LOSS.format(
            body='kwargs.pop("num_items_in_batch", None); '
            "return original(model, inputs, *args, **kwargs) / 2"
        ),
        "first_loss",
        ("first_loss",),
    ),
    # huggingface/transformers#24088: the schedule is stepped twice as fast.
    ScriptFault(
        "half_sched",
        """
make = trainer.create_scheduler
trainer.create_scheduler = lambda num_training_steps, optimizer=None: make(
    num_training_steps // 2, optimizer
)
""",
        "first_update",
        ("trajectory",),
    ),
    # unslothai/unsloth#3006: a NaN that the log filter of the user's own arguments hides.
    ScriptFault(
        "nan_row",
        FILTER
        + "seen = []\n"
        + LOSS.format(
            body="seen.append(1); loss = original(model, inputs, *args, **kwargs); "
            'return loss * (float("nan") if len(seen) == 9 else 1)'
        ),
        "trajectory",
        ("nan_steps",),
        clean=FILTER,
    ),
    # huggingface/transformers#6999: the loss is read by Python in each micro-batch.
    ScriptFault(
        "sync_item",
        LOSS.format(
            body="loss = original(model, inputs, *args, **kwargs); loss.item(); return loss"
        ),
        "work",
        ("host_reads",),
    ),
    # huggingface/trl#6206: a function that cannot be hashed is mapped anew in each run.
    ScriptFault(
        "retokenize",
        "counter = (number for number in range(10**9))\n"
        "trainer.train_dataset = trainer.train_dataset.map(lambda row: (next(counter), row)[1])\n",
        "calls",
        ("dataset_maps",),
        clean="trainer.train_dataset = trainer.train_dataset.map(lambda row: row)\n",
    ),
]


class Scripts:
    """Runs each version once, two at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self._running: dict[str, Future[RunRecord]] = {}

    def begin(self) -> None:
        """Starts all of them, the clean ones first."""
        for fault in FAULTS:
            self.record(fault.clean)
        for fault in FAULTS:
            self.record(fault.before)

    def record(self, before: str) -> Future[RunRecord]:
        """The record to come of one version."""
        if before not in self._running:
            self._running[before] = self._pool.submit(self._run, len(self._running), before)
        return self._running[before]

    def _run(self, number: int, before: str) -> RunRecord:
        folder = self._root / str(number)
        write_data(folder)
        sft_script(folder, steps=STEPS, before=before)
        done = watched(folder, PYTHON, "train.py", options=("--name", "own"))
        assert done.code == 0, done.err
        return done.record()

    def close(self) -> None:
        """Starts nothing more, and waits for what runs."""
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripts]:
    found = Scripts(tmp_path_factory.mktemp("scripts"))
    found.begin()
    yield found
    found.close()


def compared(scripts: Scripts, fault: ScriptFault) -> Comparison:
    """The faulty version against its clean one; one launch a side says nothing of time."""
    clean, faulty = (scripts.record(code).result() for code in (fault.clean, fault.before))
    return compare_to_baseline(faulty, clean, gates=())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_of_a_script_is_caught_at_its_stage(fault: ScriptFault, scripts: Scripts) -> None:
    found = compared(scripts, fault)
    assert found.verdict in CAUGHT, told(found)
    first = found.first_difference
    assert (first.stage if first else None) == fault.stage, told(found)
    for name in fault.telling:
        assert found.check(name).failed, told(found)
