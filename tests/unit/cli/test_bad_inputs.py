"""Records that cannot be judged, and wrong usage: a clear answer, the right exit code, no pass."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from canary.baseline.comparability import machine_key
from canary.cli import main
from canary.compare.timing.noise import save_noise
from canary.record import jsonio
from canary.record.types import Distribution, RunRecord
from tests.unit.comparing import altered, crashed, noise_model, on_gpu, record, step_time, write


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


Canary = Callable[..., Answer]


@pytest.fixture
def canary(capsys: pytest.CaptureFixture[str]) -> Canary:
    def run(*arguments: object) -> Answer:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Answer(int(ended.value.code or 0), captured.out, captured.err)

    return run


def one_line(answer: Answer, code: int) -> str:
    """The one line on standard error of a refusal."""
    assert answer.code == code, answer
    assert answer.out == ""
    assert answer.err.startswith("canary: ")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    assert "unexpected" not in answer.err
    return answer.err.strip()


def error_verdict(answer: Answer) -> str:
    """The first line of a rendered verdict `error`."""
    assert answer.code == 4, answer
    assert answer.err == ""
    assert "Traceback" not in answer.out
    first, *rest = answer.out.splitlines()
    assert first.startswith("Error: ")
    assert "  verdict   error" in rest
    return first


def text_of(whole: RunRecord) -> str:
    return jsonio.dumps(whole.model_dump())


def with_literal(literal: str) -> str:
    whole = altered(record(9), "stability", "loss_values", 3, to=0.12345678)
    return text_of(whole).replace("0.12345678", literal)


def changed(**values: Any) -> str:
    return json.dumps(json.loads(text_of(record(9))) | values)


UNREADABLE: dict[str, tuple[str | bytes, str]] = {
    "NaN": (with_literal("NaN"), "NaN is not valid JSON"),
    "truncated": (text_of(record(9))[:5000], "is not a record"),
    "binary": (b"\xff\xfe\x00\x01", "is not a record"),
    "nested": ("[" * 100_000, "is not a record"),
    "earlier schema": (changed(schema_version=1), "has schema_version 1; this version reads 2"),
    "unknown key": (changed(speed=1), "has the key `speed`, which this version does not know"),
    "wrong type": (changed(perf={"step_time": 5}), "perf.step_time: "),
}


@pytest.mark.parametrize(
    ("name", "side"), [*((name, "current") for name in UNREADABLE), ("truncated", "baseline")]
)
def test_a_file_that_is_no_record(name: str, side: str, canary: Canary, tmp_path: Path) -> None:
    content, words = UNREADABLE[name]
    bad, good = tmp_path / "bad.json", write(tmp_path / "good.json", record(0))
    bad.write_bytes(content if isinstance(content, bytes) else content.encode())
    line = error_verdict(canary("compare", *((bad, good) if side == "current" else (good, bad))))
    assert words in line
    assert str(bad) in line


def timed(mean: float, median: float, count: int = 90) -> RunRecord:
    whole = altered(record(9), "perf", "step_time", to=step_time(median, mean, count))
    return whole.model_copy(update={"launches": []})


def without_steps() -> RunRecord:
    whole = altered(record(9), "perf", "step_time", to=Distribution())
    whole = altered(whole, "stability", "loss_values", to=[])
    return whole.model_copy(update={"launches": []})


UNUSABLE: dict[str, tuple[RunRecord, str]] = {
    "no steps": (without_steps(), "too few steps: 0 run"),
    "three steps": (timed(0.1, 0.1, 3), "3 timed after warm-up, 5 needed; raise max_steps"),
    "resumed": (
        timed(0.1, 0.1, 3).model_copy(update={"first_step": 25}),
        "5 needed; it resumed from a checkpoint at step 24: remove the checkpoint, or raise",
    ),
    "a look alone": (
        timed(0.1, 0.1, 3).model_copy(update={"config": {"exact": True}}),
        "5 needed; it ended after its look: remove --exact, or `exact: true`",
    ),
    "failed": (crashed(record(9)), "run-00009 failed: it broke"),
    "interrupted by": (
        crashed(record(9), "interrupted", "Ctrl-C or SIGTERM"),
        "run-00009 was interrupted: Ctrl-C or SIGTERM, after step",
    ),
    "running": (crashed(record(9), "running", ""), "did not complete: it ended"),
    "zero mean": (timed(0.0, 0.1), "contradicts itself: `perf.step_time`"),
    "zero median": (timed(0.1, 0.0), "a step time of"),
    "nan time": (timed(math.nan, math.nan), "a step time of nan s"),
    "infinite launch": (
        altered(record(9), "launches", 0, "median_step_time_s", to=math.inf),
        "a launch with a step time of inf s",
    ),
    "negative memory": (altered(record(9), "perf", "max_mem_mb", to=-1.0), "memory or speed"),
    "infinite speed": (
        altered(record(9), "perf", "approx_tokens_per_sec", to=math.inf),
        "memory or speed",
    ),
}


@pytest.mark.parametrize(
    ("name", "side"), [*((name, "current") for name in UNUSABLE), ("no steps", "baseline")]
)
def test_a_run_that_says_nothing(name: str, side: str, canary: Canary, tmp_path: Path) -> None:
    whole, words = UNUSABLE[name]
    bad, good = write(tmp_path / "bad.json", whole), write(tmp_path / "good.json", record(0))
    line = error_verdict(canary("compare", *((bad, good) if side == "current" else (good, bad))))
    assert words in line
    assert ("(baseline)" in line) == (side == "baseline")


INCOMPARABLE: dict[str, tuple[RunRecord, RunRecord, str]] = {
    "another gpu": (
        on_gpu(record(9), name="A"),
        on_gpu(record(0), name="B"),
        "two machines: the baseline ran on B, the current side on A",
    ),
    "another cpu": (altered(record(9), "env", "cpu", to="Z80"), record(0), "two machines"),
    "two trainers": (
        record(9, kind="dpo"),
        record(0, kind="sft"),
        "two trainers: the baseline ran sft, the current side dpo",
    ),
    "two families": (
        altered(record(9), "exact", "model", "model_type", to="llama"),
        altered(record(0), "exact", "model", "model_type", to="qwen2"),
        "two model families: qwen2 and llama",
    ),
}


@pytest.mark.parametrize("name", list(INCOMPARABLE))
def test_two_runs_of_different_kinds(name: str, canary: Canary, tmp_path: Path) -> None:
    now, before, words = INCOMPARABLE[name]
    paths = write(tmp_path / "now.json", now), write(tmp_path / "before.json", before)
    line = error_verdict(canary("compare", *paths))
    assert words in line


def test_a_negative_loss_needs_acceptance(canary: Canary, tmp_path: Path) -> None:
    bad = altered(record(9), "stability", "loss_values", 50, to=-1.0)
    now, before = write(tmp_path / "now.json", bad), write(tmp_path / "before.json", record(0))
    answer = canary("compare", now, before)
    assert answer.code == 1
    assert "Changed: the loss after the look differs from step 51 on: 2.37691 -> -1." in answer.out


MISSHAPEN: dict[str, RunRecord] = {
    "batches": altered(record(9), "exact", "batches", to=5),
    "first loss": altered(record(9), "exact", "first_loss", to=[1]),
    "losses": altered(record(9), "exact", "trajectory", "losses", to="many"),
    "gpus": altered(record(9), "env", "gpus", to=2),
    "commit": altered(record(9), "git", to={"sha": 5}),
    "thresholds": altered(record(9), "config", "thresholds", to=5),
}


@pytest.mark.parametrize("name", list(MISSHAPEN))
def test_a_part_of_the_wrong_shape(name: str, canary: Canary, tmp_path: Path) -> None:
    """A record may come from a stranger's pull request."""
    bad = write(tmp_path / "bad.json", MISSHAPEN[name])
    good = write(tmp_path / "good.json", record(0))
    answer = canary("compare", bad, good)
    assert "unexpected" not in answer.err
    assert "Traceback" not in answer.err + answer.out
    assert not answer.out.startswith("Pass")
    if answer.code == 4:
        error_verdict(answer)


def test_the_same_run_on_both_sides(canary: Canary, tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", record(0))
    copy = write(tmp_path / "b" / "metrics.json", record(0))
    assert "run run-00000 is on both sides" in one_line(canary("compare", file, file), 2)
    assert "run run-00000 is on both sides" in one_line(canary("compare", file, copy.parent), 2)


def test_a_path_that_is_not_there(canary: Canary, tmp_path: Path) -> None:
    good, gone = write(tmp_path / "good.json", record(0)), tmp_path / "gone"
    for paths in ((gone, good), (good, gone)):
        assert f"no record at {gone}" in one_line(canary("compare", *paths), 2)


def test_a_folder_that_holds_nothing(canary: Canary, tmp_path: Path) -> None:
    good, empty = write(tmp_path / "good.json", record(0)), tmp_path / "empty"
    empty.mkdir()
    line = one_line(canary("compare", good, empty), 2)
    assert f"{empty} contains no record, no runs and no baseline history" in line
    assert "no record at" in one_line(canary("compare", empty, good), 2)


USAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "one run": (("{now}",), "no baseline named"),
    "no run": ((), "Missing argument"),
    "no match": (("gone*/metrics.json", "{before}"), "nothing matches gone*/metrics.json"),
    "tier": (("{now}", "{before}", "--threshold-tier", "smok"), "no threshold tier 'smok'"),
    "format": (("{now}", "{before}", "--format", "xml"), "unknown format 'xml'"),
    "option": (("{now}", "{before}", "--frobnicate"), "No such option"),
    "noise": (("{now}", "{before}", "--noise", "gone.json"), "cannot read gone.json"),
    "reason": (("{now}", "{before}", "--accept", "  "), "needs a reason"),
}


def test_an_option_that_went_names_what_replaces_it(canary: Canary) -> None:
    ended = canary("exec", "--no-probe", "--", "python", "train.py")
    words = "No such option: --no-probe (write `--set look_steps=0` instead)"
    assert words in one_line(ended, 2)


@pytest.mark.parametrize("name", list(USAGE))
def test_wrong_usage(name: str, canary: Canary, tmp_path: Path) -> None:
    arguments, words = USAGE[name]
    now, before = write(tmp_path / "a.json", record(9)), write(tmp_path / "b.json", record(0))
    filled = [argument.format(now=now, before=before) for argument in arguments]
    assert words in one_line(canary("compare", *filled), 2)


@pytest.mark.parametrize("quoted", [True, False], ids=["by us", "by the shell"])
def test_of_several_runs_before_the_baseline_the_newest_is_taken_and_named(
    quoted: bool, canary: Canary, tmp_path: Path
) -> None:
    runs = [
        write(tmp_path / "out" / name / "metrics.json", record(number))
        for name, number in zip(("b", "c", "a"), (20, 30, 40), strict=True)
    ]
    before = write(tmp_path / "baseline.json", record(0))
    named = [tmp_path / "out" / "*" / "metrics.json"] if quoted else runs
    answer = canary("compare", *named, before, "--format", "json")
    assert answer.code == 0
    newest = record(40).run_id
    assert json.loads(answer.out)["current"]["run_ids"] == [newest]
    assert f"you named 3 current runs; only the newest is compared, {newest}" in answer.err


@pytest.mark.parametrize("last", [("completed", "failed"), ("failed", "failed")])
def test_a_run_that_failed_is_the_newest_only_where_none_completed(
    last: tuple[str, str], canary: Canary, tmp_path: Path
) -> None:
    for number, status in zip((20, 30), last, strict=True):
        run = record(number).model_copy(update={"status": status})
        write(tmp_path / "out" / str(number) / "metrics.json", run)
    before = write(tmp_path / "baseline.json", record(0))
    named = tmp_path / "out" / "*" / "metrics.json"
    answer = canary("compare", named, before, "--format", "json")
    older, newer = record(20).run_id, record(30).run_id
    completed = "completed" in last
    taken = json.loads(answer.out)["current"]["run_ids"]
    assert taken == ([older] if completed else [newer])
    assert answer.code == (0 if completed else 4)
    assert "Completed runs of the baseline's canary come first" in answer.err


@pytest.mark.parametrize("named", ["own", "gone"])
def test_of_several_canaries_runs_the_newest_of_the_baselines_own_is_taken(
    named: str, canary: Canary, tmp_path: Path
) -> None:
    for number, name in ((20, "own"), (30, "own"), (40, "other")):
        run = record(number).model_copy(update={"name": name})
        write(tmp_path / "out" / str(number) / "metrics.json", run)
    baseline = record(0).model_copy(update={"name": named})
    before = write(tmp_path / "baseline.json", baseline)
    answer = canary("compare", tmp_path / "out" / "*" / "metrics.json", before, "--format", "json")
    taken = record(30 if named == "own" else 40).run_id
    assert json.loads(answer.out)["current"]["run_ids"] == [taken]


def test_a_threshold_file_with_a_misspelt_key(canary: Canary, tmp_path: Path) -> None:
    limits = tmp_path / "limits.yaml"
    limits.write_text("max_step_time_increase: 5\n")
    now, before = write(tmp_path / "a.json", record(9)), write(tmp_path / "b.json", record(0))
    line = one_line(canary("compare", now, before, "--threshold-file", limits), 2)
    assert f"unknown threshold 'max_step_time_increase' in {limits}" in line
    assert "did you mean 'max_step_time_increase_pct'?" in line


def test_the_noise_of_another_machine(canary: Canary, tmp_path: Path) -> None:
    noise = tmp_path / "noise.json"
    save_noise(noise_model(), noise)
    now, before = write(tmp_path / "a.json", record(9)), write(tmp_path / "b.json", record(0))
    line = one_line(canary("compare", now, before, "--noise", noise), 2)
    assert f"the noise model is for cpu, the runs are from {machine_key(record(0))}" in line


def test_thresholds_of_the_baseline_that_cannot_be_used(canary: Canary, tmp_path: Path) -> None:
    wrong = altered(record(0), "config", "thresholds", to={"max_nan_steps": -1})
    now, before = write(tmp_path / "a.json", record(9)), write(tmp_path / "b.json", wrong)
    line = one_line(canary("compare", now, before), 2)
    assert "max_nan_steps in the config of run run-00000: " in line


def test_an_error_is_one_document_in_json_too(canary: Canary, tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.json", write(tmp_path / "good.json", record(0))
    bad.write_text("{")
    answer = canary("compare", bad, good, "--format", "json")
    document = jsonio.loads(answer.out)
    assert answer.code == 4
    assert answer.err == ""
    assert document["verdict"] == "error"
    assert document["passed"] is False
    assert document["checks"] == []


def test_an_output_that_cannot_be_written(canary: Canary, tmp_path: Path) -> None:
    now, before = write(tmp_path / "a.json", record(9)), write(tmp_path / "b.json", record(0))
    line = one_line(canary("compare", now, before, "-o", now / "report.txt"), 4)
    assert "cannot write" in line


def test_check_names_a_config_that_is_missing(canary: Canary) -> None:
    said = one_line(canary("check", "--config", "nothere.yaml"), 2)
    assert said.startswith("canary: no config at nothere.yaml")


def test_v_of_a_command_is_its_own(canary: Canary) -> None:
    """`-v` behind `--` is an option of the user's script: no traceback was asked for."""
    one_line(canary("exec", "--set", "nosuch=1", "--", "python", "train.py", "-v"), 2)
    assert "Traceback" in canary("exec", "-v", "--set", "nosuch=1", "--", "python", "a.py").err
