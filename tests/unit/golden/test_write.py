"""What may become golden, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canary.cli import main
from canary.errors import InputError, MachineError, UsageError
from canary.golden.schemas import read_golden, write_golden
from canary.golden.tolerance import Tolerance
from canary.golden.write import write
from tests.unit.comparing import crashed, example
from tests.unit.golden.golden_runs import LOSSES, NORMS, run_folder, shifted


def golden_file(root: Path) -> Path:
    return root / "golden.json"


def test_the_canarys_file_holds_values_tolerances_history_and_record(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    said = write(folder, golden_file(tmp_path), "canary", [], {"loss": Tolerance("ulp", 3)})
    written = f"wrote {golden_file(tmp_path)} (canary format) from run-1"
    assert said == f"{written}: loss at 5 steps, grad_norm at 5 steps"
    golden = read_golden(golden_file(tmp_path))
    assert str(golden.metrics["loss"].tolerance) == "3ulp"
    assert golden.metrics["loss"].series.values == LOSSES
    assert golden.record is not None
    assert golden.record.run_id == "run-1"
    assert golden.record.exact
    assert golden.record.perf.approx_tokens_per_sec is None
    (entry,) = golden.history
    assert (entry.reason, entry.runs, entry.commit) == ("written", ["run-1"], "a" * 40)


def test_each_value_has_a_line_and_the_record_has_one(tmp_path: Path) -> None:
    write(run_folder(tmp_path), golden_file(tmp_path), "canary", [], {})
    lines = golden_file(tmp_path).read_text().splitlines()
    assert '    "3": 0.953125,' in lines
    assert sum('"record"' in line for line in lines) == 1


@pytest.mark.parametrize("status", ["failed", "timeout", "oom", "interrupted"])
def test_a_half_run_is_refused(tmp_path: Path, status: str) -> None:
    folder = run_folder(tmp_path, of=crashed(example(), status, "it broke"))
    with pytest.raises(InputError, match=f"run run-1 is {status}: it broke"):
        write(folder, golden_file(tmp_path), "canary", [], {})


def test_an_unknown_metric_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no metric 'grad_nrom' \(did you mean 'grad_norm'"):
        write(run_folder(tmp_path), golden_file(tmp_path), "canary", ["grad_nrom"], {})


def test_a_run_without_steps_is_refused(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    (folder / "steps.jsonl").unlink()
    with pytest.raises(InputError, match="has no steps"):
        write(folder, golden_file(tmp_path), "canary", [], {})


def test_an_existing_file_is_only_refreshed(tmp_path: Path) -> None:
    golden_file(tmp_path).write_text("mine")
    with pytest.raises(InputError, match="golden refresh"):
        write(run_folder(tmp_path), golden_file(tmp_path), "canary", [], {})
    assert golden_file(tmp_path).read_text() == "mine"


def test_launches_that_disagree_are_refused(tmp_path: Path) -> None:
    second = {"loss": shifted(LOSSES, 1e-3), "grad_norm": NORMS}
    folder = run_folder(tmp_path, launches=[second])
    with pytest.raises(InputError, match="launch 2 of run run-1 disagrees"):
        write(folder, golden_file(tmp_path), "canary", [], {})
    tolerances = {"loss": Tolerance("absolute", 1e-2)}
    write(folder, golden_file(tmp_path), "canary", [], tolerances)


def test_a_tolerance_that_the_file_cannot_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nemo format keeps no tolerances"):
        write(
            run_folder(tmp_path),
            golden_file(tmp_path),
            "nemo",
            [],
            {"loss": Tolerance("percent", 5)},
        )


def test_a_tolerance_of_a_metric_that_is_not_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'los', which is not written \(did you mean 'loss'"):
        write(run_folder(tmp_path), golden_file(tmp_path), "canary", [], {"los": Tolerance()})


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside.json"
    inside.mkdir()
    outside.write_text("theirs")
    (inside / "golden.json").symlink_to(outside)
    with pytest.raises(MachineError, match="link out of its folder"):
        write_golden(inside / "golden.json", "ours")
    assert outside.read_text() == "theirs"


def test_a_link_within_the_folder_keeps_being_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "golden.json").symlink_to("real.json")
    write_golden(tmp_path / "golden.json", "new")
    assert (tmp_path / "golden.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


def canary(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["golden", *words])
    return int(str(ended.value.code or 0))


def test_the_command_line_has_the_exit_codes_of_the_docs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same, file = str(run_folder(tmp_path)), str(golden_file(tmp_path))
    values = {"loss": shifted(LOSSES, 1e-3), "grad_norm": NORMS}
    other = str(run_folder(tmp_path, "run-2", values))
    assert canary("write", same, file) == 0
    assert canary("check", same, file) == 0
    assert canary("check", other, file) == 1
    assert canary("check", other, file, "--tolerance", "loss=1%") == 0
    assert canary("check", other, file, "--tolerance", "loss=near") == 2
    assert canary("refresh", other, file, "--reason", "a", "--limit", "loss=near") == 2
    assert canary("check", other, str(tmp_path / "none.json")) == 2
    assert canary("write", same, str(tmp_path / "x"), "--format", "megatrom") == 2
    Path(file).write_text("{}")
    assert canary("check", same, file) == 4
    lines = capsys.readouterr().err.splitlines()
    assert "did you mean 'megatron'" in lines[-2]
    assert "--limit 'loss=near' is no percentage (write --limit loss=2%)" in lines[1]
    assert len(lines) == 5


def test_the_json_of_a_check_is_one_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(golden_file(tmp_path))
    canary("write", str(run_folder(tmp_path)), file)
    values = {"loss": (*LOSSES[:3], "nan", 0.5), "grad_norm": NORMS}
    other = str(run_folder(tmp_path, "run-2", values))
    capsys.readouterr()
    canary("check", other, file, "--format", "json")
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "differs"
    assert found["metrics"][0]["first"]["run"] == "nan"
    assert found["metrics"][0]["first"]["step"] == 4
