"""Runs of an output folder: named by age or by a part of their name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from canary.cli import main
from canary.errors import InputError
from canary.record.folder import RunFolder
from canary.record.runs import named_run, next_command, runs_in
from canary.report.runs_table import runs_text
from tests.unit.comparing import record

NAMES = tuple(f"2026112{day}-080000-{name}" for day, name in enumerate(("dpo-aa11", "sft-bb22")))


def add(root: Path, run_id: str, **changes: object) -> Path:
    folder = RunFolder(root / run_id)
    folder.path.mkdir(parents=True)
    folder.write(record(1, run_id=run_id).model_copy(update=changes))
    return folder.path


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`canary_output` of the current folder, with two runs."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        add(Path("canary_output"), name)
    return Path("canary_output")


def test_a_run_is_named_by_its_age_or_a_unique_part_of_its_name(output: Path) -> None:
    assert named_run("latest") == output / NAMES[1]
    assert named_run("latest~1") == output / NAMES[0]
    assert named_run("aa11") == output / NAMES[0]
    assert named_run(NAMES[1]) == output / NAMES[1]


def test_a_run_ends_with_the_command_that_compares_it_with_the_one_before(output: Path) -> None:
    first, newest = output / NAMES[0], add(output, "20261125-080000-dpo-cc33")
    assert next_command(newest) == "next: canary compare latest latest~2"
    assert next_command(first).endswith(f"run it again, then: canary compare NEW {first}")
    add(Path("my runs"), "20261125-080000-long-dpo-cc33")
    other = add(Path("my runs"), "20261126-080000-dpo-dd44")
    assert next_command(other).endswith(f"canary compare NEW '{other}'")


def test_a_look_alone_is_no_run_before_a_whole_one(output: Path) -> None:
    checked = record(1, run_id="20261125-080000-dpo-cc33").config | {"exact": True}
    add(output, "20261125-080000-dpo-cc33", config=checked)
    newest = add(output, "20261126-080000-dpo-dd44")
    assert next_command(newest) == "next: canary compare latest latest~3"


def test_a_failed_run_is_not_compared_with(output: Path) -> None:
    add(output, "20261125-080000-dpo-cc33", status="failed")
    newest = add(output, "20261126-080000-dpo-dd44")
    assert next_command(newest) == "next: canary compare latest latest~3"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("latest~2", r"latest~2: canary_output holds 2 runs \(`canary list` names them\)"),
        ("-080000-", r"'-080000-' is in the names of 2 runs: .*aa11, .*bb22 \(name one\)"),
    ],
)
def test_a_name_that_means_no_run_or_several_is_refused(output: Path, text: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        named_run(text)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return (ended.value.code, *capsys.readouterr())


def test_the_verbs_take_these_names(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "compare", "latest", "aa11")
    assert code == 0
    assert f"baseline  {NAMES[0]}" in out
    assert f"current   {NAMES[1]}" in out
    for verb in ("compare", "report", "profile", "save-baseline"):
        code, _, err = said(capsys, verb, "latest~7", "history")
        assert (code, "holds 2 runs" in err) == (2, True), verb


def test_list_names_each_run_with_its_figures(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (add(output, "20261128-080000-odd-cc33") / "metrics.json").write_text("{}")
    code, out, _ = said(capsys, "list")
    heading, first, second, odd = out.splitlines()
    assert code == 0
    assert heading.split()[:2] == ["run", "status"]
    assert first.split() == [NAMES[0], "completed", "100", "100", "ms", "600", "MB", "0.9738"]
    assert second.startswith(NAMES[1])
    assert odd.split() == ["20261128-080000-odd-cc33", "unreadable"]


def test_a_line_of_the_list_names_its_run(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(output / "ab-20261128-090000" / "base", "20261128-090000-dpo_smoke-cc33")
    _, out, _ = said(capsys, "list")
    names = [line.split()[0] for line in out.splitlines()[1:]]
    assert [named_run(name) for name in names] == [output / name for name in names]
    assert len(names) == 3


def test_runs_of_campaigns_have_names_too(output: Path) -> None:
    """But the last one may be of the baseline: it is not the latest run, unless it is alone."""
    run = add(output / "demo-20991120-070000" / "masked_eos", "20991120-070001-demo-dd44")
    assert named_run("latest", output) == output / NAMES[1]
    other = add(output.parent / "other" / "ab-20991120-070000" / "head", "20991120-070001-x-ee55")
    assert named_run("latest", output.parent / "other") == other
    assert named_run("dd44", output) == run
    assert str(run.relative_to(output)) in runs_text(runs_in(output), output)


def test_a_pipe_in_place_of_a_record_is_an_unreadable_run(output: Path) -> None:
    odd = output / "20250101-120000-odd"
    odd.mkdir()
    os.mkfifo(odd / "metrics.json")
    (run,) = (run for run in runs_in(output) if run.path == odd)
    assert run.record is None


def test_a_missing_folder_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "list", str(tmp_path / "none"))
    assert (code, "no folder" in err) == (2, True)
