"""Runs of an output folder: named by age or by a part of their name, and the oldest removed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from canary.cli import main
from canary.errors import InputError
from canary.record.folder import RunFolder, this_process
from canary.record.runs import claim, clean, named_run, runs_in
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


def test_clean_keeps_the_newest_the_running_and_what_is_not_ours(output: Path) -> None:
    campaign = output / "ab-20261120-070000"
    add(campaign / "base", "20261120-070001-dpo-dd44")
    going = add(output, "20261110-080000-dpo-ee55", status="running", owner=this_process())
    (output / "notes").mkdir()
    (output / "20261101-080000-mine").mkdir()
    elsewhere = add(output.parent / "elsewhere", "20261102-080000-dpo-ff66")
    (output / elsewhere.name).symlink_to(elsewhere.resolve())
    removed = clean(output, 1)
    assert {path.name for path in removed} == {campaign.name, NAMES[0]}
    left = {path.name for path in output.iterdir()}
    assert left == {NAMES[1], going.name, "notes", "20261101-080000-mine", elsewhere.name}
    assert (elsewhere / "metrics.json").is_file()


def test_clean_keeps_what_is_no_run_of_ours_or_of_a_newer_version(output: Path) -> None:
    notes = output / "20250101-120000-notes"
    notes.mkdir()
    (notes / "metrics.json").write_text('{"acc": 0.9}')
    (notes / "thesis.txt").write_text("mine")
    data = output / "data-20250101-000000-backup" / "x" / "y"
    data.mkdir(parents=True)
    (data / "metrics.json").write_text("{}")
    newer = add(output, "20250101-130000-sft-aaaa")
    document = json.loads((newer / "metrics.json").read_text())
    (newer / "metrics.json").write_text(json.dumps(document | {"schema_version": 9}))
    clean(output, 0)
    assert (notes / "thesis.txt").is_file()
    assert (data / "metrics.json").is_file()
    assert newer.is_dir()


def test_clean_keeps_a_campaign_between_two_of_its_runs(output: Path) -> None:
    campaign = output / "ab-20250101-070000"
    claim(campaign)
    add(campaign / "base", "20250101-070001-dpo-dd44")
    clean(output, 0)
    assert campaign.is_dir()
    owner = this_process().model_copy(update={"pid": 2**22 + 1})
    (campaign / "owner.json").write_text(owner.model_dump_json())
    clean(output, 0)
    assert not campaign.exists(), "its process is gone"


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


def test_clean_takes_a_ladder_as_one_campaign(output: Path) -> None:
    ladder = output / "ladder-20261115-070000"
    add(ladder, "20261115-070001-sft.round1-basic-dd44")
    going = output / "ladder-20261101-070000"
    add(going, "20261101-070001-sft.trial-x-dd44", status="running", owner=this_process())
    removed = clean(output, 0)
    assert ladder in removed
    assert not ladder.exists()
    assert going.is_dir()


def test_a_missing_folder_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("list", "clean"):
        code, _, err = said(capsys, verb, str(tmp_path / "none"))
        assert (code, "no folder" in err) == (2, True)
