"""Prompts are not trained on."""

from __future__ import annotations

from collections.abc import Sequence

from canary.relations.conversations import asked
from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds

RELATION = Relation(
    "prompt_labels",
    "what is trained",
    "if only answers are trained on, no prompt token is trained on",
    "the collator or the mask lets labels of the prompt through",
    "https://github.com/huggingface/trl/issues/1507",
)
ANSWERS = 0.95
"""Share of the answers' tokens that must be trained, before a mask counts as one of prompts."""


def ask(look: Look) -> Outcome:
    """Look for trained tokens of prompts."""
    kinds = _kinds(look)
    masks = _masks(look, kinds)
    found = asked(look)
    of = ""
    if "ORPOTrainer" in kinds:
        # The likelihood of chosen answers covers the prompt on purpose.
        found = [one for one in found if one.side == "rejected"]
        of = " of rejected answers"
    prompts = [(one, place) for one in found for place in one.places("prompt")]
    if not prompts:
        raise CannotAsk("the data does not say what is prompt and what is answer")
    trained = [(one, place) for one, place in prompts if one.document.trained[place]]
    words = f"{len(trained)} of {len(prompts)} prompt tokens{of} are trained on"
    if not trained:
        return holds(RELATION, f"none of {len(prompts)} prompt tokens{of} is trained on")
    if not masks:
        if len(trained) == len(prompts):
            raise CannotAsk("all tokens are trained on, as in plain language modelling")
        answers = [one.document.trained[place] for one in found for place in one.places("answer")]
        if sum(map(bool, answers)) < ANSWERS * len(answers):
            raise CannotAsk("only some tokens of prompts and answers are trained on")
    one, place = trained[0]
    column = one.document.first + place
    return broken(
        RELATION,
        words,
        f"row {one.document.row}, token {column}",
        (len(trained), len(prompts)),
    )


def _kinds(look: Look) -> list[str]:
    """Return the classes of trl that a trainer is one of."""
    return [one.__name__ for one in type(look.trainer).__mro__ if one.__module__.startswith("trl.")]


def _masks(look: Look, kinds: Sequence[str]) -> bool:
    """Whether the trainer's settings leave prompts out of the loss.

    Raises:
        CannotAsk: they train on prompts on purpose.
    """
    if not any(one.endswith("Trainer") for one in kinds):
        return False
    arguments, first = look.trainer.args, next(iter(look.examples), {})
    if "messages" in first:
        return bool(getattr(arguments, "assistant_only_loss", False))
    if "SFTTrainer" in kinds:
        if not hasattr(arguments, "completion_only_loss"):
            return False
        if arguments.completion_only_loss is False:
            raise CannotAsk("completion_only_loss is false: prompts are trained on, on purpose")
        return "completion" in first
    return "chosen" in first or "label" in first
