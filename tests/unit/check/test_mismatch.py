"""The mismatch that a framework logs: one beyond rounding, or one that grows, is broken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from canary.check.mismatch import judged
from canary.check.run import CheckRequest, run_check
from canary.config.load import load_config
from canary.record.curves import Curve, Source
from canary.record.types import RunRecord
from canary.runner.display.progress import listener_for
from tests.unit.comparing import example

STEADY = [0.010, 0.012, 0.009, 0.011, 0.010, 0.013]
ISSUE_5312 = [0.010, 0.010, 0.201, 0.230, 0.250, 0.240]


def imported(
    values: list[float], name: str = "mismatch", source: str = "x", **others: list[float]
) -> RunRecord:
    curves = {
        one: Curve(steps=list(range(1, len(points) + 1)), values=points)
        for one, points in {name: values, **others}.items()
    }
    return example("grpo").model_copy(
        update={"curves": curves, "source": Source(format="jsonl", names={name: source})}
    )


@pytest.mark.parametrize(
    ("values", "name", "source", "status"),
    [
        (STEADY, "mismatch", "x", "holds"),
        (ISSUE_5312, "mismatch", "x", "broken"),
        ([0.010, 0.201, *STEADY], "mismatch", "x", "holds"),
        ([float("nan"), 0.1], "mismatch", "x", "broken"),
        ([0.01, float("nan"), float("nan")], "mismatch", "x", "broken"),
        ([1.01, 1.02, 1.01], "mismatch", "train/token_mult_prob_error", "holds"),
        ([1.01, 1.3, 1.4], "mismatch", "train/token_mult_prob_error", "broken"),
        ([1e-4, 2e-4, 1e-4], "mismatch_kl", "x", "holds"),
    ],
)
def test_a_logged_mismatch(values: list[float], name: str, source: str, status: str) -> None:
    found = judged(imported(values, name, source))
    assert found is not None
    assert found["status"] == status, found


def test_trl_in_a_probe() -> None:
    record = example("grpo")
    logged = {"sampling/sampling_logp_difference/mean": ISSUE_5312}
    exact = {**record.exact, "trajectory": {"rl": logged}}
    found = judged(record.model_copy(update={"exact": exact}))
    assert found is not None
    assert found["status"] == "broken"


def test_a_framework_that_samples_late_on_purpose_is_not_judged() -> None:
    found = judged(imported(ISSUE_5312, staleness=[0.0, 1.0, 1.0]))
    assert found is not None
    assert found["status"] == "not applicable"


IMPORT = """name: mine
command: [python3, write.py]
import: {source: log.jsonl, preset: trl}
"""
WRITE = """import json
with open("log.jsonl", "w") as file:
    for step, value in enumerate(VALUES, start=1):
        row = {"step": step, "loss": 0.1, "reward": 0.5, "NAME": value}
        file.write(json.dumps(row) + "\\n")
"""


@pytest.mark.parametrize(
    ("values", "name", "status", "code"),
    [
        (STEADY, "sampling/sampling_logp_difference/mean", "holds", 0),
        (ISSUE_5312, "sampling/sampling_logp_difference/mean", "broken", 1),
        (STEADY, "entropy", "undecided", 3),
    ],
)
def test_an_imported_run_is_checked_by_its_own_metric(
    values: list[float],
    name: str,
    status: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("canary.yaml").write_text(IMPORT)
    Path("write.py").write_text(WRITE.replace("VALUES", repr(values)).replace("NAME", name))
    with Path(os.devnull).open("w") as quiet:
        made = run_check(
            CheckRequest(load_config("canary.yaml")), listener_for(quiet, True), lambda _: None
        )
    found = {one["relation"]: one for one in made.outcomes}
    assert found["sampler_logprobs"]["status"] == status, found["sampler_logprobs"]
    assert {one["status"] for one in found.values()} == {status, "not applicable"}
    assert made.exit_code == code
    assert made.launches == 1
