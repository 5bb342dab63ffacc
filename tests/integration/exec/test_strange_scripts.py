"""Scripts written like public ones, through `canary exec`: a few; `bench/strangers.py` runs all."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.strangers import EXPECTED, SCRIPTS, compare, misses, train, unlike


def test_every_script_has_its_expectations_and_its_faults() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == EXPECTED.keys()
    for script, expected in EXPECTED.items():
        text = (SCRIPTS / f"{script}.py").read_text()
        by_name = [name for name, fault in expected["faults"].items() if "arguments" not in fault]
        assert [name for name in by_name if f'"{name}"' not in text] == [], script


@pytest.mark.parametrize("script", ["keeps_best", "lambda_loop", "truncates_log", "fails_after"])
@pytest.mark.train
@pytest.mark.slow
def test_exec_leaves_the_files_and_the_exit_code_of_the_command(
    script: str, tmp_path: Path
) -> None:
    alone = train(script, tmp_path / "bare", watched=False)
    seen = train(script, tmp_path / "exec")
    assert unlike(alone, seen) == []
    assert (alone.code, seen.code) == (
        EXPECTED[script]["exit_code"],
        EXPECTED[script]["exec_exit_code"],
    )


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("saves_itself", "prompt_unmasked"),
        ("accelerate_plain", "clip_lost"),
    ],
)
@pytest.mark.train
@pytest.mark.slow
def test_unchanged_runs_are_not_red_and_a_fault_is_named(
    script: str, fault: str, tmp_path: Path
) -> None:
    runs = [train(script, tmp_path / name).run for name in ("first", "second")]
    first, second = (run for run in runs if run)
    unchanged = compare(second, [first])
    assert unchanged.verdict in EXPECTED[script]["equal"]["verdicts"], unchanged.text
    faulty = train(script, tmp_path / "fault", fault).run
    assert faulty
    seen = compare(faulty, [first, second])
    assert misses(seen, EXPECTED[script]["faults"][fault]) == [], seen.text
