"""The log of the job that holds the token: nothing that a stranger wrote is a command there."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from canary.cli import main
from tests.github.gatehouse import Gatehouse
from tests.unit.comparing import example
from tests.unit.hostile import planted

PAYLOAD = "::error::x ##[add-mask]pass\n::stop-commands::y\r##[group]z"
OWN = re.compile(r"::(notice|warning|error) title=RLHF Canary::")


def assert_harmless(*texts: str) -> None:
    for text in texts:
        assert "##[" not in text
        for line in re.split(r"[\r\n]", text):
            assert not line.strip().startswith("::") or OWN.match(line), line


def everything(house: Gatehouse, said: Any) -> tuple[str, ...]:
    reports = [path.read_text() for path in house.root.glob("run-*/report/**/*.txt")]
    return (said.log, said.summary, *said.outputs.values(), *reports)


@pytest.mark.spread(1)
@pytest.mark.parametrize("place", [("error",), ("parts", 0, "error"), ("parts", 0, "notes")])
def test_no_text_of_the_manifest_is_a_command(
    house: Gatehouse, place: tuple[str | int, ...]
) -> None:
    def spoil(folder: Path) -> None:
        file = folder / "records" / "gate.json"
        manifest = at = json.loads(file.read_text())
        for step in place[:-1]:
            at = at[step]
        at[place[-1]] = [PAYLOAD] if place[-1] == "notes" else PAYLOAD
        file.write_text(json.dumps(manifest))

    house.spoil = spoil
    said = house.judge(house.pull(), house.run())
    assert_harmless(*everything(house, said))


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("status", "config"),
    [("completed", "canary.yaml"), ("failed", "canary.yaml"), ("completed", "new.yaml")],
)
def test_no_text_of_a_record_is_a_command(house: Gatehouse, status: str, config: str) -> None:
    house.baseline(3)
    record = planted(PAYLOAD)
    record.status = status  # type: ignore[assignment]
    record.run_id = "hostile"
    record.config |= {key: example().config[key] for key in ("max_steps", "look_steps")}
    said = house.judge(house.pull(), record, config=config, of=config)
    assert_harmless(*everything(house, said))


def test_no_key_or_value_that_is_refused_is_a_command(house: Gatehouse) -> None:
    pull = house.pull()
    for path in (("config", "max_steps"), ("exact", "batches"), ("memory", PAYLOAD)):
        said = house.judge_raw(pull, house.run(), path, PAYLOAD)
        assert_harmless(*everything(house, said))


def test_the_commit_of_the_base_is_an_output_only_where_it_is_one(house: Gatehouse) -> None:
    house.baseline(3)
    said = house.judge(house.pull(), house.run())
    assert re.fullmatch("[0-9a-f]{40}", said.outputs["baseline-sha"])


def test_an_error_that_ends_the_job_is_on_the_jobs_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "CANARY_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.setattr("canary.cli.gate.stoppable", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main(["gate", "report"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "::error title=RLHF Canary::GITHUB_REPOSITORY is empty (run this verb in" in said
