"""No text of a stranger steers the terminal: neither what a verb prints nor its errors."""

from __future__ import annotations

import copy
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unicodedata import category

import pytest

from canary.baseline.history import drawer, save
from canary.cli import main
from canary.cli.terminal import sayer
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import SMOKE_THRESHOLDS
from canary.record.profile import OPERATORS
from canary.report.escape import ZERO_WIDTH
from canary.report.render import render
from tests.unit.cli.test_profile_verb import USUAL, run_of
from tests.unit.comparing import example, record
from tests.unit.hostile import planted

STEERING = (
    "\x1b[2J\x1b]0;owned\x07\x9b31m\rPass\x08\x00\x7f\x85\u061c\u200e\u200f\u202e\u2028\u2066"
    "\ud800 \udcff\U000e0041\nPass: forged."
)
NAME = "".join(char for char in STEERING if char not in "\x00\ud800")
"""As a name of a file can be."""


class Terminal:
    """What the verbs have written, and the code that the last one ended with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.said = ""

    def run(self, *arguments: object) -> int:
        """Runs a verb on a terminal that takes UTF-8 and nothing else."""
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
        self.monkeypatch.setattr(sys, "stdout", streams[0])
        self.monkeypatch.setattr(sys, "stderr", streams[1])
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        self.monkeypatch.undo()
        written = []
        for stream in streams:
            stream.flush()
            written.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
        self.said = "".join(written)
        bad = {char for char in self.said if category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
        assert bad <= {"\n", ZERO_WIDTH}, (arguments, bad, self.said[-1500:])
        assert "\nPass: forged." not in self.said, arguments
        assert "unexpected" not in self.said, (arguments, self.said[-1500:])
        return int(str(ended.value.code))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)


def written(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def hostile() -> dict[str, Any]:
    return planted(STEERING).model_dump() | {"run_id": STEERING}


FORMS = ("text", "markdown", "json")
VERBS: tuple[Callable[[Path, Path, Path], tuple[object, ...]], ...] = (
    *(lambda run, ok, _, f=form: ("compare", run, ok, "--format", f) for form in FORMS),
    *(lambda run, ok, _, f=form: ("compare", ok, run, "--format", f) for form in FORMS),
    *(lambda run, ok, _, f=form: ("profile", run, "--format", f) for form in FORMS),
    *(
        lambda run, ok, _, f=form: ("profile", run, "--against", ok, "--format", f)
        for form in FORMS
    ),
    lambda run, ok, out: ("compare", run, ok, "-o", out / "answer.txt"),
    lambda run, ok, out: ("save-baseline", run, out / "history"),
    lambda run, ok, out: ("save-baseline", run, out / "file.json"),
    lambda run, ok, out: ("save-baseline", ok, run),
    lambda run, ok, out: ("baseline", "push", run, "--remote", out),
)


def test_no_verb_prints_what_a_hostile_record_holds(terminal: Terminal, tmp_path: Path) -> None:
    document = hostile()
    named = written(tmp_path / NAME[:60] / f"{NAME[-30:]}.json", document)
    ok = written(tmp_path / "ok.json", example().model_dump())
    for verb in VERBS:
        terminal.run(*verb(named, ok, tmp_path))
    folder = written(tmp_path / "run" / "metrics.json", document).parent
    for words in (verb(folder, ok, tmp_path) for verb in VERBS):
        if not {"markdown", "json"} & set(words):
            terminal.run(*words)


def places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a document, lists by their first item."""
    items = document.items() if isinstance(document, dict) else enumerate(document[:1])
    for key, value in items:
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from places(value, (*at, key))


def with_value(document: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    found = copy.deepcopy(document)
    inner = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return found


@pytest.mark.spread(1)
@pytest.mark.parametrize("given", [STEERING, {STEERING: STEERING}], ids=["text", "mapping"])
def test_no_verb_prints_what_is_wrong_in_a_record_as_it_stands(
    terminal: Terminal, tmp_path: Path, given: Any
) -> None:
    document = example().model_dump()
    ok = written(tmp_path / "ok.json", document)
    for place in places({**document, STEERING: 1}):
        if len(place) > 1:
            continue
        run = written(tmp_path / "run.json", with_value(document, place, given))
        terminal.run("compare", run, ok, "-v")
        terminal.run("profile", run, "-v")
        terminal.run("save-baseline", run, tmp_path / "kept.json")


def test_no_verb_prints_what_a_hostile_history_holds(terminal: Terminal, tmp_path: Path) -> None:
    root = tmp_path / "history"
    entry = save(root, record(1))
    kept = json.loads(entry.read_bytes())
    ok = written(tmp_path / "ok.json", record(2, run_id="other").model_dump())
    verbs = (
        ("baseline", "history", root),
        ("baseline", "history", root, "--canary", STEERING.replace("\ud800", "")),
        ("compare", ok, root),
        ("baseline", "prune", root, "--keep", "1"),
    )
    for wrong in (
        {**kept, "accepted": STEERING},
        {**kept, "record": hostile()},
        {**kept, "context": {"verdict": STEERING, STEERING: STEERING}},
        {**kept, "entry_version": STEERING},
    ):
        written(entry, wrong)
        for verb in verbs:
            terminal.run(*verb)
    folder = drawer(root, record(1))
    (folder.parent / NAME[:60]).mkdir()
    written(folder.parent / NAME[:60] / entry.name, kept)
    written(folder.parent.parent / NAME[:60] / NAME[:60] / entry.name, kept)
    written(folder.parent.parent / NAME[:60] / NAME[:60] / f"{NAME[:60]}.json", {**kept, "x": 1})
    written(folder / "noise.json", {STEERING: STEERING})
    for verb in verbs:
        terminal.run(*verb)


def test_no_verb_prints_what_a_hostile_comparison_holds(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canary.report.pages.comparisons_text", lambda several: "")
    run = planted(STEERING).model_copy(update={"run_id": "hostile"})
    found = compare_to_baseline(run, example(), SMOKE_THRESHOLDS)
    document = json.loads(render(found, "json"))
    for place in places({**document, STEERING: 1}):
        if len(place) < 2:
            written(tmp_path / "comparison.json", with_value(document, place, STEERING))
            terminal.run("report", tmp_path, "-v")


def test_wrong_usage_is_said_without_what_steers_a_terminal(
    terminal: Terminal, tmp_path: Path
) -> None:
    run = written(tmp_path / "ok.json", example().model_dump())
    clean = STEERING.replace("\ud800", "")
    for arguments in (
        (clean,),
        ("compare", run, f"--{clean}"),
        ("compare", run, run, "--format", clean),
        ("compare", clean, run),
        ("compare", run, run, "--threshold-tier", clean),
        ("profile", run, "--top", clean),
        ("profile", clean),
        ("baseline", "history", clean),
        ("config", "show", clean),
    ):
        assert terminal.run(*arguments) in (2, 4)


@pytest.mark.parametrize(
    ("table", "form"),
    [
        ("names", "text"),
        ("names", "markdown"),
        ("names", "json"),
        ("rows", "text"),
        ("cut", "text"),
    ],
)
def test_no_verb_prints_what_a_hostile_profile_holds(
    terminal: Terminal, tmp_path: Path, table: str, form: str
) -> None:
    run = run_of(tmp_path, "hostile", USUAL)
    against = run_of(tmp_path, "usual", USUAL)
    record = json.loads((run / "metrics.json").read_bytes())
    profiler = {**record["profiler"], "trace_path": STEERING}
    written(run / "metrics.json", {**record, "run_id": STEERING, "profiler": profiler})
    path = run / "profiler" / OPERATORS
    known = json.loads(path.read_bytes())
    operators = [{**row, "name": row["name"] + STEERING} for row in known["operators"]]
    tables = {
        "names": {**known, "operators": operators},
        "rows": {**known, "operators": [STEERING]},
    }
    if table == "cut":
        path.write_text('{"operators": [', encoding="utf-8")
    else:
        written(path, tables[table])
    for verb in (("profile", run), ("profile", run, "--against", against), ("compare", run, run)):
        assert terminal.run(*verb, "--format", form) in (0, 2, 4)


def test_progress_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Progress of a bisect names commits by their titles."""
    sayer(False)(f"run 1  {NAME}\n        2 commits left")
    said = capsys.readouterr().err
    bad = {char for char in said if category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert bad == {"\n"}
    assert "2 commits left" in said


def test_without_a_config_the_one_of_the_folder_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("dpo_smoke", "mine"):
        with pytest.raises(SystemExit):
            main(["config", "show"])
        assert capsys.readouterr().out.startswith(f"name: {name} ")
        (tmp_path / "canary.yaml").write_text("name: mine\n")
