"""What the canary says of a fault that is planted in files of frameworks that cannot run here.

The files are those of `tests/data/imports/presets`. The gates are those of the framework's config
in docs/import.md.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from canary.compare.stats import compare_to_baseline
from canary.config.load import gates_in
from canary.imports.reading import Asked
from canary.imports.record import import_run
from canary.report.render import render
from tests.contract.pages import DOCS, examples

RECORDED = Path(__file__).parents[1] / "data" / "imports" / "presets"
STORED = 3


@dataclass(frozen=True)
class Fault:
    """A recorded file, below the framework's folder, and what the fault does to its text."""

    path: str
    planted: Callable[[str], str]


def scaled(pattern: str, factor: float, form: str) -> Callable[[str], str]:
    """Multiply the numbers that follow a pattern."""

    def planted(text: str) -> str:
        found = re.compile(rf"({pattern})([\d.,]+(?:e-?\d+)?)")
        number = form.format
        return found.sub(
            lambda m: m[1] + number(factor * float(m[2].strip(",").replace(",", ""))) + _end(m[2]),
            text,
        )

    return planted


def _end(number: str) -> str:
    """The comma behind a number of JSON."""
    return "," if number.endswith(",") else ""


def ratios_off(text: str) -> str:
    """The engine of NeMo-RL samples with other probabilities than the trainer's."""
    content = json.loads(text)
    errors = content["train/token_mult_prob_error"]
    content["train/token_mult_prob_error"] = {step: 1.15 * value for step, value in errors.items()}
    return json.dumps(content)


FAULTS = {
    "verl": Fault("run.jsonl", scaled('"training/rollout_probs_diff_mean":', 3.0, "{}")),
    "nemo-rl": Fault("metrics.json", ratios_off),
    "openrlhf": Fault("console.log", scaled("'rollout/truncated_rate': ", 14.0, "{}")),
    "megatron-lm": Fault(
        "console.log", scaled(r"elapsed time per iteration \(ms\): ", 1.12, "{:.1f}")
    ),
    "torchtitan": Fault("console.log", scaled("tps: ", 0.9, "{:,.0f}")),
}


def recorded_answer(framework: str) -> str:
    """The first sentences of the comparison, on a terminal of 100 columns."""
    fault = FAULTS[framework]
    source = RECORDED / framework / fault.path
    healthy = source.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        broken = folder / source.name
        broken.write_text(fault.planted(healthy), encoding="utf-8")
        assert broken.read_text(encoding="utf-8") != healthy
        *baseline, current = (
            import_run(Asked(path, preset=framework), folder, framework)[0]
            for path in [source] * STORED + [broken]
        )
    preset = f"preset: {framework}\n"
    (config,) = (one for one in examples(DOCS / "import.md", "yaml") if preset in one)
    gates = gates_in(yaml.safe_load(config)["metrics"], "the page")
    found = compare_to_baseline(current, baseline, metrics=gates, history=True)
    first, _, _ = render(found, "text", 100).partition("\n\n")
    return f"```text\n{first}\n```\n"
