"""What a run shows: lines, or one that moves, and its outcome."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import pytest

from canary.campaign.side import finish_child, start_child
from canary.config.load import load_config
from canary.protocol.job import Listener, Result
from canary.record.summary import summarise
from canary.record.types import Launch, RunRecord
from canary.runner.display.progress import Progress, listener_for, steps_shown_on
from canary.runner.outcome import exit_code, failure_text, outcome_text
from tests.unit.record.test_summary import row


def play(listener: Listener) -> None:
    listener.run_begins(Path("out/run"), load_config(None).config)
    listener.launch_begins(1, 3)
    listener.waiting()
    for step in (1, 2, 3):
        listener.step_ended(row(step, 0.5))
    listener.launch_ended(Result(status="completed"))


def test_plain_lines_say_what_runs_where_and_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("canary.runner.display.progress.LINE_EVERY_S", 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    stream = io.StringIO()
    play(Progress(stream))
    assert stream.getvalue().splitlines() == [
        "dpo_smoke: DPO of embedded/tiny on embedded/tasks, float32",
        "record: out/run",
        "launch 2: 3 steps",
        "  step 1/3 · 1 s left · step loss 2 · 500 ms/step · 16.0 samples/s · 200 tokens/s · 300 MB"
        " · forward 75% data 25%",
        "  step 2/3 · 0 s left · step loss 2 · 500 ms/step · 16.0 samples/s · 200 tokens/s · 300 MB"
        " · forward 75% data 25%",
        "  step 3/3 · step loss 2 · 500 ms/step · 16.0 samples/s · 200 tokens/s · 300 MB"
        " · forward 75% data 25%",
        "  completed after 3 steps, 0.0 s",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(written: str) -> list[str]:
    """What a terminal shows after it was sent this."""
    return [line.rpartition("\r\x1b[K")[2] for line in written.split("\n")]


def test_one_line_moves_on_a_terminal_and_alerts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    listener = listener_for(stream, quiet=False)
    listener.launch_begins(0, 100)
    for step in range(1, 41):
        clock[0] += 0.01
        alert = {"severity": "high", "category": "own", "type": "own", "step": 1, "message": "bad"}
        listener.step_ended(row(step, 0.01) | ({"alerts": [alert]} if step == 20 else {}))
        listener.waiting()
    shown = screen(stream.getvalue())
    assert shown[0] == "training: 100 steps"
    assert "bad" in shown[1]
    assert shown[2].startswith("  step 39/100 · 1 s left · step loss 2")
    assert max(map(len, shown)) < 40
    assert stream.getvalue().count("step loss") == 3, "at most eight times per second"
    listener.launch_ended(Result(status="completed"))
    assert screen(stream.getvalue())[2:] == ["  completed after 40 steps, 0.4 s", ""]


def test_lines_come_where_nothing_can_move_and_quiet_gets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    for stream, quiet in ((Terminal(), False), (io.StringIO(), False), (io.StringIO(), True)):
        play(listener_for(stream, quiet=quiet))
        assert ("launch 2: 3 steps\n" in stream.getvalue()) is not quiet
        assert "\x1b" not in stream.getvalue()


def test_a_log_says_that_a_large_model_still_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    listener = Progress(stream)
    listener.launch_begins(0, 3)
    for _ in range(70):
        clock[0] += 1.0
        listener.waiting()
    listener.step_ended(row(1, 0.5))
    clock[0] += 100.0
    listener.waiting()
    lines = stream.getvalue().splitlines()
    assert lines[1:3] == [f"  step 0/3 · loading ({after} s)" for after in (30, 60)]
    assert [line[:10] for line in lines[3:]] == ["  step 1/3"]


SAYS = """
import sys
for line in "  step 1/2, 1 s|  step 2/2\\x1b]0;a\\x07|  step time 1 ms|canary: it broke".split("|"):
    print(line, file=sys.stderr)
print("the folder")
"""


def test_the_steps_of_a_run_in_another_process_are_shown_and_its_errors_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clock = iter(range(0, 400, 40))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    seen = []
    for stream in (io.StringIO(), Terminal()):
        child = start_child([sys.executable, "-c", SAYS], tmp_path, os.environ)
        code, out, err = finish_child(child, steps_shown_on(stream))
        assert (code, out, err.splitlines()[-1]) == (0, "the folder\n", "canary: it broke")
        seen.append(stream.getvalue())
    first, second = seen[0].splitlines()
    assert (first, second[:10]) == ("  step 1/2, 1 s", "  step 2/2")
    assert "\x1b]" not in "".join(seen), "codes of a stranger's checkout do not reach the terminal"
    assert screen(seen[1]) == [""], "the line is gone before the answer comes"
    assert "  step 2/2" in seen[1]


def test_a_run_goes_on_if_nobody_reads_its_progress() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    play(Progress(Closed()))


def test_the_outcome_is_told_in_units() -> None:
    record = RunRecord(
        run_id="r",
        timestamp="2026-01-01T00:00:00+00:00",
        duration_seconds=12.0,
        launches=[Launch(index=1, status="completed")],
    )
    text = outcome_text(summarise(record, [row(1, 0.5), row(2, 0.5)], warmup=0))
    assert text.splitlines() == [
        "completed in 12.0 s",
        "  step time   500 ms median, 500 mean, 500 p95 over 2 steps",
        "  throughput  16.0 samples/s, 200 tokens/s",
        "  memory      300 MB peak (resident)",
        "  final loss  2 (mean of the last tenth of the steps), 0 NaN, 0 Inf",
        "  phases      forward 75%  data 25%",
        "  exact       no look: learning and work cannot be compared exactly",
        "  note        2 steps timed after warm-up, a comparison needs 5; train more steps",
    ]


def test_the_outcome_of_several_launches_says_what_is_of_each_and_what_of_the_first() -> None:
    record = RunRecord(
        run_id="r",
        timestamp="2026-01-01T00:00:00+00:00",
        config={"metrics_warmup_steps": 1},
        launches=[Launch(index=index, status="completed") for index in (0, 1)],
    )
    rows = [row(step, 0.5) | {"launch": launch} for launch in (0, 1) for step in (1, 2, 3)]
    text = outcome_text(summarise(record, rows, warmup=1))
    assert "over 4 steps of 2 launches, without the first 1 of each" in text
    assert "(mean of the last tenth of the steps, first launch)" in text


def test_a_training_that_ended_after_its_look_has_no_final_loss() -> None:
    record = RunRecord(
        run_id="r",
        timestamp="2026-01-01T00:00:00+00:00",
        config={"exact": True},
        launches=[Launch(index=1, status="completed")],
    )
    text = outcome_text(summarise(record, [row(1, 0.5), row(2, 0.5)], warmup=0))
    assert (
        "  final loss  none: the training ended after its look, with loss 2, 0 NaN, 0 Inf" in text
    )


def test_failures_are_one_line_and_verbose_adds_the_log(tmp_path: Path) -> None:
    result = Result(status="oom", reason="out of memory: 3 GB", hint="lower batch_size")
    (tmp_path / "log.txt").write_text("one\ntwo\n")
    assert failure_text(result, tmp_path, False) == (
        "canary: oom: out of memory: 3 GB (lower batch_size)"
    )
    assert failure_text(result, tmp_path, True).splitlines()[1:] == ["one", "two"]


def test_exit_codes_tell_the_users_fault_from_the_machines() -> None:
    assert exit_code(Result(status="completed")) == 0
    assert exit_code(Result(status="failed", usage_error=True)) == 2
    assert [exit_code(Result(status=s)) for s in ("failed", "oom", "timeout")] == [4, 4, 4]


def test_an_alert_of_ones_own_stays_on_its_line() -> None:
    """A message may hold anything: line breaks that look like commands of CI, codes of a screen."""
    stream = io.StringIO()
    lines = Progress(stream)
    lines.launch_begins(0, 3)
    alert = {"severity": "high", "category": "own", "type": "own", "step": 1}
    told = "bad\n::error::stop\x1b[2J"
    lines.step_ended(row(1, 0.5) | {"alerts": [alert | {"message": told}]})
    (line,) = [one for one in stream.getvalue().splitlines() if "bad" in one]
    assert "bad ::error::stop [2J" in line
