"""A history of baseline runs in a folder: what enters, what is compared with, what goes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from canary.baseline.comparability import machine_key
from canary.baseline.history import (
    ANCHORS,
    NOISE_FILE,
    WINDOW,
    Selection,
    drawer,
    entries,
    prune,
    save,
    save_file,
    select,
)
from canary.baseline.verbs import prune_text, save_baseline, show_text
from canary.cli import app
from canary.compare.paths import Request, compared_paths
from canary.compare.timing.noise import save_noise
from canary.errors import InputError, MachineError, RecordError
from canary.record.folder import load_record
from canary.record.types import RunRecord
from tests.unit.comparing import (
    altered,
    committed,
    crashed,
    noise_model,
    on_gpu,
    record,
    scatter,
    write,
)
from tests.unit.gating import imported

NOW = record(9000)


def filled(root: Path, count: int, first: int = 0, *, accepted: int | None = None) -> list[str]:
    """Run ids of a history of runs that scatter by half a percent; one of them accepted."""
    ids = []
    for place, factor in enumerate(scatter(count, 0.005)):
        whole = record(first + place, 0.1 * factor)
        save(root, whole, accepted="meant so" if place == accepted else None)
        ids.append(whole.run_id)
    return ids


def ids(runs: tuple[RunRecord, ...]) -> list[str]:
    return [run.run_id for run in runs]


def selected(root: Path, now: RunRecord = NOW) -> Selection:
    return select(root, now)


def test_a_saved_run_reads_back_whole(tmp_path: Path) -> None:
    path = save(tmp_path, record(3))
    assert path == drawer(tmp_path, record(3)) / "20260101T000003_run-00003.json"
    assert path.parent.parent.name == "sft_smoke"
    assert path.parent.parent.parent == tmp_path / "v2"
    (entry,) = entries(path.parent)
    assert entry.run_id == "run-00003"
    assert entry.record() == record(3)
    assert not entry.accepted


@pytest.mark.parametrize("status", ["failed", "running"])
def test_only_completed_runs_are_stored(tmp_path: Path, status: str) -> None:
    with pytest.raises(InputError, match=r"it cannot become a baseline") as caught:
        save(tmp_path, crashed(record(3), status))
    assert caught.value.exit_code == 2
    with pytest.raises(InputError, match=r"it cannot become a baseline"):
        save_file(tmp_path / "a.json", crashed(record(3), status))
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_too_short_is_not_stored(tmp_path: Path) -> None:
    short = altered(record(3), "perf", "step_time", "count", to=4)
    with pytest.raises(InputError, match="too few steps"):
        save(tmp_path, short)


def test_a_run_is_stored_once(tmp_path: Path) -> None:
    save(tmp_path, record(3))
    for again in (record(3), record(4, run_id="run-00003")):
        with pytest.raises(InputError, match=r"run run-00003 is already in .*"):
            save(tmp_path, again)
    with pytest.raises(InputError, match="already"):
        save(tmp_path, record(3), accepted="yes")
    assert len(entries(drawer(tmp_path, NOW))) == 1


def test_the_newest_twenty_are_compared_with(tmp_path: Path) -> None:
    stored = filled(tmp_path, 25)
    found = selected(tmp_path)
    assert WINDOW == 20
    assert ids(found.records) == stored[-20:]
    assert found.stored == 25


def test_order_is_that_of_time_and_not_of_saving(tmp_path: Path) -> None:
    for number in (5, 1, 3):
        save(tmp_path, record(number))
    assert ids(selected(tmp_path).records) == ["run-00001", "run-00003", "run-00005"]


def test_a_run_is_not_compared_with_itself(tmp_path: Path) -> None:
    filled(tmp_path, 4)
    found = selected(tmp_path, record(2))
    assert ids(found.records) == ["run-00000", "run-00001", "run-00003"]
    assert found.stored == 3


def test_an_accepted_run_starts_a_new_level(tmp_path: Path) -> None:
    stored = filled(tmp_path, 12, accepted=8)
    found = selected(tmp_path)
    assert ids(found.records) == stored[8:]
    assert found.stored == 4
    folder = drawer(tmp_path, NOW)
    assert [entry.run_id for entry in entries(folder) if entry.accepted] == [stored[8]]
    assert entries(folder)[8].stored().accepted == "meant so"
    assert len(entries(folder)) == 12


def test_the_first_runs_of_a_level_are_its_anchor(tmp_path: Path) -> None:
    stored = filled(tmp_path, 30, accepted=4)
    assert ANCHORS == 3
    assert ids(selected(tmp_path).anchor) == stored[4:7]


def test_a_short_level_has_no_anchor_yet(tmp_path: Path) -> None:
    filled(tmp_path, 5)
    assert selected(tmp_path).anchor == ()
    save(tmp_path, record(10))
    assert len(selected(tmp_path).anchor) == 3


def test_canaries_and_machines_lie_apart(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    for other in (
        record(50, kind="dpo"),
        on_gpu(record(51)),
        altered(record(52), "config", "dtype", to="bfloat16"),
        altered(record(53), "env", "world_size", to=2),
        altered(record(54), "env", "cpu", to="Another CPU"),
    ):
        assert selected(tmp_path, other).records == ()
        save(tmp_path, other)
    assert selected(tmp_path).stored == 3


def test_config_packages_and_commit_are_compared_and_not_kept_apart(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    other = altered(committed(NOW), "config", "learning_rate", to=1.0)
    other = altered(other, "env", "packages", "torch", to="3.0")
    assert selected(tmp_path, other).stored == 3


def test_machine_keys_are_file_names() -> None:
    odd = altered(record(), "env", "cpu", to="../A/B: 64-Core™ @ 2.0GHz")
    assert machine_key(odd) == "cpu-..-a-b-64-core-2.0ghz_x1_float32"
    assert machine_key(on_gpu(record())) == "simulated-80gb-80gib_x1_float32"


@pytest.mark.parametrize("run_id", ["../../../../../../outside", "a/b", "/tmp/outside"])
def test_a_run_id_cannot_leave_its_folder(tmp_path: Path, run_id: str) -> None:
    """A record may come from a stranger's pull request."""
    with pytest.raises(InputError):
        save(tmp_path / "history", record(3, run_id=run_id))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_start_that_is_no_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="timestamp"):
        save(tmp_path, record(3).model_copy(update={"timestamp": "yesterday"}))


@pytest.mark.parametrize(("hours", "stored"), [(23, True), (25, False)])
def test_clocks_may_differ_by_a_day(tmp_path: Path, hours: int, stored: bool) -> None:
    when = datetime.now(UTC) + timedelta(hours=hours)
    for timestamp in (when.isoformat(), when.replace(tzinfo=None).isoformat()):
        run = NOW.model_copy(update={"timestamp": timestamp, "run_id": f"r{len(timestamp)}"})
        if stored:
            assert save(tmp_path, run).exists()
            continue
        with pytest.raises(InputError, match="starts more than a day from now"):
            save(tmp_path, run)


def test_a_noise_model_beside_the_runs_is_used(tmp_path: Path) -> None:
    filled(tmp_path, 4)
    assert selected(tmp_path).noise_file is None
    file = drawer(tmp_path, NOW) / NOISE_FILE
    here = noise_model(0.01).model_copy(update={"machine_key": machine_key(NOW)})
    save_noise(here, file)
    assert selected(tmp_path).noise_file == file
    assert selected(tmp_path).stored == 4
    now = write(tmp_path / "now.json", NOW)
    found = compared_paths(Request((now,), (tmp_path,))).found
    assert found.check("step_time_median").noise == "noise model of 31 runs"


@pytest.mark.parametrize(
    "content", ["", "[]", '{"entry_version": 2}', "NaN", '{"entry_version": 1, "record": {}}']
)
def test_an_entry_that_cannot_be_read_is_never_an_empty_history(
    tmp_path: Path, content: str
) -> None:
    filled(tmp_path, 4)
    broken = entries(drawer(tmp_path, NOW))[1].path
    broken.write_text(content)
    with pytest.raises(RecordError) as caught:
        selected(tmp_path)
    assert str(broken) in str(caught.value)
    found = compared_paths(Request((write(tmp_path / "now.json", NOW),), (tmp_path,))).found
    assert found.verdict == "error"
    assert str(broken) in found.first_line
    assert found.exit_code() == 4


@pytest.mark.parametrize("accepted", [None, 3])
def test_pruning_leaves_the_anchor_of_the_drift_as_it_is(
    tmp_path: Path, accepted: int | None
) -> None:
    """Younger anchors would hide the creep that they are there to show."""
    filled(tmp_path, 30, accepted=accepted)
    before = ids(selected(tmp_path).anchor)
    prune(tmp_path, 10)
    assert ids(selected(tmp_path).anchor) == before


def test_pruning_keeps_the_newest_and_what_began_their_level(tmp_path: Path) -> None:
    stored = filled(tmp_path, 20, accepted=3)
    removed = prune(tmp_path, 8)
    left = [entry.run_id for entry in entries(drawer(tmp_path, NOW))]
    assert left[-8:] == stored[-8:]
    assert stored[3] in left
    assert not set(stored[:3]) & set(left)
    assert len(removed) + len(left) == 20
    assert ids(selected(tmp_path).records)[-8:] == stored[-8:]


def test_pruning_forgets_levels_before_the_current_one(tmp_path: Path) -> None:
    filled(tmp_path, 6, accepted=1)
    later = filled(tmp_path, 6, 100, accepted=0)
    prune(tmp_path, 6)
    assert [entry.run_id for entry in entries(drawer(tmp_path, NOW))] == later


def test_pruning_keeps_noise_models_and_other_drawers(tmp_path: Path) -> None:
    filled(tmp_path, 8)
    save(tmp_path, record(50, kind="dpo"))
    noise = drawer(tmp_path, NOW) / NOISE_FILE
    save_noise(noise_model(), noise)
    assert prune_text(tmp_path, 2).startswith("removed 3 runs")
    assert noise.exists()
    assert selected(tmp_path, record(99, kind="dpo")).stored == 1
    assert prune_text(tmp_path, 2).startswith("removed 0 runs")


def test_an_imported_run_without_step_times_has_no_time_in_the_history(tmp_path: Path) -> None:
    save(tmp_path, imported(record(1), timed=False))
    assert "nan" not in show_text(tmp_path)
    assert show_text(tmp_path).splitlines()[-1].split()[3:6] == ["-", "-", "600"]


def test_a_canary_that_a_history_lacks_is_named_with_those_it_has(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with pytest.raises(InputError, match=r"no canary 'gone' in .* \(it has: sft_smoke\)"):
        show_text(tmp_path, "gone")


def test_a_folder_without_a_history_is_refused(tmp_path: Path) -> None:
    for verb in (show_text, lambda folder: prune_text(folder, 3)):
        with pytest.raises(InputError, match="holds no baseline history"):
            verb(tmp_path)


def test_saving_by_path_keeps_a_file_or_fills_a_history(tmp_path: Path) -> None:
    source = write(tmp_path / "run" / "metrics.json", record(3)).parent
    said = save_baseline(source, tmp_path / "kept.json")
    assert said == f"saved run-00003 as {tmp_path / 'kept.json'}"
    assert load_record(tmp_path / "kept.json") == record(3)
    said = save_baseline(source, tmp_path / "history", "meant so")
    assert said.endswith("(1 run in this period)")
    assert entries(drawer(tmp_path / "history", record(3)))[0].accepted


def test_saving_where_it_makes_no_sense_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "run" / "metrics.json", record(3)).parent
    with pytest.raises(InputError, match="no periods"):
        save_baseline(source, tmp_path / "kept.json", "meant so")
    with pytest.raises(InputError, match="is the folder of a run"):
        save_baseline(source, source)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file, not a folder"):
        save_baseline(source, tmp_path / "file")
    with pytest.raises(MachineError, match="cannot write"):
        save_baseline(source, tmp_path / "file" / "kept.json")
    with pytest.raises(InputError, match="no record at"):
        save_baseline(tmp_path / "gone", tmp_path / "history")


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["history"], 100),
        (["--remote", "https://example.com/o/r.git"], 50),
        (["history", "--keep", "1"], 1),
    ],
)
def test_what_prune_keeps(arguments: list[str], kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The branch keeps as many as a push to it does."""
    monkeypatch.setattr(
        "canary.baseline.verbs.prune_text", lambda folder, keep: f"kept the newest {keep}"
    )
    monkeypatch.setattr(
        "canary.baseline.verbs.prune_branch_text",
        lambda remote, here, keep: f"kept the newest {keep}",
    )
    said = CliRunner().invoke(app, ["baseline", "prune", *arguments]).output
    assert said == f"kept the newest {kept}; the first three of the current period stay too\n"
