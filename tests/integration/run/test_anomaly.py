"""Live anomaly detection on real trainings: canaries and commands."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canary.anomaly import profiler_registry
from canary.record.jsonio import read_rows
from tests.integration.conftest import Finished, canary, run_config, settings
from tests.integration.exec.user_scripts import sft_script, write_data

pytestmark = pytest.mark.train
DOCS = Path(__file__).parents[3] / "docs" / "live.md"


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    values = settings(
        "sft",
        max_steps=30,
        look_steps=2,
        learning_rate=8.0,
        dataset_size=None,
        report_to=["tensorboard"],
    )
    folder = tmp_path_factory.mktemp("stopped")
    return run_config(folder, values, "--stop-on", "critical")


def test_stop_on_ends_the_run_at_the_alert_and_says_so(stopped_run: Finished) -> None:
    record = stopped_run.record()
    assert stopped_run.code == 4
    assert record.status == "failed"
    alerts = list(read_rows(stopped_run.folder / "alerts.jsonl"))
    last = alerts[-1]
    assert last["severity"] == "critical"
    assert f"stopped at step {last['step']} by {last['type']} (critical)" in str(record.reason)
    rows = stopped_run.rows()
    assert rows[-1]["step"] == last["step"] < 30
    assert [alert["type"] for alert in record.alerts] == [alert["type"] for alert in alerts]
    assert "lr_too_high" in {alert["type"] for alert in alerts}
    assert record.alert_summary is not None
    assert record.alert_summary.total == len(alerts)
    assert f"critical {last['type']} at step {last['step']}" in stopped_run.err


def test_a_command_is_stopped_before_what_comes_after_its_training(tmp_path: Path) -> None:
    write_data(tmp_path)
    before = (
        "class Breaks(TrainerCallback):\n"
        "    def on_step_begin(self, args, state, control, model=None, **kwargs):\n"
        "        if state.global_step == 3:\n"
        "            next(model.parameters()).data.fill_(float('nan'))\n"
        "trainer.add_callback(Breaks())\n"
    )
    script = sft_script(tmp_path, steps=6, before=before)
    done = canary(
        *("exec", "--stop-on", "critical", "-o", str(tmp_path / "out")),
        *("--", sys.executable, script.name),
        cwd=tmp_path,
    )
    (folder,) = (tmp_path / "out").glob("2*")
    record = Finished(done.code, done.out, done.err, folder).record()
    assert done.code == 1, done.err
    assert "canary: stopped at step 4 by loss_not_finite" in done.err
    assert "Traceback" not in done.err
    assert record.status == "failed"
    assert "stopped at step 4 by loss_not_finite" in str(record.reason)
    assert not (tmp_path / "final").exists()
    assert not (folder / "final").exists()
    assert "loss_not_finite" in [each["type"] for each in record.alerts]


@pytest.fixture(autouse=True)
def empty_registry() -> Iterator[None]:
    profiler_registry.clear()
    yield
    profiler_registry.clear()


def test_the_examples_of_the_docs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = DOCS.read_text(encoding="utf-8")
    loop, own = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(compile(loop, "live.md", "exec"), found)
    assert found["detector"].summary()["by_severity"]["critical"] == 1
    rows = list(read_rows(tmp_path / "run" / "alerts.jsonl"))
    assert {row["step"] for row in rows} == {40}
    exec(compile(own, "live.md", "exec"), {})
