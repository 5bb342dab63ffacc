"""Scripts written like public ones, through `canary exec`: two; `bench/strangers.py` runs all."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.strangers import EXPECTED, SCRIPTS, compare, misses, train


def test_every_script_has_its_expectations_and_its_faults() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == EXPECTED.keys()
    for script, expected in EXPECTED.items():
        text = (SCRIPTS / f"{script}.py").read_text()
        assert [name for name in expected["faults"] if f'"{name}"' not in text] == [], script


@pytest.mark.parametrize(
    ("script", "fault"),
    [("saves_itself", "prompt_unmasked"), ("lambda_loop", "scheduler_each_microbatch")],
)
@pytest.mark.train
@pytest.mark.slow
def test_unchanged_runs_are_not_red_and_a_fault_is_named(
    script: str, fault: str, tmp_path: Path
) -> None:
    first, second, faulty = (
        train(script, tmp_path / name, planted).run or ""
        for name, planted in (("first", ""), ("second", ""), ("fault", fault))
    )
    unchanged = compare(second, [first])
    assert unchanged.verdict in EXPECTED[script]["equal"]["verdicts"], unchanged.text
    seen = compare(faulty, [first, second])
    assert misses(seen, EXPECTED[script]["faults"][fault]) == [], seen.text
