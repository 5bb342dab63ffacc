"""Rows for trl before 0.12, whose trainers apply no chat template: text or token ids, made here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.version import Version

from canary.protocol.spec import WorkloadSpec
from canary.training import adapt

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

TEMPLATES_SINCE = Version("0.12")
IGNORE = -100
Text = str | list[dict[str, Any]]


def as_installed(spec: WorkloadSpec, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """`rows` as they are for a trl that applies templates; otherwise text, or ids for SFT and
    reward models, with a line in `spec.notes`."""
    if adapt.installed("trl") >= TEMPLATES_SINCE:
        return rows
    spec.notes.append(
        f"trl {adapt.installed('trl')} applies no chat template: the canary makes the rows' text"
    )
    limit = spec.config.max_length or tokenizer.model_max_length
    if spec.config.training_type == "sft":
        found = rows.map(
            lambda row: _language_row(row, tokenizer, limit), remove_columns=rows.column_names
        )
        return found.filter(lambda row: any(label != IGNORE for label in row["labels"]))
    if spec.config.training_type == "reward":
        found = rows.map(lambda row: _reward_row(row, tokenizer), remove_columns=rows.column_names)
        return found.filter(
            lambda row: max(map(len, (row["input_ids_chosen"], row["input_ids_rejected"]))) <= limit
        )
    return rows.map(lambda row: _text_row(row, tokenizer))


def collator(spec: WorkloadSpec, tokenizer: PreTrainedTokenizerBase) -> Any:
    """A collator that keeps the labels of SFT's rows; None where trl's own does."""
    if adapt.installed("trl") >= TEMPLATES_SINCE:
        return None
    from transformers import DataCollatorForSeq2Seq

    return DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=IGNORE)


def _texts(prompt: Text, answer: Text, tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """A prompt and what follows it, as the chat template writes them together."""
    if isinstance(prompt, str):
        assert isinstance(answer, str)  # a row is of one kind
        return prompt, answer
    before: Any = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
    whole: Any = tokenizer.apply_chat_template([*prompt, *answer], tokenize=False)
    if not whole.startswith(before):
        before = tokenizer.apply_chat_template(prompt, tokenize=False)
    return before, whole[len(before) :]


def _ended(ids: list[int], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    eos: Any = tokenizer.eos_token_id
    return ids if ids and ids[-1] == eos else [*ids, eos]


def _ids(text: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _language_row(
    row: dict[str, Any], tokenizer: PreTrainedTokenizerBase, limit: int
) -> dict[str, Any]:
    """Labels on the completion; on everything where the row has no prompt."""
    if "prompt" in row:
        before, after = _texts(row["prompt"], row["completion"], tokenizer)
    elif "messages" in row:
        before, after = "", str(tokenizer.apply_chat_template(row["messages"], tokenize=False))
    else:
        before, after = "", row["text"]
    prompt, answer = _ids(before, tokenizer), _ended(_ids(after, tokenizer), tokenizer)
    ids = [*prompt, *answer][:limit]
    labels = [*([IGNORE] * len(prompt)), *answer][:limit]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def _reward_row(row: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for side in ("chosen", "rejected"):
        empty: Text = "" if isinstance(row[side], str) else []
        ids = _ids("".join(_texts(row.get("prompt", empty), row[side], tokenizer)), tokenizer)
        ids = _ended(ids, tokenizer)
        found |= {f"input_ids_{side}": ids, f"attention_mask_{side}": [1] * len(ids)}
    return found


def _text_row(row: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Prompt and answers as text; the trainer itself adds an EOS that is not there."""
    found: dict[str, Any] = {}
    for name in ("chosen", "rejected", "completion"):
        if name in row:
            found["prompt"], found[name] = _texts(row["prompt"], row[name], tokenizer)
    return found
