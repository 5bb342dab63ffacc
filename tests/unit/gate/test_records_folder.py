"""The records of the untrusted half: what is refused before anything of it is believed."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from canary.errors import EXIT_ERROR, RecordError
from canary.gate import records as limits
from canary.gate.records import Manifest, Part, extract, load_records, read_record, write_manifest
from canary.record import jsonio
from tests.unit.comparing import example


def folder(root: Path) -> Path:
    """A records folder of one completed run."""
    made = root / "records"
    run = made / "00-sft" / "current" / "run"
    run.mkdir(parents=True)
    (run / "metrics.json").write_text(jsonio.dumps(example().model_dump()), encoding="utf-8")
    write_manifest(made, Manifest(parts=[Part(config="sft.yaml", folder="00-sft")]))
    return made


def test_a_records_folder_is_read_back(tmp_path: Path) -> None:
    found = load_records(folder(tmp_path))
    runs = found.runs(found.manifest.parts[0], "current")
    assert [run.run_id for run in runs] == [example().run_id]
    assert found.runs(found.manifest.parts[0], "head") == []


def test_no_folder_is_an_error_of_its_own_and_never_a_pass(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="the training job left no record") as caught:
        load_records(tmp_path / "nothing")
    assert caught.value.exit_code == EXIT_ERROR


def link_out(root: Path) -> None:
    (root / "00-sft" / "current" / "run" / "log.txt").symlink_to("/etc/passwd")


def link_folder(root: Path) -> None:
    (root / "more").symlink_to("/etc", target_is_directory=True)


def hard_link(root: Path) -> None:
    os.link(root / "gate.json", root / "again.json")


def pipe(root: Path) -> None:
    os.mkfifo(root / "pipe")


def deep(root: Path) -> None:
    root.joinpath(*["d"] * 9).mkdir(parents=True)


def many(root: Path) -> None:
    for place in range(limits.MOST_FILES + 1):
        (root / f"{place}").touch()


def large(root: Path) -> None:
    with (root / "large").open("wb") as stream:
        stream.truncate(limits.LARGEST_FILE + 1)


@pytest.mark.parametrize("spoil", [link_out, link_folder, hard_link, pipe, deep, many, large])
def test_what_is_no_plain_folder_of_records_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    root = folder(tmp_path)
    spoil(root)
    with pytest.raises(RecordError):
        load_records(root)


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path / "records")
    with pytest.raises(RecordError):
        load_records(tmp_path / "linked")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"manifest_version": 2}',
        '{"parts": [{"config": "a", "folder": "../../etc"}]}',
        '{"parts": [{"config": "a", "folder": "/etc"}]}',
        '{"parts": [{"config": "a", "folder": "a", "pull_request": 1}]}',
        '{"pull_request": 4}',
        '{"error": ["a"]}',
        json.dumps({"error": "x" * 3000}),
        "[" * 100_000,
        '{"error": NaN}',
    ],
)
def test_a_manifest_that_is_not_as_it_should_be_is_refused(tmp_path: Path, text: str) -> None:
    root = folder(tmp_path)
    (root / "gate.json").write_text(text)
    with pytest.raises(RecordError):
        load_records(root)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("perf", {"step_time": {"mean": 1e400}}),
        ("unknown", 1),
        ("schema_version", 7),
        ("run_id", None),
        ("launches", "x"),
    ],
)
def test_a_record_off_the_schema_is_refused(tmp_path: Path, key: str, value: object) -> None:
    root = folder(tmp_path)
    path = root / "00-sft" / "current" / "run" / "metrics.json"
    document = json.loads(path.read_text())
    document[key] = value
    path.write_text(json.dumps(document))
    with pytest.raises(RecordError):
        read_record(path)


def test_a_record_over_its_cap_is_not_even_parsed(tmp_path: Path) -> None:
    path = folder(tmp_path) / "00-sft" / "current" / "run" / "metrics.json"
    with path.open("ab") as stream:
        stream.truncate(limits.LARGEST_RECORD + 1)
    with pytest.raises(RecordError, match="too large"):
        read_record(path)


def test_a_record_that_still_says_running_was_interrupted(tmp_path: Path) -> None:
    path = folder(tmp_path) / "00-sft" / "current" / "run" / "metrics.json"
    document = json.loads(path.read_text())
    document |= {"status": "running", "owner": {"pid": 1, "started": 0.0, "host": "elsewhere"}}
    path.write_text(json.dumps(document))
    assert read_record(path).status == "interrupted"


def test_more_records_than_anybody_trains_are_refused(tmp_path: Path) -> None:
    root = folder(tmp_path)
    run = root / "00-sft" / "current" / "run"
    for number in range(limits.MOST_RUNS):
        shutil.copytree(run, run.parent / f"more-{number}")
    records = load_records(root)
    with pytest.raises(RecordError, match="more than 200 current records"):
        records.runs(records.manifest.parts[0], "current")


# The artifact.


def packed(tmp_path: Path, members: dict[str, bytes], *, kind: int = 0) -> Path:
    path = tmp_path / "artifact.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = kind << 16
            archive.writestr(info, data)
    return path


def test_an_artifact_is_unpacked(tmp_path: Path) -> None:
    extract(packed(tmp_path, {"gate.json": b"{}", "a/b/c.txt": b"x"}), tmp_path / "out")
    assert (tmp_path / "out" / "a" / "b" / "c.txt").read_bytes() == b"x"


@pytest.mark.parametrize(
    "name",
    [
        "../out.txt",
        "a/../../out.txt",
        "/etc/cron.d/x",
        "C:\\x",
        "a\\..\\..\\x",
        "a/b/c/d/e/f/g/h/i",
        "file:x",
    ],
)
def test_a_member_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecordError, match="leads outside of it"):
        extract(packed(tmp_path, {name: b"x"}), tmp_path / "out")
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("kind", [stat.S_IFLNK | 0o777, stat.S_IFIFO, stat.S_IFCHR])
def test_a_member_that_is_a_link_or_a_device_is_refused(tmp_path: Path, kind: int) -> None:
    with pytest.raises(RecordError, match="is not a plain file"):
        extract(packed(tmp_path, {"gate.json": b"/etc/passwd"}, kind=kind), tmp_path / "out")


def test_a_bomb_is_stopped_at_the_cap_whatever_size_it_states(tmp_path: Path) -> None:
    path = packed(tmp_path, {"metrics.json": b"\0" * (limits.LARGEST_FILE + (1 << 20))})
    assert path.stat().st_size < 1 << 20
    with pytest.raises(RecordError, match="too large"):
        extract(path, tmp_path / "out")
    assert (tmp_path / "out" / "metrics.json").stat().st_size <= limits.LARGEST_FILE


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    members = {f"{place}": b"" for place in range(limits.MOST_FILES + 1)}
    with pytest.raises(RecordError, match="too many"):
        extract(packed(tmp_path, members), tmp_path / "out")


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("gate.json", "{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("gate.json", '{"error": "x"}')
    (tmp_path / "a.zip").write_bytes(buffer.getvalue())
    with pytest.raises(RecordError, match="holds a file twice"):
        extract(tmp_path / "a.zip", tmp_path / "out")


def test_a_member_without_a_name_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path, {"nameless.json": b"{}"})
    path.write_bytes(path.read_bytes().replace(b"nameless.json", b"\0" * 13))
    with pytest.raises(RecordError, match=r"leads outside of it|cannot be unpacked"):
        extract(path, tmp_path / "into")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK nothing")
    with pytest.raises(RecordError, match="cannot be unpacked"):
        extract(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.parametrize("how", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_that_unpack_before_they_can_be_counted_are_refused(
    tmp_path: Path, how: int
) -> None:
    """A member may state ten bytes and hold gigabytes: of these kinds a whole chunk is unpacked."""
    archive = tmp_path / "records.zip"
    with zipfile.ZipFile(archive, "w", how) as packed:
        packed.writestr("gate.json", b" " * (64 << 20))
    with pytest.raises(RecordError, match="unknown compression"):
        extract(archive, tmp_path / "out")


def test_a_table_of_contents_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    archive = tmp_path / "records.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for number in range(30_000):
            packed.writestr(f"{number:0200d}", b"")
    with pytest.raises(RecordError, match="too many files"):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()
