"""Train the embedded reward model with the trainer of the Reward canary, on other tasks' pairs."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canary.inputs.embedded import EMBEDDED_MODEL, data_file, tiny_dir
from tools.embedded.tasks import Record, make_tasks, task_stream, view_records

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

# Differs from the seeds of the shipped rows and of the checkpoint's training.
PAIRS_SEED = 17
PAIRS = 12_000
STEPS = 600
BATCH_SIZE = 32
SCALED_BY = 500
ROWS_AT_ONCE = 64
SETTINGS = {
    "training_type": "reward",
    "model_name": EMBEDDED_MODEL,
    "max_steps": STEPS,
    "batch_size": BATCH_SIZE,
    "gradient_accumulation_steps": 1,
    "allow_repeat": True,
    "learning_rate": 1e-3,
    "warmup_steps": 50,
    "max_length": 512,
    "device": "cpu",
    "threads": 1,
    "seed": 11,
}
"""The config of the canary that trains it."""

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


@dataclass(frozen=True)
class PairFigures:
    """How often (0 to 1) and by how much the chosen completion scores above the rejected one."""

    pairs: int
    accuracy: float
    mean_margin: float


def training_pairs(count: int = PAIRS) -> list[Record]:
    """Return preference rows of tasks whose prompts are not in the shipped rows."""
    shipped = {task.prompt for task in make_tasks()}
    other = (task for task in task_stream(PAIRS_SEED) if task.prompt not in shipped)
    return view_records("preference", list(islice(other, count)), PAIRS_SEED)


def held_out_pairs() -> list[Record]:
    """Return the shipped preference rows, on which the model was not trained."""
    lines = data_file("preference").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def pair_figures(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, pairs: list[Record]
) -> PairFigures:
    """Return how well a reward model ranks the pairs."""
    chosen, rejected = (_scores(model, tokenizer, pairs, side) for side in ("chosen", "rejected"))
    margins = chosen - rejected
    return PairFigures(len(pairs), float((margins > 0).float().mean()), float(margins.mean()))


def _scores(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, pairs: list[Record], side: str
) -> torch.Tensor:
    """Return the scores of conversations in the chat template: float32 (pairs,)."""
    import torch

    texts = [
        str(tokenizer.apply_chat_template(pair["prompt"] + pair[side], tokenize=False))
        for pair in pairs
    ]
    found = torch.empty(len(texts))
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    for start in range(0, len(order), ROWS_AT_ONCE):
        rows = order[start : start + ROWS_AT_ONCE]
        batch = tokenizer(
            [texts[row] for row in rows],
            add_special_tokens=False,
            padding=True,
            padding_side="right",
            return_tensors="pt",
        )
        with torch.no_grad():
            found[rows] = model(**batch).logits[:, 0]
    return found


def _to_unit_deviation(model: Any, tokenizer: PreTrainedTokenizerFast, pairs: list[Record]) -> None:
    """Scale the head so that the scores of these pairs have deviation 1. Then the default KL weight
    and value clip range suit these scores."""
    import torch

    model.eval()
    sides = [_scores(model, tokenizer, pairs, side) for side in ("chosen", "rejected")]
    with torch.no_grad():
        model.score.weight /= torch.cat(sides).std()


def write_reward(folder: Path) -> PairFigures:
    """Train on one thread and write model (float16) and tokenizer. Return the written model's
    figures on the held-out pairs."""
    import torch

    from canary.config.load import load_values
    from canary.training.trainers import WorkloadSpec, build_trainer

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as name:
            scratch = Path(name)
            rows = scratch / "pairs.jsonl"
            lines = (json.dumps(pair) + "\n" for pair in training_pairs())
            rows.write_text("".join(lines), encoding="utf-8")
            given = {**SETTINGS, "dataset_name": str(rows)}
            config = load_values(None, {key: (value, "here") for key, value in given.items()})
            spec = WorkloadSpec(config.config, scratch / "scratch", scratch / "cache", STEPS, 100)
            trainer = build_trainer(spec)
            trainer.train()
        model: Any = trainer.model
        _to_unit_deviation(model, trainer.processing_class, training_pairs(SCALED_BY))
        model.half()
        model.save_pretrained(str(folder))
        for file in TOKENIZER_FILES:
            shutil.copyfile(tiny_dir() / file, folder / file)
        return written_figures(folder, held_out_pairs())
    finally:
        torch.set_num_threads(threads)


def written_figures(folder: Path, pairs: list[Record]) -> PairFigures:
    import torch
    from transformers import AutoModelForSequenceClassification

    from canary.training.adapt import dtype_option
    from tools.embedded.build_checkpoint import load_tokenizer

    model = AutoModelForSequenceClassification.from_pretrained(
        str(folder), **dtype_option(torch.float32)
    )
    return pair_figures(model.eval(), load_tokenizer(folder), pairs)
