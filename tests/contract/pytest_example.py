"""What a test says of a doubled learning rate, for docs/ci.md."""

from __future__ import annotations

import tempfile
from pathlib import Path

from canary.baseline.history import save
from canary.compare.stats import load_metrics
from canary.pytest_plugin.answers import Against, judged
from canary.pytest_plugin.asserting import Policy
from canary.pytest_plugin.trainings import Trainings
from canary.record import jsonio
from canary.record.types import RunRecord
from tests.contract.pages import ROOT

RECORD = ROOT / "baselines" / "examples" / "sft_smoke.json"
RUN = "20260105-093000-sft_smoke-7d2e"
RATE = 1e-3
WIDTH = 100


def _doubled() -> RunRecord:
    """A run whose learning rates are twice as large, and the update of the first step with them."""
    made = load_metrics(RECORD).model_copy(update={"run_id": RUN})
    rates = made.exact["trajectory"]["learning_rates"]
    made.exact["trajectory"]["learning_rates"] = [2 * rate for rate in rates if rate is not None]
    made.config["learning_rate"] = RATE
    return made


def failure_example() -> str:
    """What pytest prints below the name of the test."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        history, run = folder / "canary_history", folder / "canary_output" / RUN
        for number in range(3):
            stored = load_metrics(RECORD)
            save(history, stored.model_copy(update={"run_id": f"2026010{number}-main"}))
        run.mkdir(parents=True)
        (run / "metrics.json").write_text(jsonio.dumps(_doubled().model_dump()))
        test = "test_training.py::test_training"
        policy = Policy(test, history, False, None, False, folder, WIDTH)
        against = Against.of(folder, policy, None, None, None)
        answer = judged(run, against, policy, Trainings(folder, folder / "session"), None)
    return f"```text\n{answer.text}\n```\n"
