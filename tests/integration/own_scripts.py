"""Training scripts as users have them, and the data that they read, for the tests of `exec`."""

from __future__ import annotations

import json
from pathlib import Path

from canary.workload.embedded import data_file, tiny_dir

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
