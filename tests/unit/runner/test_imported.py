"""`import:` in a config: the command runs once, unwatched, and only what it left is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from canary.config.load import load_config
from canary.errors import ConfigError
from canary.gate.base_config import held_settings
from canary.imports.entries import Telling
from canary.imports.files import Before, files_of
from canary.record.types import RunRecord
from canary.runner.display.progress import listener_for
from canary.runner.run import run_canary

TRAIN = """
import json, os, sys
steps, code, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
assert not any(name.startswith("_RLHF_CANARY") for name in os.environ)
os.makedirs("left", exist_ok=True)
with open("left/metrics.jsonl", mode) as file:
    for step in range(1, steps + 1):
        row = {"step": step, "loss": 1 / step, "grad_norm": 1.0, "learning_rate": 1e-5}
        file.write(json.dumps(row) + "\\n")
print("trained")
sys.exit(code)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    return tmp_path


def ran(steps: int = 20, code: int = 0, mode: str = "w", **other: Any) -> RunRecord:
    words = other.pop("command", f"[python3, train.py, '{steps}', '{code}', {mode}]")
    section = other.pop("section", "{source: left}")
    Path("canary.yaml").write_text(
        f"name: mine\ncommand: {words}\nimport: {section}\n"
        + "".join(f"{key}: {value}\n" for key, value in other.items()),
        encoding="utf-8",
    )
    with Path(os.devnull).open("w") as quiet:
        record, _, _ = run_canary(
            load_config("canary.yaml"), listener_for(quiet, True), Path("out")
        )
    return record


def test_the_record_is_made_from_what_the_command_left() -> None:
    record = ran()
    assert record.status == "completed"
    assert record.source is not None
    assert record.config["training_type"] == "transformers"
    assert len(record.stability.loss_values) == 20
    assert record.env["device"]["type"] in ("cpu", "cuda")
    assert len(record.launches) == 1


def test_a_stale_file_never_passes() -> None:
    ran()
    record = ran(command="[python3, -c, pass]")
    assert record.status == "failed"
    assert "left nothing in the source; all 1 of its files are older" in (record.reason or "")


def test_a_touched_file_is_still_stale() -> None:
    ran()
    record = ran(command="[touch, left/metrics.jsonl]")
    assert record.status == "failed"


def test_a_file_that_was_written_anew_counts_and_one_that_grew_is_refused() -> None:
    ran(steps=40)
    assert len(ran(steps=10).stability.loss_values) == 10
    record = ran(steps=10, mode="a")
    assert record.reason == ("metrics.jsonl was there before the launch, which appended to it")


def test_nothing_left_is_a_failed_run_that_names_the_source() -> None:
    record = ran(command="[python3, -c, pass]")
    assert record.status == "failed"
    assert record.reason == "the launch left nothing: left does not exist"


@pytest.mark.parametrize(
    ("other", "status", "said"),
    [
        ({"code": 3}, "failed", "the command exited with code 3: trained"),
        ({"command": "[sleep, '60']", "timeout": 1}, "timeout", "hit the timeout"),
        ({"command": "[no-such-program]"}, "failed", "cannot start no-such-program"),
    ],
)
def test_a_command_that_fails_makes_no_record_to_judge(
    other: dict[str, Any], status: str, said: str
) -> None:
    record = ran(**other)
    assert record.status == status
    assert said in (record.reason or "")
    assert record.source is None


def test_an_error_at_the_end_of_the_output_fails_a_run_whose_exit_code_is_hidden() -> None:
    line = "{'loss': 1.0, 'grad_norm': 1.0, 'learning_rate': 1e-05}"
    error = "RuntimeError: CUDA out of memory"
    Path("train.log").write_text(f"{line}\n" * 9 + error, encoding="utf-8")
    record = ran(command="[cat, train.log]", section="{source: '-', preset: transformers}")
    assert (record.status, record.reason) == ("failed", error)


def test_the_commands_own_output_is_read_by_a_preset() -> None:
    Path("loud.py").write_text(
        "for step in range(1, 21):\n"
        "    print(f\"{{'loss': {1 / step}, 'grad_norm': 1.0, 'learning_rate': 1e-05}}\")\n",
        encoding="utf-8",
    )
    record = ran(command="[python3, loud.py]", section="{source: '-', preset: transformers}")
    assert record.status == "completed", record.reason
    assert record.stability.loss_values[3] == 0.25


def test_a_preset_of_the_users_own_has_its_hash_in_the_record(folder: Path) -> None:
    (folder / "mine.yaml").write_text("framework: mine\nmetrics: {loss: [loss]}\n", "utf-8")
    record = ran(section="{source: left, preset: mine.yaml}")
    assert record.config["training_type"] == "mine"
    assert len(record.config["preset_sha256"]) == 64


def test_keys_that_need_a_watched_training_are_refused() -> None:
    for key in ("max_steps: 5", "repeats: 3", "look_steps: 4", "threads: 2", "stop_on: high"):
        with pytest.raises(ConfigError, match="does not work with `import`"):
            loaded(f"import: {{source: left}}\n{key}\n")


def loaded(text: str) -> Any:
    Path("canary.yaml").write_text(f"command: [python3, train.py]\n{text}", encoding="utf-8")
    return load_config("canary.yaml")


def test_a_pull_request_reads_the_source_and_preset_of_the_base_branch() -> None:
    base = loaded("import: {source: left}\n")
    settings = held_settings(base)
    Path("canary.yaml").write_text(
        "command: [python3, train.py]\nimport: {source: mine, preset: mine.yaml, format: csv}\n",
        encoding="utf-8",
    )
    head = load_config("canary.yaml", settings)
    assert head.config.imports == base.config.imports


def test_a_pull_request_cannot_turn_a_watched_command_into_an_import() -> None:
    settings = held_settings(loaded(""))
    Path("canary.yaml").write_text(
        "command: [python3, train.py]\nimport: {source: mine}\n", encoding="utf-8"
    )
    assert load_config("canary.yaml", settings).config.imports is None


def test_a_link_in_the_source_is_not_followed(folder: Path) -> None:
    (folder / "source").mkdir()
    (folder / "secret.jsonl").write_text('{"step": 1, "loss": 1}\n', encoding="utf-8")
    (folder / "source" / "a.jsonl").symlink_to(folder / "secret.jsonl")
    telling = Telling()
    assert files_of(folder / "source", telling) == []
    assert telling.sentences() == ["a.jsonl: a link was not followed"]
    assert Before.of(folder / "source").files == {}


def test_a_preset_that_does_not_exist_is_refused_before_a_run_is_made() -> None:
    with pytest.raises(ConfigError, match=r"import\.preset in canary\.yaml:\d+: no preset 'trlx'"):
        ran(section="{source: left, preset: trlx}")
    with pytest.raises(ConfigError, match=r"import\.preset in canary\.yaml:\d+: cannot read"):
        ran(section="{source: left, preset: nope.yaml}")
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("loss", []),
        ("losss", ["no value of losss was recorded: its gate cannot be judged "
                   "(did you mean 'loss'?)"]),
        ("max_memory_bytes", ["no value of max_memory_bytes was recorded: its gate cannot be "
                              "judged"]),
    ],
)  # fmt: skip
def test_a_gate_on_a_metric_that_nobody_recorded_is_told_at_the_end(
    name: str, notes: list[str]
) -> None:
    found = ran(metrics=f"[{{name: {name}, limit: 5%, worse: higher}}]").notes
    assert [note for note in found if "its gate" in note] == notes


@pytest.mark.parametrize(("name", "form"), [("left.db", "null"), ("left.jsonl", "jsonl")])
def test_a_stale_file_does_not_pass_because_of_its_name(name: str, form: str, folder: Path) -> None:
    (folder / name).write_text('{"step": 1, "loss": 0.1}\n' * 20, encoding="utf-8")
    section = f"{{source: {name}, preset: none, format: {form}}}"
    record = ran(command="['true']", section=section)
    assert record.status == "failed"
    assert "left nothing" in (record.reason or "")
