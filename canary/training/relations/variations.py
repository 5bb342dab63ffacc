"""Make a trainer do the same training in another way, before it begins."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

from canary.relations.ranks import KL_OF_ALL
from canary.relations.relation import Variation
from canary.training.random_states import kept_random
from canary.training.relations.first_calls import without_dropout
from canary.training.relations.rounding import epsilon, perturb

ROWS_TO_EVALUATE = 4
ADAMW = ("adamw_torch", "adamw_torch_fused")


def vary(trainer: Any, variation: Variation, run: Path) -> str | None:
    """Change a transformers Trainer; return why that is not possible, or None.

    Args:
        trainer: the trainer.
        variation: what to change.
        run: the run's folder, where a checkpoint goes: a user's other files are put back.
    """
    arguments = trainer.args
    for name, value in variation.get("arguments", {}).items():
        if not hasattr(arguments, name):
            return f"the trainer's arguments have no {name}"
        if name == "optim" and trainer.optimizer is not None:
            return "the training brings its own optimizer"
        if name == "optim" and str(getattr(arguments.optim, "value", arguments.optim)) not in ADAMW:
            return "the optimizer is not AdamW of torch"
        setattr(arguments, name, value)
    why = _on_ranks(trainer, variation["ranks"]) if "ranks" in variation else None
    if why is not None:
        return why
    if variation.get("no_dropout"):
        without_dropout(trainer.model)
        # The noise of NEFTune is random too.
        for holder in (trainer, arguments):
            if getattr(holder, "neftune_noise_alpha", None) is not None:
                holder.neftune_noise_alpha = None
    if "perturbed" in variation:
        _perturb(trainer, variation["perturbed"])
    every = variation.get("evaluate_every")
    if every is not None:
        why = _evaluates(trainer, every)
        if why is not None:
            return why
    if "save_at" in variation:
        _saves(trainer, variation["save_at"], run)
    return None


def _on_ranks(trainer: Any, ranks: int) -> str | None:
    """Give each rank its share of the micro-batches of an update."""
    arguments = trainer.args
    if arguments.world_size != ranks:
        return f"under torchrun, the number of ranks is {arguments.world_size}, not {ranks}"
    if hasattr(arguments, "num_generations"):
        return "each rank would sample its own completions"
    if getattr(trainer, "calculate_KL", False):
        return KL_OF_ALL
    if not hasattr(trainer.train_dataset, "__len__"):
        return "ranks split an iterable dataset in another way"
    micro, rest = divmod(arguments.gradient_accumulation_steps, ranks)
    if rest:
        return "an update has an odd number of micro-batches"
    arguments.gradient_accumulation_steps = micro
    return None


def _perturb(trainer: Any, seed: int) -> None:
    """Move the parameters of the policy by one rounding, and those of its reference alike."""
    arguments = trainer.args
    low = torch.bfloat16 if getattr(arguments, "bf16", False) else None
    low = torch.float16 if getattr(arguments, "fp16", False) else low
    for model in (trainer.model, getattr(trainer, "ref_model", None)):
        if model is not None:
            perturb(model, epsilon(model, low), seed)


def _evaluates(trainer: Any, every: int) -> str | None:
    from transformers.trainer_utils import IntervalStrategy

    if trainer.eval_dataset is None:
        rows = trainer.train_dataset
        if not hasattr(rows, "select") or len(rows) < 1:
            return "there are no rows to evaluate"
        trainer.eval_dataset = rows.select(range(min(ROWS_TO_EVALUATE, len(rows))))
    evaluate = trainer.evaluate

    @functools.wraps(evaluate)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        # A loader draws a number when it begins, so dropout would differ without a fault.
        with kept_random():
            return evaluate(*args, **kwargs)

    trainer.evaluate = quiet
    trainer.args.eval_strategy = IntervalStrategy.STEPS
    trainer.args.eval_steps = every
    trainer.args.eval_on_start = False
    return None


def _saves(trainer: Any, step: int, folder: Path) -> None:
    from transformers.trainer_utils import SaveStrategy

    trainer.args.output_dir = str(folder)
    trainer.args.save_strategy = SaveStrategy.STEPS
    trainer.args.save_steps = step
    trainer.args.save_total_limit = None
    trainer.args.save_only_model = False


def checkpoint_of(variation: Variation) -> str | None:
    """Return the checkpoint to begin at, if the variation resumes.

    Raises:
        FileNotFoundError: the launch before left none.
    """
    if not variation.get("resume"):
        return None
    found = sorted(Path(variation["saved_in"]).glob("checkpoint-*"))
    if not found:
        raise FileNotFoundError("the launch before left no checkpoint")
    return str(found[0])
