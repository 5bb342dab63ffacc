"""The half that trains: what it leaves when inputs are wrong, time runs out, or it is ended."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from canary.gate.asked import Canary, cells_at

from canary.config.load import load_config
from canary.errors import ConfigError, MachineError, UsageError
from canary.gate import run_job
from canary.gate.base_config import fork_point
from canary.gate.inputs import TrainSettings
from canary.gate.records import load_records
from canary.gate.run_job import LONGEST_PROFILE, UNFINISHED, keep, told, train
from canary.gate.single_job import without_secrets
from canary.gate.workspace import prepare, set_up

CONFIG = "training_type: sft\nname: tiny\nmax_steps: 20\n"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "one.yaml").write_text(CONFIG)
    (checkout / "two.yaml").write_text(CONFIG.replace("tiny", "other"))
    return {
        "CANARY_CONFIG": "one.yaml\ntwo.yaml",
        "CANARY_GPUS": "none",
        "CANARY_CHECKOUT": str(checkout),
        "CANARY_RECORDS": str(tmp_path / "records"),
        "CANARY_SCRATCH": str(tmp_path / "scratch"),
        "PATH": "/usr/bin:/bin",
    }


def silent(line: str) -> None:
    """Nobody listens."""


def run(environ: dict[str, str], **changes: str) -> int:
    given = environ | changes
    (Path(given["CANARY_SCRATCH"])).mkdir(exist_ok=True)
    return train(TrainSettings.read(given), given, silent)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Configs and settings of the runs, which train nothing."""
    calls: list[tuple[str, list[str]]] = []

    def alone(settings: Any, place: Any, one: Canary, overrides: list[str], *rest: Any) -> None:
        calls.append((one.title, overrides))

    monkeypatch.setattr(run_job, "_run_alone", alone)
    return calls


def test_each_config_has_its_part(environ: dict[str, str], ran: list[Any]) -> None:
    assert run(environ) == 0
    manifest = load_records(Path(environ["CANARY_RECORDS"])).manifest
    assert [(part.config, part.name, part.error) for part in manifest.parts] == [
        ("one.yaml", "tiny", ""),
        ("two.yaml", "other", ""),
    ]
    assert not manifest.error


def test_what_was_done_stays_judged_when_the_process_is_ended(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def alone(settings: Any, place: Any, one: Canary, *rest: Any) -> None:
        if one.config == "two.yaml":
            raise KeyboardInterrupt

    monkeypatch.setattr(run_job, "_run_alone", alone)
    with pytest.raises(KeyboardInterrupt):
        run(environ)
    manifest = load_records(Path(environ["CANARY_RECORDS"])).manifest
    assert [part.config for part in manifest.parts] == ["one.yaml"]
    assert manifest.error == UNFINISHED


def test_a_run_ends_within_the_time_of_the_whole(environ: dict[str, str], ran: list[Any]) -> None:
    run(environ, CANARY_TIMEOUT_MINUTES="5")
    (_, overrides), *_ = ran
    (limit,) = [float(item.removeprefix("timeout=")) for item in overrides if "timeout" in item]
    assert 290 < limit <= 300


def test_a_config_for_which_no_time_is_left_says_so(
    environ: dict[str, str], ran: list[Any]
) -> None:
    ticks = iter([0.0, 1.0, 4000.0])
    settings = TrainSettings.read(environ)
    settings.scratch.mkdir()
    assert train(settings, environ, silent, lambda: next(ticks)) == 0
    first, second = load_records(settings.records).manifest.parts
    assert not first.error
    assert second.error == "all 60 minutes are used up (raise timeout-minutes)"


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"CANARY_CONFIG": "gone.yaml"}, 2, "no config at gone.yaml"),
        ({"CANARY_CONFIG": "../../etc/passwd"}, 2, "is outside the repository"),
        ({"CANARY_COMMAND": "python x.py"}, 2, "set training_type: exec"),
        ({"CANARY_WORKING_DIRECTORY": "nowhere"}, 2, "not a folder in the checkout"),
        ({"CANARY_CHECKOUT": "/nowhere/at/all"}, 2, "no checkout at"),
    ],
)
def test_wrong_inputs_end_with_2_and_their_reason_in_the_records(
    environ: dict[str, str], changes: dict[str, str], code: int, said: str
) -> None:
    assert run(environ, **changes) == code
    manifest = load_records(Path(environ["CANARY_RECORDS"])).manifest
    reason = manifest.error or manifest.parts[0].error
    assert said in reason
    assert environ["CANARY_SCRATCH"] not in reason, "no path of the runner"


def test_inputs_that_cannot_be_read_are_told_in_the_records_too(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError), told(environ):
        TrainSettings.read(environ | {"CANARY_REPEATS": "abc"})
    manifest = load_records(Path(environ["CANARY_RECORDS"])).manifest
    assert "input repeats is 'abc'" in manifest.error


def test_records_that_cannot_be_written_are_one_line(environ: dict[str, str]) -> None:
    with pytest.raises(MachineError, match="cannot write the records folder"):
        run(environ, CANARY_RECORDS="/proc/nowhere")


def test_a_scratch_folder_that_is_used_again_holds_the_new_checkout(
    environ: dict[str, str],
) -> None:
    settings = TrainSettings.read(environ)
    settings.scratch.mkdir()
    assert (prepare(settings, environ).folder / "one.yaml").read_text() == CONFIG
    (settings.checkout / "one.yaml").write_text("name: new\n")
    assert (prepare(settings, environ).folder / "one.yaml").read_text() == "name: new\n"


@pytest.mark.slow
def test_what_setup_made_is_there_for_the_one_training_after_it(environ: dict[str, str]) -> None:
    given = environ | {"CANARY_SETUP": "touch made"}
    settings = TrainSettings.read(given)
    settings.scratch.mkdir()
    assert set_up(settings, given, silent) == 0
    place = prepare(settings, given)
    assert (place.folder / "made").exists()
    assert place.python.is_relative_to(settings.scratch / "setup-env")
    assert not (prepare(settings, given).folder / "made").exists()


@pytest.mark.slow
def test_a_setup_that_fails_shows_its_log_and_leaves_its_reason(environ: dict[str, str]) -> None:
    given = environ | {"CANARY_SETUP": "echo out of luck >&2; exit 3"}
    settings = TrainSettings.read(given)
    settings.scratch.mkdir()
    said: list[str] = []
    assert set_up(settings, given, said.append) == 4
    assert "setup: out of luck" in said
    assert "setup ended with exit code 3" in load_records(settings.records).manifest.error


def test_pairs_begin_where_the_branch_left_its_base(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = subprocess.run(
            ["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "one")
    fork = git("rev-parse", "HEAD")
    git("checkout", "-q", "-b", "change")
    git("commit", "-q", "--allow-empty", "-m", "two")
    git("checkout", "-q", "main")
    git("commit", "-q", "--allow-empty", "-m", "three")
    tip = git("rev-parse", "HEAD")
    git("checkout", "-q", "change")
    assert fork_point(tmp_path, tip) == fork
    assert fork_point(tmp_path, "f" * 40) == "f" * 40


def test_tokens_leave_the_environment_and_tokenizers_stay() -> None:
    environ = {
        "GITHUB_TOKEN": "x",
        "hf_token": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "WANDB_API_KEY": "x",
        "ACTIONS_ID_TOKEN_REQUEST_URL": "x",
        "GITHUB_ENV": "x",
        "TOKENIZERS_PARALLELISM": "false",
        "PATH": "x",
    }
    without_secrets(environ)
    assert environ == {"TOKENIZERS_PARALLELISM": "false", "PATH": "x"}


def test_rows_that_are_too_large_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_job, "LARGEST_ROWS", 10)
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (run_folder / "metrics.json").write_text("{}" * 20)
    (run_folder / "steps.jsonl").write_text("{}\n" * 20)
    keep(run_folder, tmp_path / "kept")
    assert [file.name for file in (tmp_path / "kept" / "run").iterdir()] == ["metrics.json"]


def test_a_profile_goes_with_the_record_and_a_trace_that_is_too_large_stays(tmp_path: Path) -> None:
    small, large, linked = (tmp_path / name for name in ("small", "large", "linked"))
    for made in (small, large):
        (made / "profiler").mkdir(parents=True)
        (made / "profiler" / "operators.json").write_text("{}")
        (made / "profiler" / "trace.json").write_text("{}")
    with (large / "profiler" / "trace.json").open("wb") as stream:
        stream.truncate(LONGEST_PROFILE + 1)
    linked.mkdir()
    (linked / "profiler").symlink_to(small / "profiler")
    for made in (small, large, linked):
        (made / "metrics.json").write_text("{}")
        keep(made, tmp_path / "records")
    kept = {
        str(path.relative_to(tmp_path / "records"))
        for path in (tmp_path / "records").rglob("*")
        if path.is_file()
    }
    assert kept == {
        "small/metrics.json",
        "small/profiler/operators.json",
        "small/profiler/trace.json",
        "large/metrics.json",
        "large/profiler/operators.json",
        "linked/metrics.json",
    }


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


MATRIX = """
cells:
  - {name: plain, config: one.yaml}
  - {name: half, config: two.yaml, dtype: bfloat16, ranks: 2, device: cpu, max_steps: 30}
"""


@pytest.fixture
def cells(environ: dict[str, str]) -> dict[str, str]:
    """A checkout whose base has a matrix of two cells."""
    checkout = Path(environ["CANARY_CHECKOUT"])
    (checkout / "matrix.yaml").write_text(MATRIX)
    git(checkout, "init", "-q")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "base")
    base = git(checkout, "rev-parse", "HEAD")
    return environ | {"CANARY_MATRIX": "matrix.yaml", "CANARY_BASE_SHA": base, "CANARY_CONFIG": ""}


def parts_of(environ: dict[str, str]) -> dict[str, Any]:
    manifest = load_records(Path(environ["CANARY_RECORDS"])).manifest
    assert not manifest.error, manifest.error
    return {part.cell: part for part in manifest.parts}


def test_a_cell_is_its_config_with_its_settings_and_its_name(
    cells: dict[str, str], ran: list[tuple[str, list[str]]]
) -> None:
    assert run(cells) == 0
    assert [(part.config, part.name) for part in parts_of(cells).values()] == [
        ("one.yaml", "plain"),
        ("two.yaml", "half"),
    ]
    title, overrides = ran[1]
    assert title == "cell half"
    loaded = load_config(Path(cells["CANARY_CHECKOUT"]) / "two.yaml", overrides).config
    assert (loaded.name, loaded.dtype, loaded.nproc, loaded.device) == (
        "half",
        "bfloat16",
        2,
        "cpu",
    )
    assert loaded.max_steps == 30


def test_a_job_of_one_cell_runs_that_cell_alone(cells: dict[str, str], ran: list[Any]) -> None:
    assert run(cells, CANARY_CELL="half") == 0
    assert [*parts_of(cells)] == ["half"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"CANARY_CELL": "gone"}, "matrix.yaml has no cell gone"),
        ({"CANARY_MATRIX": "gone.yaml"}, "no matrix at gone.yaml"),
        ({"CANARY_MATRIX": "../m.yaml"}, "is outside the repository"),
    ],
)
def test_a_wrong_matrix_or_cell_is_told_in_the_records(
    cells: dict[str, str], ran: list[Any], changes: dict[str, str], said: str
) -> None:
    assert run(cells, **changes) == 2
    assert said in load_records(Path(cells["CANARY_RECORDS"])).manifest.error


def test_a_change_of_a_cell_is_trained_with_the_steps_of_the_base(
    cells: dict[str, str], ran: list[tuple[str, list[str]]]
) -> None:
    matrix = Path(cells["CANARY_CHECKOUT"]) / "matrix.yaml"
    matrix.write_text(MATRIX.replace("max_steps: 30", "max_steps: 3, learning_rate: 0.5"))
    run(cells, CANARY_CELL="half")
    ((_, overrides),) = ran
    loaded = load_config(Path(cells["CANARY_CHECKOUT"]) / "two.yaml", overrides).config
    assert (loaded.max_steps, loaded.learning_rate) == (30, 0.5)
    assert "used the base branch's 30; 3 counts" in parts_of(cells)["half"].notes[0]


def test_a_cell_that_the_change_removes_still_runs(cells: dict[str, str], ran: list[Any]) -> None:
    matrix = Path(cells["CANARY_CHECKOUT"]) / "matrix.yaml"
    matrix.write_text("cells: [{name: mine, config: one.yaml}]\n")
    run(cells, CANARY_CELL="half")
    assert parts_of(cells)["half"].notes == [
        "the change removes this cell in matrix.yaml; that counts once merged"
    ]


def test_pairs_are_trained_with_the_cell_of_the_base(
    cells: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(run_job, "_run_ab", lambda *given: calls.append(given[3]))
    matrix = Path(cells["CANARY_CHECKOUT"]) / "matrix.yaml"
    matrix.write_text(MATRIX.replace("bfloat16", "float16"))
    run(cells, CANARY_CELL="half", CANARY_COMPARE="ab")
    assert "dtype=bfloat16" in calls[0]
    assert parts_of(cells)["half"].notes == [
        "the change has other settings for this cell in matrix.yaml; that counts once merged"
    ]


REFUSED = [
    ("verb: check", "verb: check"),
    ("ref: main", "ref"),
    ("stack: new", "stack"),
    ("nodes: 2", "nodes: 2"),
    ("verb: exec, command: python a.py", "verb: exec"),
    ("arguments: --quick", "arguments"),
    ("device: h100", "device: h100"),
]


@pytest.mark.parametrize(("key", "said"), REFUSED)
def test_a_cell_that_the_action_cannot_run_is_refused_in_one_line(key: str, said: str) -> None:
    text = f"stacks: {{new: {{}}}}\ncells: [{{name: a, config: one.yaml, {key}}}]\n"
    with pytest.raises(ConfigError) as caught:
        cells_at(lambda path: text.encode(), "matrix.yaml")
    assert str(caught.value) == (
        f"cell a in matrix.yaml has {said}, which the action cannot use "
        "(remove that key, or run the cell with `canary matrix`)"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("env: {A: b}\ncells: [{config: a.yaml}]", "has `env`"),
        ("matrix: {config: [a.yaml], seed: [" + "1," * 80 + "]}", "has the same name as another"),
        (f"matrix: {{config: [a.yaml], seed: {[*range(81)]}}}", "has 81 cells"),
        ("cells: []", "has no cells"),
        ("\x00", "not YAML"),
    ],
)
def test_a_matrix_that_the_action_cannot_use_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cells_at(lambda path: text.encode(), "matrix.yaml")
