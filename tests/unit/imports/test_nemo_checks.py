"""Checks of NeMo-RL as gates: the same answers as their functions, and nothing is run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from canary.compare.stats import compare_to_baseline
from canary.config.metric_gates import gates_in
from canary.config.source import parse
from canary.errors import EXIT_USAGE, ConfigError
from canary.imports.nemo_checks import LARGEST, MOST_CHECKS, as_yaml, read_checks
from canary.record.curves import Curve
from tests.unit.comparing import record
from tests.unit.imports.broken_inputs import Run
from tests.unit.imports.running import run as run

Series = dict[int, float]

SCRIPT = """#!/bin/bash
# uv run tests/check_metrics.py $JSON_METRICS 'max(data["commented"]) < 1'
MAX_STEPS=450
NUM_RUNS=$(( (MAX_STEPS + 9) / 10 ))
uv run examples/run_grpo.py grpo.max_num_steps=$MAX_STEPS $@ 2>&1 | tee $RUN_LOG
if [[ $(jq 'x' $JSON_METRICS) -ge $MAX_STEPS ]]; then
    uv run tests/check_metrics.py $JSON_METRICS \\
        'median(data["train/token_mult_prob_error"]) < 1.1' \\
        "data['train/reward']['$MAX_STEPS'] > 0.5" \\
        'mean(data["timing/train/total_step_time"], -6, -1) < 30' \\
        'mean(data["train/loss"], ignore_top_p=0.05) < 1.05' \\
        "len(data[\\"train/loss\\"]) == ${expected}"
    rm -rf "$CKPT_DIR"
fi
"""


def test_a_script_is_read_with_the_lines_of_what_is_not() -> None:
    found = read_checks(SCRIPT)
    assert found.read == 3
    assert [(one.line, one.reason) for one in found.unread] == [
        (11, "mean with ignore_top_p is not read"),
        (12, "the value of the shell variable expected is not known"),
    ]
    at = found.gates[1]
    assert (at.name, at.statistic, at.step, at.worse) == ("train/reward", "at", 450, "lower")


def test_a_variable_can_be_given() -> None:
    found = read_checks(SCRIPT, {"expected": "2"})
    assert [one.line for one in found.unread] == [11]
    assert found.gates[-1].limit == 2.0


def test_a_variable_that_the_script_changes_is_not_known() -> None:
    text = "MAX=1\nMAX=2\ncheck_metrics.py $J \"max(data['x']) < $MAX\"\n"
    assert "MAX" in read_checks(text).unread[0].reason


def test_a_list_without_the_program_has_a_check_on_each_line() -> None:
    found = read_checks('# mine\nmax(data["x"]) < 2\n\n"3" in data["x"]\n')
    assert found.read == 2
    assert not found.unread


FORMS = [
    'median(data["x"]) < 1.1',
    'data["x"]["4"] < 1.1',
    'data["x"]["4"] == 1.0',
    'mean(data["x"], 2) < 1.25',
    'mean(data["x"], -6, -1) < 1.5',
    'mean(data["x"], 2, 5) >= 0.5',
    'mean(data["x"], -3) > 0.5',
    'mean(data["x"], range_end=-2) <= 1.5',
    'median(data["x"], -4, -1) <= 1.0',
    'mean(data["x"], 2, 0) > 0.10',
    'mean(data["x"]) < 2 * 0.5',
    'max(data["x"]) < 2.0',
    'min(data["x"]) > 0.5',
    '0.5 < min(data["x"])',
    '0.25 < mean(data["x"]) <= 1.75',
    'ratio_above(data["x"], 1.0) < 0.5',
    'len(data["x"]) == 4',
    'len(data["x"]) >= 3',
    'abs(median(data["x"])) < 1.5',
    '"3" in data["x"]',
    'max(data["x"]) < 2.0 and min(data["x"]) > 0.5',
    'mean(data["x"], -5, -1) < 0.6 * data["x"]["1"]',
    'data["x"]["4"] < 0.5 * data["x"]["1"]',
    '(data["x"]["1"] - mean(data["x"], -6, -1)) / data["x"]["1"] > 0.20',
]


def selected(series: Series, start: int = 1, end: int = 0) -> list[float]:
    """The values whose step is in their half-open range; negative steps count from the last."""
    last = max(series)
    start = start + last + 1 if start < 0 else start
    end = end + last + 1 if end <= 0 else end
    found = [value for step, value in series.items() if start <= step < end]
    if not found:
        raise ValueError("no data point")
    return found


def theirs(expression: str, series: Series) -> bool:
    """Their answer, from the description of their functions: an error or a missing key fails."""
    names: dict[str, Callable[..., Any]] = {
        "mean": lambda of, range_start=1, range_end=0: statistics.mean(
            selected(of, range_start, range_end)
        ),
        "median": lambda of, range_start=1, range_end=0: statistics.median(
            selected(of, range_start, range_end)
        ),
        "max": lambda of: max(of.values()),
        "min": lambda of: min(of.values()),
        "ratio_above": lambda of, t: sum(v >= t for v in of.values()) / len(of),
        "len": len,
        "abs": abs,
    }

    class Keyed(dict[int, float]):
        def __getitem__(self, step: object) -> float:
            return dict.__getitem__(self, int(str(step)))

        def __contains__(self, step: object) -> bool:
            return dict.__contains__(self, int(str(step)))

    try:
        # A test may run its own constants.
        return bool(eval(expression, {"__builtins__": {}}, {"data": {"x": Keyed(series)}, **names}))
    except (KeyError, ValueError, ZeroDivisionError):
        return False


def ours(expression: str, series: Series) -> bool:
    """Whether all gates of an expression pass."""
    found = read_checks(expression)
    assert not found.unread, found.unread
    curve = Curve(steps=sorted(series), values=[series[step] for step in sorted(series)])
    run = record(1).model_copy(update={"curves": {"x": curve}})
    checks = compare_to_baseline(run, [], metrics=found.gates).checks
    return all(check.status == "pass" for check in checks if check.name.startswith("metrics."))


VALUES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, -1.0])
STEPS = st.lists(st.integers(0, 12), min_size=1, max_size=8, unique=True)
SERIES = STEPS.flatmap(
    lambda steps: st.lists(VALUES, min_size=len(steps), max_size=len(steps)).map(
        lambda values: dict(zip(sorted(steps), values, strict=True))
    )
)


@pytest.mark.parametrize("expression", FORMS)
@settings(max_examples=60, deadline=None)
@given(series=SERIES)
@example(series={0: 9.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0})
@example(series={51: 1.0, 52: 1.0, 53: 2.0, 54: 1.0, 55: 1.0, 56: 1.0, 57: 9.0})
def test_a_gate_answers_as_their_function_does(expression: str, series: Series) -> None:
    of_start = "* data" in expression or "/ data" in expression
    if of_start and series.get(1, 1.0) <= 0:
        # Ours refuses a start that is not above 0; theirs then compares with a turned sign.
        assert not ours(expression, series)
        return
    assert ours(expression, series) == theirs(expression, series)


@pytest.mark.parametrize("expression", ['max(data["x"]) < 2', 'ratio_above(data["x"], 1) < 0.6'])
def test_a_value_that_is_not_finite_never_passes_although_theirs_can(expression: str) -> None:
    series = {1: 1.0, 2: math.nan}
    assert theirs(expression, series)
    assert not ours(expression, series)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("__import__('os').system('touch /tmp/owned')", "not a comparison"),
        ("__import__('os').system('touch /tmp/owned') == 0", "it calls something"),
        ("data.__class__ == 1", "something else than data"),
        ("mean(data['x'], __import__('os').getpid()) < 1", "arguments"),
        ("mean(open('/etc/passwd')) < 1", "something else than data"),
        ("max(data['x']) != 1", "operator"),
        ("max(data['x']) < 1 or True", "not a comparison"),
        ("max(data['x']) < max(data['y'])", "limit"),
        ("mean(data['x'], 1.5) < 2", "whole number"),
        ("max(data['x'])", "not a comparison"),
        ("max(data['x'] < 1", "not a Python expression"),
        ("data['x'][3] < 1", "not text"),
        ("data['x']['last'] < 1", "not a step"),
        ("mean(data['x'], *[1]) < 1", "arguments"),
        ("max(data['x']) < 9**9**9**9", "limit"),
        ("max(data['x']) < 1e999", "limit"),
        ("(" * 150 + "1" + ")" * 150 + " < 1", "something else"),
        ("-" * 400 + "1 < max(data['x'])", "something else"),
        ("max(data['x']) < 1 and " * 30 + "max(data['x']) < 1", "longer"),
        ("max(data['x" + "y" * 600 + "']) < 1", "longer"),
        ("max(data['']) < 1", "at least 1 character"),
        ("max(data['a\\nb']) < 1", "printable"),
    ],
)
def test_what_has_another_form_is_listed_and_never_run(
    expression: str, reason: str, tmp_path: Path
) -> None:
    found = read_checks(expression)
    assert found.gates == ()
    (one,) = found.unread
    assert reason in one.reason
    assert not Path("/tmp/owned").exists()


def test_a_script_is_bounded() -> None:
    with pytest.raises(ConfigError, match="too large"):
        read_checks("#" * (LARGEST + 1))
    with pytest.raises(ConfigError, match="more than"):
        read_checks('max(data["x"]) < 2\n' * (MOST_CHECKS + 1))


def test_the_yaml_of_gates_loads_to_the_same_gates() -> None:
    found = read_checks("\n".join([*FORMS, "max(data['a: #\"b']) < 1", "odd $x"]))
    values, _ = parse(as_yaml(found), Path("gates.yaml"))
    assert gates_in(values["metrics"], "gates.yaml") == found.gates
    assert "# not read, line" in as_yaml(found)


def test_the_yaml_without_a_gate_loads_too() -> None:
    values, _ = parse(as_yaml(read_checks("nothing here")), Path("gates.yaml"))
    assert gates_in(values["metrics"], "gates.yaml") == ()


WITH_ONE_UNREAD = """\
uv run tests/check_metrics.py $JSON_METRICS \\
    'median(data["train/token_mult_prob_error"]) < 1.1' \\
    'sorted(data["train/loss"]) < 1'
"""


def test_the_verb_prints_the_gates_and_says_what_it_could_not_read(
    tmp_path: Path, run: Run
) -> None:
    (tmp_path / "grpo.sh").write_text(WITH_ONE_UNREAD)
    code, out, said = run(["import", "--thresholds", str(tmp_path / "grpo.sh")])
    assert code == 0
    assert "1 of 2 checks read" in said
    values, _ = parse(out, Path("gates.yaml"))
    assert [gate.name for gate in gates_in(values["metrics"], "gates.yaml")] == [
        "train/token_mult_prob_error"
    ]
    assert "# not read, line 3" in out


@pytest.mark.parametrize("content", [b"", b"echo hello check_metrics\n# nothing", b"\xff\xfe\x00"])
def test_a_script_without_checks_is_an_error(content: bytes, tmp_path: Path, run: Run) -> None:
    script = tmp_path / "check_metrics.py.sh"
    script.write_bytes(content)
    for path in (script, tmp_path, tmp_path / "missing.sh"):
        code, out, said = run(["import", "--thresholds", str(path)])
        assert (code, out) == (EXIT_USAGE, "")
        assert path.name in said


def test_a_variable_of_many_digits_is_not_put_into_a_check() -> None:
    digits = "9" * 800_000
    check = "uv run check_metrics.py m.json \"$X < data['a']['$X']\""
    found = read_checks(f"X={digits}\n{check}\n")
    assert found.gates == ()
    assert "the shell variable X is not known" in found.unread[0].reason
