"""Training scripts as users have them, their data, and ways to run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from canary.inputs.embedded import data_file, tiny_dir
from canary.record.folder import load_record
from canary.record.types import RunRecord

ROWS = 48

SFT = '''
"""A user's own script: knows nothing of the canary."""
import hashlib, sys
from pathlib import Path
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import SFTConfig, SFTTrainer

model, data = MODEL, "data_sft"
arguments = dict(
    output_dir="out", max_steps=STEPS, per_device_train_batch_size=2,
    gradient_accumulation_steps=2, learning_rate=RATE, logging_steps=1,
    logging_nan_inf_filter=False, report_to="none", bf16=False, use_cpu=True, disable_tqdm=True,
    save_strategy="no", seed=7,
)
arguments |= MORE
trainer = SFTTrainer(
    model=AutoModelForCausalLM.from_pretrained(model), args=SFTConfig(**arguments),
    train_dataset=load_dataset("json", data_files=f"{data}/train.jsonl", split="train"),
    processing_class=AutoTokenizer.from_pretrained(model),
)
BEFORE
trainer.train()
print("losses", [entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
print("rates", [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry])
trainer.save_model("final")
weights = Path("final/model.safetensors")
print("saved", hashlib.sha256(weights.read_bytes()).hexdigest() if weights.exists() else None)
AFTER
'''


def sft_script(
    folder: Path,
    name: str = "train.py",
    *,
    steps: int = 6,
    rate: float = 5e-4,
    more: str = "{}",
    before: str = "",
    after: str = "",
) -> Path:
    """Writes the SFT script; `before` and `after` are code around `train()`."""
    text = SFT.replace("MODEL", repr(str(tiny_dir()))).replace("STEPS", str(steps))
    text = text.replace("RATE", str(rate)).replace("MORE", more)
    text = text.replace("BEFORE", before).replace("AFTER", after)
    path = folder / name
    path.write_text(text)
    return path


def write_data(folder: Path) -> None:
    """The embedded data as a user's folders of JSON lines."""
    views = {"sft": "prompt_completion", "dpo": "preference", "grpo": "prompt_only"}
    for name, view in views.items():
        place = folder / f"data_{name}"
        place.mkdir(parents=True, exist_ok=True)
        lines = data_file(view).read_text(encoding="utf-8").splitlines()[:ROWS]  # type: ignore[arg-type]
        rows = [json.loads(line) for line in lines]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (place / "train.jsonl").write_text(text)


PYTHON = sys.executable
QUIET = os.environ | {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}
FASTEST = ("--name", "own")


@dataclass(frozen=True)
class Ended:
    """One ended command."""

    code: int
    out: str
    err: str
    folder: Path | None = None

    def line(self, word: str) -> str:
        """The line of standard output that begins with a word."""
        return next(line for line in self.out.splitlines() if line.startswith(word))

    def record(self) -> RunRecord:
        assert self.folder is not None, self.err
        return load_record(self.folder)


def bare(folder: Path, *words: str, given: str | None = None) -> Ended:
    """The command alone."""
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, env=QUIET, input=given, timeout=300
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def watched(
    folder: Path,
    *words: str,
    options: tuple[str, ...] = FASTEST,
    given: str | None = None,
    environment: dict[str, str] | None = None,
) -> Ended:
    """The command under `canary exec`."""
    done = subprocess.run(
        [PYTHON, "-m", "canary.cli", "exec", *options, "-o", str(folder / "runs"), "--", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=QUIET | (environment or {}),
        input=given,
        timeout=300,
    )
    runs = sorted((folder / "runs").glob("*/metrics.json"))
    return Ended(done.returncode, done.stdout, done.stderr, runs[-1].parent if runs else None)
