"""Rows with two workers against rows without: of a list of rows, and of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from canary.relations import workers


def recorded(steps: Sequence[Sequence[str]], iterable: bool = False) -> dict[str, Any]:
    """A launch that saw these rows."""
    return {
        "batches": [[{"rows": {"input_ids": [*step]}}] for step in steps],
        "trajectory": {"losses": [float(len({*step})) for step in steps]},
        "varied": {"iterable": iterable},
    }


ALONE = [[f"row{4 * step + one}" for one in range(4)] for step in range(6)]
HALVES = [
    [f"row{24 * (step % 2) + 4 * (step // 2) + one}" for one in range(4)] for step in range(6)
]
"""Two workers that read half of the stream each."""
TWICE = [[f"row{4 * (step // 2) + one}" for one in range(4)] for step in range(6)]
"""Two workers that read all of it."""


def judged(together: Sequence[Sequence[str]], *, stream: bool, alone: Any = None) -> Any:
    """Judge rows with two workers."""
    none = recorded(ALONE if alone is None else alone, stream)
    return workers.judge({}, none, recorded(together, stream))


def test_a_list_of_rows_keeps_its_order() -> None:
    assert judged(ALONE, stream=False)["status"] == "holds"
    assert judged(HALVES, stream=False)["status"] == "broken"


def test_workers_that_keep_an_old_state_are_broken() -> None:
    """Persistent workers do not see what the main process changes; new ones do."""
    base = recorded([*ALONE[:3], *ALONE[:3]]) | {"varied": {"workers": 2}}
    found = workers.judge(base, recorded(ALONE), recorded(ALONE))
    assert (found["status"], found["place"]) == ("broken", "update 4")
    assert "with the loop's own workers" in found["message"]
    base["varied"] = {"workers": 0}
    assert workers.judge(base, recorded(ALONE), recorded(ALONE))["status"] == "holds"


def test_a_stream_may_come_in_another_order_and_with_other_losses() -> None:
    found = judged(HALVES, stream=True)
    assert found["status"] == "holds", found
    assert "24 different rows of 24" in found["message"]


def test_a_stream_that_every_worker_reads_is_broken() -> None:
    found = judged(TWICE, stream=True)
    assert found["status"] == "broken"
    assert found["place"] == "update 2"
    assert found["message"] == (
        "of 24 rows, 12 are seen again with two workers, and 0 of 24 with none"
    )


def test_rows_that_the_data_holds_twice_are_no_fault() -> None:
    common = [[*step[:3], "common"] for step in ALONE]
    assert judged(common, stream=True, alone=common)["status"] == "holds"
    once = [[*ALONE[0]], *HALVES[1:]]
    once[5] = [*once[5][:3], "row0"]
    assert judged(once, stream=True)["status"] == "holds", "one row of 24 may be in the data twice"


def test_data_that_holds_many_rows_twice_is_undecided() -> None:
    often = [[*ALONE[0]], [*ALONE[0]], *ALONE[2:]]
    together = [[*ALONE[0]], [*ALONE[0]], [*ALONE[2]], [*ALONE[2]], *ALONE[4:]]
    found = judged(together, stream=True, alone=often)
    assert found["status"] == "undecided", found


def test_rows_that_were_not_recorded_are_undecided() -> None:
    assert judged([[]] * 6, stream=True)["status"] == "undecided"
