"""Canaries that train inside a session of pytest."""

from __future__ import annotations

import sys

import pytest

from tests.integration.conftest import PATIENT, write_config
from tests.unit.pytest_plugin.conftest import OTHERS, ROOT, plugged, without

pytest_plugins = ["pytester"]

SCRIPT = """
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for rows in torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=4):
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()
"""
TESTS = """
import sys

def test_first(canary, canary_record):
    found = canary.assert_no_regression("canary.yaml")
    assert found.verdict == "no-baseline"
    assert canary_record("canary.yaml").run_id == found.current.run_ids[0]

def test_last():
    assert "torch" not in sys.modules
"""


@pytest.mark.train
@pytest.mark.end_to_end
def test_a_real_training_is_one_of_the_session(
    pytester: pytest.Pytester,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = plugged(tmp_path_factory.mktemp("plugin") / "site")
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}", prepend=":")
    # The devices of the machine may be held by others for long; these trainings are small.
    monkeypatch.setenv("TMPDIR", str(site))
    values = {"name": "loop", "command": [sys.executable, "train.py"], "thresholds": PATIENT}
    write_config(pytester.path, values | {"look_steps": 6, "device": "cpu", "threads": 1})
    (pytester.path / "train.py").write_text(SCRIPT)
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_team=TESTS)
    shown = pytester.runpytest_subprocess(*without(OTHERS), timeout=500)
    shown.assert_outcomes(passed=2, warnings=1)
