"""The batches of a step: token counts, and hashes of their tensors.

Layouts: SFT (`input_ids, labels`); DPO, KTO and Reward (`input_ids, attention_mask` and, except for
Reward, `completion_mask`); ORPO and CPO (`chosen_input_ids, chosen_labels, ...`, `rejected_...`);
online RL (`prompt_ids, prompt_mask, completion_ids, completion_mask`); older trl
(`input_ids_chosen`; prompts separate from completions).
"""

from __future__ import annotations

import functools
import hashlib
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from canary.record.exact import Micro

IGNORE = -100
"""The label that the loss ignores."""


@dataclass(frozen=True)
class Part:
    """Padded sequences of a batch: `ids`, `present` (not padding) and `learned`, all of one shape.

    `learned`: the positions in the loss; None if the loss is not on tokens. `repeats`: how many
    sequences of the model's input begin with each of these.
    """

    ids: torch.Tensor
    present: torch.Tensor
    learned: torch.Tensor | None
    repeats: int = 1
    labels: torch.Tensor | None = None
    """The batch's own labels; None if the ids are learned as they are."""

    @property
    def targets(self) -> torch.Tensor:
        """The ids that the positions in the loss teach."""
        return self.ids if self.labels is None else self.labels


ROLLOUT = ("prompt", "completion")
PAIRS = (("chosen_{}", "rejected_{}"), ("{}_chosen", "{}_rejected"))
"""Names of a preference pair's tensors, around `input_ids`, `attention_mask`, `labels`."""


def parts(inputs: Mapping[str, Any]) -> list[Part]:
    """Return the sequences in the loss, by the layout of the batch.

    KTO's mismatched pairs (`KL_...`) only estimate a baseline and are left out.
    """
    inputs = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    if all(f"{side}_{part}" in inputs for side in ROLLOUT for part in ("ids", "mask")):
        learned = inputs["completion_mask"].bool()
        prompt = inputs["prompt_mask"].bool()
        nothing = torch.zeros_like(prompt)
        return [
            Part(inputs["prompt_ids"], prompt, nothing),
            Part(inputs["completion_ids"], learned, learned),
        ]
    for names in PAIRS:
        if all(name.format("input_ids") in inputs for name in names):
            found = [_part(inputs, name) for name in names]
            if "prompt_input_ids" in inputs and "chosen_labels" not in inputs:
                # Prompts are separate from both completions.
                prompt = _part(inputs, "prompt_{}")
                nothing = torch.zeros_like(prompt.present)
                found.insert(0, Part(prompt.ids, prompt.present, nothing, repeats=2))
            return found
    if "completion_input_ids" in inputs:
        return [_part(inputs, "completion_{}")]
    return [_part(inputs, "{}")] if "input_ids" in inputs else []


def _part(inputs: Mapping[str, Any], name: str) -> Part:
    """Return the sequences under `name`, a format for `input_ids`, `labels` and so on."""
    ids = inputs[name.format("input_ids")]
    mask, labels = inputs.get(name.format("attention_mask")), inputs.get(name.format("labels"))
    # A mask of whole attention, such as one of packed texts, says nothing of padding.
    if mask is None or mask.shape != ids.shape:
        mask = torch.ones_like(ids)
    present = mask.bool()
    completion = inputs.get(name.format("completion_mask"))
    if labels is not None and labels.shape == ids.shape:
        return Part(ids, present, labels.ne(IGNORE), labels=labels)
    if completion is not None:
        return Part(ids, present, completion.bool())
    # Completions separate from their prompts are in the loss completely.
    return Part(ids, present, present if "prompt_input_ids" in inputs else None)


def count_tokens(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor | int]:
    """Return token counts of one micro-batch, left on the device.

    `input_tokens`: positions that are not padding. `label_tokens`: positions in the loss; missing
    for a reward model. `completion_tokens`: generated tokens, in online RL only.
    """
    found = parts(inputs)
    if not found:
        labels = inputs.get("labels")
        return {"label_tokens": labels.ne(IGNORE).sum()} if isinstance(labels, torch.Tensor) else {}
    counts: dict[str, torch.Tensor | int] = {
        "input_tokens": _total([part.present.sum() for part in found for _ in range(part.repeats)])
    }
    learned = [part.learned.sum() for part in found if part.learned is not None]
    if learned:
        counts["label_tokens"] = _total(learned)
    if learned and "completion_ids" in inputs and "prompt_ids" in inputs:
        counts["completion_tokens"] = counts["label_tokens"]
    return counts


def rows_of(inputs: Mapping[str, Any]) -> int:
    """Return the number of samples: the first dimension of the first tensor that has one."""
    tensors = (value for value in inputs.values() if isinstance(value, torch.Tensor))
    return next((len(value) for value in tensors if value.dim() > 0), 0)


def _total(counts: list[torch.Tensor]) -> torch.Tensor:
    """Return the sum, without the extra operator by which `sum` adds the first count to 0."""
    return functools.reduce(operator.add, counts)


BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer type by size in bytes, to read floats of that size as bits."""


def hashable(inputs: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return (the tensors to hash, with floats as integers of the same bits; the names of others).

    Results of the model are left out: they move by rounding. These are tensors with a gradient, the
    floats of a rollout, and floats beside token sequences that a loop reports by itself.
    """
    found: dict[str, torch.Tensor] = {}
    unseen = []
    sampled = all(f"{side}_ids" in inputs for side in ROLLOUT)
    given = getattr(inputs, "entered", False) or not parts(inputs)
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor) or value.requires_grad:
            continue
        value = value.to_local() if hasattr(value, "to_local") else value
        if value.layout is not torch.strided or value.is_nested or value.is_meta:
            unseen.append(name)
        elif not value.is_floating_point():
            found[name] = value
        elif given and value.element_size() in BITS:
            found[name] = value.contiguous().view(BITS[value.element_size()])
        elif not sampled:
            unseen.append(name)
    return found, unseen


def integer_tensors(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the integer and boolean tensors of a batch, sorted by name."""
    return {
        name: value
        for name, value in sorted(inputs.items())
        if isinstance(value, torch.Tensor) and not value.is_floating_point()
    }


def batch_sha256(inputs: Mapping[str, Any]) -> str:
    """Return the SHA-256 of name, dtype, shape and bytes of each integer tensor, in name order."""
    digest = hashlib.sha256()
    for name, value in integer_tensors(inputs).items():
        digest.update(f"{name}:{value.dtype}:{tuple(value.shape)}:".encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


ROW_HASH_BYTES = 5
"""Enough to distinguish thousands of sequences of two runs."""


def _short_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[: 2 * ROW_HASH_BYTES]


def unpadded_rows(inputs: Mapping[str, Any]) -> dict[str, list[list[int]]]:
    """Return each sequence's ids without padding, by tensor name."""
    found: dict[str, list[list[int]]] = {}
    for name, ids in integer_tensors(inputs).items():
        if not (name.endswith("ids") or "input_ids" in name) or ids.dim() != 2:
            continue
        mask = inputs.get(name.replace("input_ids", "attention_mask"))
        if mask is None or mask is ids:
            mask = inputs.get(name.removesuffix("ids") + "mask")
        if not isinstance(mask, torch.Tensor) or mask.shape != ids.shape:
            mask = torch.ones_like(ids)
        found[name] = unmasked(ids, mask)
    return found


def unmasked(ids: torch.Tensor, mask: torch.Tensor) -> list[list[int]]:
    """Return each row's ids whose mask is not 0."""
    rows = zip(ids.tolist(), mask.tolist(), strict=True)
    return [[token for token, keep in zip(*row, strict=True) if keep] for row in rows]


def generated(
    output: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor] | tuple[None, None]:
    """Return the prompts and the completions of a call to `generate`, each (rows, tokens); nothing
    if it was not about ids."""
    prompts = kwargs.get("input_ids", args[0] if args else None)
    sequences = getattr(output, "sequences", output)
    if isinstance(prompts, torch.Tensor) and isinstance(sequences, torch.Tensor):
        return prompts, sequences[:, prompts.shape[1] :]
    return None, None


def row_hashes(inputs: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return a short hash of each sequence's ids without padding. They show if two batches hold
    the same sequences in any order and padding. Without tensors of ids, hash the rows of the
    largest tensor, the first of equals: of `(input, target)` the input."""
    named = unpadded_rows(inputs)
    if named:
        return {k: [_short_hash(repr(row).encode()) for row in rows] for k, rows in named.items()}
    rows = {name: value for name, value in integer_tensors(inputs).items() if value.dim() > 0}
    if not rows:
        return {}
    name = max(rows, key=lambda name: rows[name].numel())
    kept = rows[name].detach().cpu().contiguous().numpy()
    return {name: [_short_hash(row.tobytes()) for row in kept]}


def text_hashes(inputs: Mapping[str, Any], tokenizer: Any) -> dict[str, list[str]]:
    """Return a short hash of each sequence's text without special tokens and white space. They show
    whether different ids encode the same words. Empty without a tokenizer."""
    inner = getattr(tokenizer, "tokenizer", tokenizer)  # a processor holds one
    if not hasattr(inner, "decode") or not hasattr(inner, "get_vocab"):
        return {}
    found = {}
    for name, rows in unpadded_rows(inputs).items():
        texts = [inner.decode(row, skip_special_tokens=True) for row in rows]
        found[name] = [_short_hash("".join(text.split()).encode()) for text in texts]
    return found


def describe_batch(
    inputs: Mapping[str, Any], tokenizer: Any, stops: frozenset[int] = frozenset()
) -> Micro:
    """Return the exact facts of one micro-batch: hashes, shapes, and token counts.

    `eos_labels` counts positions in the loss; `eos_inputs` and `bos_tokens` skip padding. `stops`:
    the tokens at which the model stops to generate.
    """
    bits, unseen = hashable(inputs)
    described: Micro = {
        "sha256": batch_sha256(bits),
        "shapes": {name: list(value.shape) for name, value in sorted(bits.items())},
        "rows": row_hashes(bits),
        "texts": text_hashes(inputs, tokenizer),
        "unseen": sorted({*getattr(inputs, "unseen", ()), *unseen}),
        **(getattr(inputs, "more", None) or Micro()),
    }
    counts = {name: int(value) for name, value in count_tokens(inputs).items()}
    described.update(cast(Micro, counts))
    found, sampled = parts(inputs), "completion_ids" in inputs
    if found:
        described.update(_special_counts(found, sampled, tokenizer))
        described.update(_row_counts(found[-1:] if sampled else found, stops))
    described.update(_prompt_counts(inputs))
    advantages = inputs.get("advantages")
    if isinstance(advantages, torch.Tensor) and advantages.dim() == 1:
        described["advantages"] = [float(value) for value in advantages.detach().flatten().tolist()]
    return described


def _row_counts(found: Sequence[Part], stops: frozenset[int]) -> Micro:
    """Return counts of rows by their labels, and of labels at which generation stops."""
    counts: Counter[str] = Counter()
    for part in found:
        ids, learned = part.ids, part.learned
        if learned is None or part.repeats > 1 or ids.dim() != 2 or not ids.shape[1]:
            continue
        counts["learned_rows"] += len(ids)
        counts["rows_without_labels"] += int((~learned.any(dim=1)).sum())
        if stops:
            stopping = torch.isin(part.targets, ids.new_tensor(sorted(stops))) & learned
            counts["stop_labels"] += int(stopping.sum())
    return cast(Micro, dict(counts))


def _prompt_counts(inputs: Mapping[str, Any]) -> Micro:
    """Return how many tokens of the prompts that stand beside a pair are also in its labels."""
    counts: Counter[str] = Counter()
    prompt, mask = inputs.get("prompt_input_ids"), inputs.get("prompt_attention_mask")
    if not isinstance(prompt, torch.Tensor) or not isinstance(mask, torch.Tensor):
        return {}
    for name in (name for names in PAIRS for name in names):
        ids, labels = (inputs.get(name.format(part)) for part in ("input_ids", "labels"))
        if not isinstance(ids, torch.Tensor) or not isinstance(labels, torch.Tensor):
            continue
        for row, own, label, present in zip(prompt, ids, labels, mask.bool(), strict=True):
            wanted = row[present]
            count = len(wanted) - 1  # the last one may merge with the answer
            if count > 0 and torch.equal(own[:count], wanted[:count]):
                counts["prompt_tokens"] += count
                counts["prompt_labels"] += int(label[:count].ne(IGNORE).sum())
    return cast(Micro, dict(counts))


def _rows_beginning_twice(part: Part, bos: int) -> int:
    """Return how many rows begin with two BOS, after padding on the left."""
    if part.ids.shape[-1] < 2:
        return 0
    is_bos = (part.ids == bos) & part.present
    first = part.present.long().argmax(dim=-1, keepdim=True).clamp(max=part.ids.shape[-1] - 2)
    return int((is_bos.gather(-1, first) & is_bos.gather(-1, first + 1)).sum())


def _special_counts(everything: Sequence[Part], sampled: bool, tokenizer: Any) -> Micro:
    eos, bos = (getattr(tokenizer, f"{name}_token_id", None) for name in ("eos", "bos"))
    found = everything[-1:] if sampled else everything
    once = [part.ids for part in found if part.repeats == 1]
    counts: Micro = {"sequences": sum(len(ids) if ids.dim() > 1 else 1 for ids in once)}
    if eos is not None:
        looked_at = [part.present if part.learned is None else part.learned for part in found]
        counts["eos_labels"] = sum(
            int(((part.targets == eos) & where).sum())
            for part, where in zip(found, looked_at, strict=True)
        )
        counts["eos_inputs"] = sum(int(((part.ids == eos) & part.present).sum()) for part in found)
    if bos is not None:
        # A separate prompt begins with BOS like any other sequence.
        starts = [((part.ids == bos) & part.present).sum(dim=-1) for part in everything]
        counts["bos_tokens"] = sum(int(count.sum()) for count in starts)
        # A model may sample BOS; nothing tokenized it.
        tokenized = starts[:-1] if sampled else starts
        counts["bos_most_in_a_sequence"] = max(
            (int(count.max()) for count in tokenized if count.numel()), default=0
        )
        counts["rows_with_two_bos"] = sum(_rows_beginning_twice(part, bos) for part in everything)
    counts["pad_tokens"] = sum(int((~part.present).sum()) for part in found)
    return counts
