"""`canary history` as people and programs read it."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from canary.baseline.branch import Remote, push
from canary.baseline.entry import Context
from canary.baseline.history import save
from canary.cli import app
from canary.errors import InputError, UsageError
from canary.report.history_view import history_text
from canary.trends.history import trends_in
from canary.trends.model import HistoryTrends
from tests.contract.git_server import bare_repository, git
from tests.unit.comparing import committed, record
from tests.unit.hostile import PAYLOADS, planted
from tests.unit.trends.histories import noise, runs_of, series, stepped, times, trends_of_runs


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 runs: a step with a new driver, and one of memory."""
    root = tmp_path_factory.mktemp("history")
    step = stepped(noise(60, 1, lasting=0.3), 40, 6)
    memory = stepped(noise(60, 2, sd=0.004), 20, 4)
    for place in range(60):
        one = record(
            3600 * place,
            0.1 * math.exp(step[place]),
            memory_mb=600 * math.exp(memory[place]),
            cpu_s=0.08,
        )
        one.env = {**one.env, "driver": "560.1" if place >= 40 else "550.2"}
        commit = hashlib.sha1(str(place).encode()).hexdigest()
        save(root, one, context=Context(commit=commit, verdict="pass"))
    return root


def of_two(root: Path, place: int) -> str:
    return hashlib.sha1(str(place).encode()).hexdigest()[:9]


def text(root: Path, form: str = "text", width: int | None = None) -> str:
    return history_text(trends_in(root), form, width)


def test_the_text_says_what_began_where(stored: Path) -> None:
    shown = text(stored)
    flat = " ".join(shown.split())
    assert "Step time, tokens per second and peak memory got worse." in flat
    assert re.search(
        rf"Step time \+[4-7]\.\d% \[[\d., -]+\] since commit {of_two(stored, 40)}, where "
        r"the driver changed \(550\.2 -> 560\.1\), confirmed by 20 runs\.",
        flat,
    )
    assert (
        f"after commit {of_two(stored, 39)}, with commit {of_two(stored, 40)} at the latest" in flat
    )
    assert re.search(rf"Peak memory \+[34]\.\d% .{{,30}} since commit {of_two(stored, 20)}", flat)
    assert re.search(r"Levels: \d+(\.\d)? ms in runs 1 to 40, \d+(\.\d)? ms in runs 41 to 60", flat)
    assert re.search(r"final loss +\S+ +▅+ +no change", shown)


@pytest.mark.parametrize("width", [40, 120])
def test_the_text_fits_the_terminal(stored: Path, width: int) -> None:
    lines = text(stored, width=width).splitlines()
    # A command stays whole, to be copied.
    assert max(len(line) for line in lines if "canary bisect" not in line) <= width


def test_markdown_is_a_table_and_a_list(stored: Path) -> None:
    shown = text(stored, "markdown")
    table = [line for line in shown.splitlines() if line.startswith("|")]
    assert table[0] == "| metric | newest | runs | since when |"
    assert len({line.count("|") for line in table}) == 1
    assert "- Step time +" in shown
    assert f"`{of_two(stored, 40)}`" in shown


def test_json_is_the_model(stored: Path) -> None:
    document = json.loads(text(stored, "json"))
    assert document["schema_version"] == 1
    (drawer,) = document["histories"]
    (found,) = trends_in(stored)
    assert (drawer["canary"], drawer["machine"]) == (found.canary, found.machine)
    (machine,) = drawer["machine_changes"]
    assert machine == {
        "place": 40,
        "changes": [{"name": "driver", "before": "550.2", "now": "560.1"}],
    }
    first = next(one for one in drawer["series"] if one["metric"] == "step_time_median")
    assert set(first) == {
        *("metric", "title", "newest", "unit", "lower_is_better", "points", "levels", "changes"),
        "notes",
    }
    (change,) = first["changes"]
    assert (change["place"], change["standing"], change["worse"]) == (40, "confirmed", True)
    assert first["newest"] == first["points"][-1]["value"]


def test_the_verb_prints_and_writes(stored: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["history", str(stored)])
    assert done.exit_code == 0, done.output
    assert "got worse" in done.output
    path = tmp_path / "deep" / "trends.json"
    done = runner.invoke(
        app,
        ["history", str(stored), "--canary", "sft_smoke", "--format", "json", "-o", str(path)],
    )
    assert done.exit_code == 0, done.output
    assert json.loads(path.read_text())["histories"]


def test_the_verb_reads_a_branch(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare, checkout = bare_repository(tmp_path / "bare"), tmp_path / "checkout"
    checkout.mkdir()
    git(checkout, "init", "-q", "-b", "main")
    git(checkout, "remote", "add", "origin", str(bare))
    monkeypatch.chdir(checkout)
    for name in ("GITHUB_TOKEN", "CANARY_TOKEN", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)

    def fill(folder: Path) -> None:
        shutil.copytree(stored / "v2", folder / "v2", dirs_exist_ok=True)

    push(Remote(str(bare), "other"), fill, message="60 runs", keep=100)
    for words in (["--remote", "origin"], []):
        done = CliRunner().invoke(app, ["history", *words, "--branch", "other"])
        assert done.exit_code == 0, done.output
        assert "Step time, tokens per second and peak memory got worse." in done.output
    done = CliRunner().invoke(app, ["history", "--remote", "origin"])
    assert "does not exist yet: it holds no runs" in done.output


def test_the_verb_refuses_in_one_line(stored: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    for arguments, kind, words in (
        ([str(stored), "--format", "xml"], UsageError, "unknown format 'xml'"),
        ([str(stored), "--canary", "other"], InputError, "no canary 'other'"),
        ([str(tmp_path)], InputError, "holds no baseline history"),
        ([str(stored), "--remote", "origin"], UsageError, "name two histories"),
    ):
        done = runner.invoke(app, ["history", *arguments])
        assert isinstance(done.exception, kind)
        assert words in str(done.exception)


def test_a_report_refuses_options_that_it_would_ignore(stored: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for arguments, words in (
        ([str(run), "--remote", "origin"], "is a run, and --remote names a history"),
        (["--remote", "origin", "--baseline", str(run)], "--baseline needs a run to compare"),
    ):
        done = CliRunner().invoke(app, ["report", *arguments])
        assert isinstance(done.exception, UsageError)
        assert words in str(done.exception)


def test_an_empty_history_says_so(tmp_path: Path) -> None:
    (tmp_path / "v2").mkdir()
    assert history_text(trends_in(tmp_path), "text", shown="here") == "here holds no runs\n"


def one(found: HistoryTrends) -> str:
    return history_text([found], "text")


def test_few_runs_and_no_change_are_told() -> None:
    assert "Too few runs to judge." in one(trends_of_runs(runs_of(noise(3, 0))))
    calm = one(trends_of_runs(runs_of(noise(30, 0))))
    assert "No metric got worse (5 of 5 judged)." in calm
    assert "2 values, and 6 are needed" in one(trends_of_runs(runs_of(noise(2, 0))))


def test_a_change_within_one_commit_is_not_of_the_code() -> None:
    runs = [committed(run, "a" * 40) for run in runs_of(stepped(noise(60, 0), 40, 10))]
    shown = one(trends_of_runs(runs))
    assert re.search(r"since run 41, within commit \w+: the code did not change", shown)


def test_a_change_from_zero_is_told_by_its_levels() -> None:
    found = one(HistoryTrends("c", "m", (series([0.0] * 20 + [3.0] * 5),)))
    assert "0 ms in runs 1 to 20, 3 ms in runs 21 to 25" in found
    assert "up since" in found
    assert "It went from 0 ms to 3 ms since" in found
    assert "1,000,000" not in found


def test_returned_and_accepted_changes_are_no_alarm() -> None:
    there_and_back = stepped(stepped(noise(90, 0), 30, 10), 60, 100 * (1 / 1.1 - 1))
    found = one(HistoryTrends("c", "m", (series(times(there_and_back)),)))
    assert "No metric got worse" in found
    assert "and the level returned later" in found
    accepted = series(times(stepped(noise(60, 0), 30, 10)), accepted=[30])
    found = one(HistoryTrends("c", "m", (accepted,)))
    assert "No metric got worse" in found
    assert "accepted" in found


@pytest.mark.parametrize("payload", PAYLOADS[::3])
def test_texts_of_strangers_are_harmless(payload: str) -> None:
    runs = [committed(planted(payload, machine=True), f"{n:040x}") for n in range(8)]
    for place, run in enumerate(runs):
        run.env = {**run.env, "driver": f"{payload}{place // 4}"}
        run.perf.max_mem_mb = 600.0 if place < 4 else 700.0
    found = [trends_of_runs(runs)]
    for form in ("text", "markdown", "json"):
        shown = history_text(found, form)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", shown)
        assert form == "json" or not re.search(r"^\s*::|##\[", shown, re.MULTILINE)
