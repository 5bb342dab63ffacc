"""A chain of cause and effect has one suspect, and suspects can cause what they are blamed for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from canary.compare.diagnosis.engine import FOLLOWS, heads
from canary.compare.diagnosis.row import Finding
from canary.compare.diagnosis.suspects import Evidence, Suspect
from canary.compare.heuristics import RegressionCategory as C
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.unit.comparing import plain, records
from tests.unit.diagnosing import LOSSES, TRAJECTORY, WORK, Change, changed, later, seen, sides

STEP_S = {"data": 0.0018, "forward": 0.03, "backward": 0.04, "optimizer": 0.006, "other": 0.003}

SHARES = ("gil_contention", "other_threads", "waiting", "run_delay")
QUIET: list[Change] = [
    *((("host", share), 0.0) for share in SHARES),
    (("ranks",), {"wait_s": {"mean": 0.001}}),
]
RATES = ((*TRAJECTORY, "learning_rates"), later([1e-3] * len(LOSSES), 2, 0.98))


def slower(phases_s: Mapping[str, float], *changes: Change, kind: str = "sft") -> Comparison:
    """Five runs a side, of which the current ones take longer in these phases."""
    before, after = (changed(side, *QUIET) for side in sides(kind))
    after = changed(after, *changes)
    step = {**STEP_S, **phases_s}
    return compare_to_baseline(
        [_timed(one, step) for one in records([sum(step.values())] * 5, 100, of=after)],
        [_timed(one, STEP_S) for one in records([sum(STEP_S.values())] * 5, of=before)],
    )


def _timed(record: RunRecord, phases_s: Mapping[str, float]) -> RunRecord:
    record.launches[-1].phases_steady = dict(phases_s)
    return record


def top_of(found: Comparison) -> Suspect:
    top = found.diagnosis.top_suspect
    assert top is not None
    return top


def told(suspect: Suspect) -> str:
    return "; ".join(item.message for item in suspect.evidence)


def test_a_pass_over_the_dataset_before_the_steps_does_not_explain_a_slow_collator() -> None:
    maps: list[Change] = [
        (("exact", "calls", "dataset_maps_unhashable"), 4),
        (("io", "tokenizer_calls"), 320),
    ]
    found = slower({"data": 0.0458}, *maps)
    assert {"tokenization", "dataloader"} <= {s.category for s in found.diagnosis.suspects}


OPERATORS = seen("work", operator_total=2 * WORK["operator_total"])
FILES = seen("calls", files_opened=70, bytes_written=50_000_000)
CHAINS: dict[str, tuple[str, dict[str, float], list[Change]]] = {
    "a collator that writes files": ("io", {"data": 0.05}, FILES),
    "operators of a collator": ("dataloader", {"data": 0.05}, OPERATORS),
    "operators of the model": ("kernel", {"backward": 0.08}, OPERATORS),
    "exchanges that bring operators": (
        "communication",
        {"backward": 0.08},
        [*seen("work", collectives=9), *OPERATORS],
    ),
    "tensors kept, and so a higher peak": (
        "memory",
        {"other": 0.02},
        [
            *seen("memory", live_tensors=[100 + 2 * step for step in range(12)]),
            (("perf", "max_mem_mb"), 2000.0),
        ],
    ),
    "a lock that is held, which slow Python shows most": (
        "host",
        {"data": 0.03},
        [(("host", "gil_contention"), 0.6)],
    ),
    "waiting ranks, in the phase that exchanges": (
        "communication",
        {"backward": 0.09},
        [(("ranks", "wait_s"), {"mean": 0.05})],
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_causes_of_one_chain_do_not_compete(name: str) -> None:
    category, phases_s, changes = CHAINS[name]
    found = slower(phases_s, *changes)
    assert found.verdict == "regression"
    top = top_of(found)
    assert top.category == category, found.diagnosis.summary
    assert top.confidence > 0.8
    assert [suspect.category for suspect in found.diagnosis.suspects] == [category]


def test_what_follows_goes_to_the_first_of_a_chain_with_its_evidence() -> None:
    def finding(category: C, sign: str) -> Finding:
        return Finding(category, 0.9, sign, (Evidence("signal", sign),), sign=sign)

    chain = [
        finding(C.DATALOADER, "data"),
        finding(C.COMMUNICATION, "ranks_wait"),
        finding(C.TOKENIZATION, "tokenizer_calls"),
        finding(C.HOST, "backward"),
    ]
    (left,) = heads(chain)
    assert left.category is C.TOKENIZATION
    assert {item.message for item in left.evidence} == {one.sign for one in chain}
    apart = [finding(C.IO, "files_written"), finding(C.KERNEL, "operators")]
    assert heads(apart) == apart


def test_no_chain_leads_back_to_its_cause() -> None:
    def behind(sign: str, seen: tuple[str, ...] = ()) -> None:
        assert sign not in seen, seen
        for effect in FOLLOWS.get(sign, ()):
            behind(effect, (*seen, sign))

    for sign in FOLLOWS:
        behind(sign)


DOUBLED: list[Change] = [
    (RATES[0], [2 * rate for rate in plain(sides()[1])["trajectory"]["learning_rates"]]),
    ((*TRAJECTORY, "losses"), later(LOSSES, 2)),
]
BUSY = {phase: 1.5 * seconds for phase, seconds in STEP_S.items()}
"""A machine that slows every phase alike."""


def test_a_doubled_learning_rate_is_named_before_the_step_time_of_a_busy_machine() -> None:
    found = slower(BUSY, *DOUBLED, (("config", "learning_rate"), 1e-3))
    assert found.verdict == "regression"
    assert found.check("step_time_median").status == "fail"
    assert found.check("trajectory").status == "changed"
    assert top_of(found).category == "optimizer", found.diagnosis.summary
    assert "unknown" in {s.category for s in found.diagnosis.suspects}, "of the step time"


def test_the_cause_of_what_is_worse_stands_before_that_of_what_needs_acceptance() -> None:
    found = slower({"data": 0.12}, DOUBLED[1])
    assert found.check("trajectory").status == "changed"
    assert found.check("step_time_median").status == "fail"
    first, second = found.diagnosis.suspects[:2]
    assert (first.category, second.category) == ("dataloader", "objective")


@pytest.mark.parametrize(
    ("key", "value", "phase", "category"),
    [
        ("dataloader_num_workers", 0, "data", "dataloader"),
        ("gradient_checkpointing", True, "backward", "kernel"),
        ("save_steps", 1, "checkpoint", "io"),
    ],
)
def test_a_setting_that_can_slow_the_phase_that_grew_is_its_suspect(
    key: str, value: Any, phase: str, category: str
) -> None:
    args = sides()[1].config.get("trainer_args") or {}
    change = (("config", "trainer_args"), {**args, key: value})
    top = top_of(slower({phase: 0.12}, change))
    assert top.category == category
    assert key in told(top)


def test_a_slower_step_that_nothing_explains_is_said_to_be_unknown_beside_what_is_explained() -> (
    None
):
    found = slower({name: 3 * seconds for name, seconds in STEP_S.items()}, RATES)
    assert found.verdict == "regression"
    assert [suspect.category for suspect in found.diagnosis.suspects] == ["optimizer", "unknown"]
    steps: Change = (("config", "max_steps"), 90)
    found = slower({name: 3 * seconds for name, seconds in STEP_S.items()}, steps, RATES)
    assert [suspect.category for suspect in found.diagnosis.suspects] == ["optimizer", "unknown"]
