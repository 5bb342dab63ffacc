"""What a comparison looks like on a terminal: it fits, the answer comes first, and what is ok takes
one line. A pipe gets whole lines and all checks."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from canary.cli import main
from canary.record.types import RunRecord
from canary.report.lines import LONGEST_CELL, fitting, wrapped
from canary.report.profile import profile_text
from canary.report.render import render
from tests.unit.cli.test_profile_verb import USUAL, run_of
from tests.unit.comparing import altered, example, plain, record
from tests.unit.report.test_rendering import CASES


class Stream(io.StringIO):
    """A stream that is a terminal, or is none."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class Shell:
    """Two stored records, of which the current one learns something else, and a way to type."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        losses = [1.01 * loss for loss in plain(example())["trajectory"]["losses"]]
        other = altered(record(1, run_id="current"), "exact", "trajectory", "losses", to=losses)
        self.sides = [self._stored(folder, one) for one in (other, record(0, run_id="baseline"))]

    @staticmethod
    def _stored(folder: Path, one: RunRecord) -> str:
        path = folder / one.run_id / "metrics.json"
        path.parent.mkdir()
        path.write_text(json.dumps(one.model_dump(mode="json")), encoding="utf-8")
        return str(path.parent)

    def typed(self, verb: str, *options: str, terminal: bool = True) -> str:
        """What the verb prints about both records."""
        out = Stream(terminal)
        self.monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(SystemExit):
            main([verb, *self.sides, *options])
        self.monkeypatch.undo()
        return out.getvalue()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path, monkeypatch)


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_an_answer_fits_a_terminal_of_unknown_width(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert widest(shell.typed("compare")) <= 80
    assert widest(shell.typed("compare", "-v")) <= 80


@pytest.mark.parametrize("verdict", CASES)
@pytest.mark.parametrize("every", [False, True])
def test_every_verdict_fits(verdict: str, every: bool) -> None:
    assert widest(render(CASES[verdict](), "text", 80, every=every)) <= 80


def test_checks_that_are_ok_take_one_line_until_they_are_asked_for(shell: Shell) -> None:
    short = shell.typed("compare")
    rows = [line.split() for line in short.splitlines()]
    assert not any(row[-1:] == ["ok"] for row in rows)
    assert any(row[:1] == ["trajectory"] and row[-1] == "CHANGED" for row in rows)
    folded = [line for line in short.splitlines() if " checks ok: " in line]
    assert len(folded) == 1
    assert folded[0].endswith("... (-v shows them)")
    count = int(folded[0].split()[0])
    every = [line.split() for line in shell.typed("compare", "-v").splitlines()]
    assert sum(row[-1:] == ["ok"] for row in every) == count > 20


def test_a_pipe_gets_whole_lines_and_all_checks(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    piped = shell.typed("compare", terminal=False)
    assert any("beyond tolerance, up to" in line for line in piped.splitlines())
    assert "checks ok" not in piped
    assert any(line.split()[:1] == ["flops"] for line in piped.splitlines())


def test_a_wrapped_line_goes_on_below_its_first_word() -> None:
    assert wrapped("  1. kernel: more operators ran", 20) == "  1. kernel: more\n     operators ran"
    assert wrapped("  step_time: slower by far", 20) == "  step_time: slower\n    by far"
    assert wrapped("short\n\n  lines", 20) == "short\n\n  lines"


def test_a_narrow_table_gives_up_empty_columns_then_the_least_important_ones() -> None:
    lines = [("check", "was", "limit", "seen"), ("speed", "1" * 30, "", "5%")]
    assert fitting(lines, 60, ("seen", "limit")) == lines
    kept = fitting(lines, 37, ("seen", "limit"))
    assert kept[0] == ("check", "was", "seen")
    assert len(kept[1][1]) == LONGEST_CELL
    assert fitting(lines, 32, ("seen", "limit"))[0] == ("check", "was")


@pytest.mark.parametrize("width", [60, 80])
def test_a_profile_fits_with_names_of_operators_cut(tmp_path: Path, width: int) -> None:
    long = {f"void at::native::{f'{name} ' * 6}": times for name, times in USUAL.items()}
    run, against = run_of(tmp_path, "run", long), run_of(tmp_path, "against", USUAL)
    whole = profile_text(run, against, "text", 15)
    shown = profile_text(run, against, "text", 15, width)
    paths = [word for word in shown.split() if str(tmp_path) in word]
    assert widest(whole) > width
    assert all(
        len(line) <= width or any(path in line for path in paths) for line in shown.split("\n")
    )
    assert "share" in shown


@pytest.mark.parametrize("words", [(), ("baseline",), ("config",)])
def test_a_group_without_a_verb_prints_its_help(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.err) == (0, "")
    assert shown.out.startswith("Usage: ")
    assert len(shown.out.splitlines()) > 5
