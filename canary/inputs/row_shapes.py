"""Convert the rows of a dataset to the rows that a trainer takes. Pure.

A row is a dict; a text is a string (plain) or a list of `{role, content}` (conversational).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from canary.config.trainers import trainer_row
from canary.errors import InputError
from canary.inputs.embedded import View

Example = dict[str, Any]

HH_HUMAN = "\n\nHuman:"
HH_ASSISTANT = "\n\nAssistant:"

Converter = Callable[[Example], Example | None]
"""Returns the row in a trainer's shape; None for a row without a usable prompt."""


@dataclass(frozen=True)
class Shape:
    """The rows that some trainers take."""

    accepts: str
    """All rows that can be converted, in words."""
    needs: tuple[str, ...]
    """The columns of the simplest rows."""
    converter: Callable[[set[str], Example], Converter | None]
    """Takes a dataset's columns and first row; returns None if it cannot convert them."""
    embedded: View
    """The embedded dataset of this shape."""
    instead: str = ""
    """Columns that can replace the needed ones."""
    takes_apart: bool = False
    """Pairs become two rows each; see `unpaired`."""


def shape_of(training_type: str) -> Shape:
    """Return the shape of a built-in trainer's rows. Raises KeyError for other trainers."""
    return SHAPES[trainer_row(training_type).rows]


def is_raw_conversation(text: object) -> bool:
    """Return whether a text is one string with a whole dialogue, as in Anthropic/hh-rlhf."""
    return isinstance(text, str) and text.startswith(HH_HUMAN) and HH_ASSISTANT in text


def is_conversational(row: Example) -> bool:
    """Return whether the row's texts are lists of messages, which need a chat template."""
    return any(
        isinstance(row.get(key), list) for key in ("prompt", "messages", "completion", "chosen")
    )


def _shared(ours: Sequence[Any], theirs: Sequence[Any]) -> int:
    """Return how many first characters or messages two texts share."""
    pairs = zip(ours, theirs, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def split_raw_pair(chosen: str, rejected: str) -> Example | None:
    """Return prompt, chosen and rejected of two raw conversations; None if they share no turn.

    The prompt ends with the last Assistant marker that both share. The rest, also further turns, is
    the completion, so that prompt + completion is the raw text.
    """
    start = chosen.rfind(HH_ASSISTANT, 0, _shared(chosen, rejected))
    if start < 0:
        return None
    cut = start + len(HH_ASSISTANT)
    return {"prompt": chosen[:cut], "chosen": chosen[cut:], "rejected": rejected[cut:]}


def split_raw_single(conversation: str) -> Example | None:
    """Return prompt and completion (the last Assistant turn) of one raw conversation."""
    start = conversation.rfind(HH_ASSISTANT)
    if start < 0:
        return None
    cut = start + len(HH_ASSISTANT)
    return {"prompt": conversation[:cut], "completion": conversation[cut:]}


def split_messages(
    chosen: Sequence[dict[str, Any]], rejected: Sequence[dict[str, Any]]
) -> Example | None:
    """Return prompt (the common start), chosen and rejected of two message lists."""
    common = min(_shared(chosen, rejected), len(chosen) - 1, len(rejected) - 1)
    if common < 1:
        return None
    return {
        "prompt": list(chosen[:common]),
        "chosen": list(chosen[common:]),
        "rejected": list(rejected[common:]),
    }


def converter_for(
    training_type: str, columns: Sequence[str], first: Example, dataset_name: str
) -> Converter:
    """Return the conversion that fits the dataset's columns and first row.

    Raises InputError with the missing columns and those found.
    """
    shape = shape_of(training_type)
    converter = shape.converter(set(columns), first)
    if converter is not None:
        return converter
    missing = [name for name in shape.needs if name not in columns]
    if shape.instead and not missing:
        missing = [shape.instead]
    if not missing:
        kinds = ", ".join(f"{k} is a {type(first[k]).__name__}" for k in shape.needs)
        raise InputError(
            f"dataset '{dataset_name}' has the columns for {training_type}, but with types that do "
            f"not fit: {kinds}",
            f"{training_type} takes {shape.accepts}; all text, or all lists of messages",
        )
    raise InputError(
        f"dataset '{dataset_name}' has no {_listed(missing)} for {training_type}; "
        f"columns found: {_listed(columns)}",
        f"{training_type} takes {shape.accepts}",
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


def _pick(*names: str) -> Converter:
    """Return a converter that keeps these columns and `tools`; it drops a row without one."""

    def pick(row: Example) -> Example | None:
        if any(row.get(name) is None for name in names):
            return None
        kept = {name: row[name] for name in names}
        return kept | ({"tools": row["tools"]} if row.get("tools") else {})

    return pick


def _completion_converter(columns: set[str], first: Example) -> Converter | None:
    if {"prompt", "completion"} <= columns:
        return _pick("prompt", "completion")
    if {"prompt", "chosen"} <= columns and not is_raw_conversation(first["chosen"]):
        return lambda row: (
            None
            if row["prompt"] is None or row["chosen"] is None
            else {"prompt": row["prompt"], "completion": row["chosen"]}
        )
    if "messages" in columns:
        return _pick("messages")
    if "text" in columns:
        return _pick("text")
    if "chosen" in columns and is_raw_conversation(first["chosen"]):
        return lambda row: split_raw_single(row["chosen"] or "")
    if "chosen" in columns and isinstance(first["chosen"], list):
        return lambda row: {"messages": row["chosen"]} if row["chosen"] else None
    return None


def _pair_converter(columns: set[str], first: Example) -> Converter | None:
    if not {"chosen", "rejected"} <= columns:
        return None
    if is_raw_conversation(first["chosen"]):
        return lambda row: split_raw_pair(row["chosen"] or "", row["rejected"] or "")
    if "prompt" in columns and isinstance(first["prompt"], type(first["chosen"])):
        return _pick("prompt", "chosen", "rejected")
    if isinstance(first["chosen"], list):
        return lambda row: split_messages(row["chosen"] or [], row["rejected"] or [])
    return None


def _prompt_converter(columns: set[str], first: Example) -> Converter | None:
    def prompt_of(row: Example) -> Example | None:
        """Return the prompt with the columns beside the conversations, such as `answer`."""
        split = split_raw_single(row["chosen"] or "")
        beside = {name: value for name, value in row.items() if name not in ("chosen", "rejected")}
        return split and beside | {"prompt": split["prompt"]}

    if "prompt" in columns:
        return lambda row: row if row["prompt"] is not None else None
    if "chosen" in columns and is_raw_conversation(first["chosen"]):
        return prompt_of
    return None


def _scored_pair_converter(columns: set[str], first: Example) -> Converter | None:
    pairs = _pair_converter(columns, first)
    whole_texts = {"chosen", "rejected"} <= columns and "prompt" not in columns
    if pairs is None and whole_texts and isinstance(first["chosen"], str):
        return _pick("chosen", "rejected")
    return pairs


def _label_converter(columns: set[str], first: Example) -> Converter | None:
    """Unpaired rows, or pairs that `unpaired` takes apart."""
    if not {"prompt", "completion", "label"} <= columns:
        return _pair_converter(columns, first)
    pick = _pick("prompt", "completion", "label")

    def labelled(row: Example) -> Example | None:
        kept = pick(row)
        if kept is not None and kept["label"] in (0, 1):
            kept["label"] = bool(kept["label"])
        return kept

    return labelled


def unpaired(pairs: Sequence[Example]) -> list[Example]:
    """Return two rows (prompt, completion, label) per pair; the chosen one has label True.

    A pair's rejected row comes half the data later than its chosen row. So neighbouring rows, which
    KTO's KL term mixes, have different prompts.
    """
    half = len(pairs) // 2
    rows: list[Example] = []
    for number, good in enumerate(pairs):
        bad = pairs[(number + half) % len(pairs)]
        rows.append(_labelled(good, "chosen"))
        rows.append(_labelled(bad, "rejected"))
    return rows


def _labelled(pair: Example, side: str) -> Example:
    beside = {"tools": pair["tools"]} if "tools" in pair else {}
    label = side == "chosen"
    return {"prompt": pair["prompt"], "completion": pair[side], "label": label} | beside


_PAIRS = "prompt+chosen+rejected, or whole conversations in 'chosen' and 'rejected'"
_PROMPTS = "prompt+answer, or prompt with reward_functions"
SHAPES: dict[str, Shape] = {
    "completion": Shape(
        "prompt+completion, prompt+chosen, messages, text, or a raw conversation in 'chosen'",
        ("prompt", "completion"),
        _completion_converter,
        "prompt_completion",
        instead="messages or text",
    ),
    "pair": Shape(_PAIRS, ("prompt", "chosen", "rejected"), _pair_converter, "preference"),
    "scored pair": Shape(
        f"{_PAIRS}, or whole texts in both",
        ("chosen", "rejected"),
        _scored_pair_converter,
        "preference",
    ),
    "label": Shape(
        f"prompt+completion+label, or pairs: {_PAIRS}",
        ("prompt", "completion", "label"),
        _label_converter,
        "preference",
        takes_apart=True,
    ),
    "prompt": Shape(_PROMPTS, ("prompt", "answer"), _prompt_converter, "prompt_only"),
    "scored prompt": Shape(
        f"{_PROMPTS} or a reward_model", ("prompt", "answer"), _prompt_converter, "prompt_only"
    ),
}
"""`rows` in `canary.config.trainers` -> the shape."""
