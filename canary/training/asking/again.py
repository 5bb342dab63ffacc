"""Questions that call the model a second time about rows of the first update, with other inputs.

The model is in evaluation mode. Its modes, buffers and the random states are restored afterwards.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from canary.record.exact import Asked
from canary.training.asking.adapters import with_adapters
from canary.training.asking.calls import Call, scored
from canary.training.asking.look import CannotAsk, Look, broken, holds
from canary.training.asking.rounding import rounding_of, undisturbed
from canary.training.asking.rows import changed_row, counted, example, lines, parts
from canary.training.asking.updates import Scored

COLUMNS = 7
"""Of padding that are added."""
ADJUSTED = ("pissa", "olora", "eva", "loftq", "corda", "orthogonal")
"""Initialisations of LoRA that change the base model too."""
REFERENCES = "reference_start"
OF_PACKS = ("cu_seq", "max_length_")
"""Beginnings of arguments that say where packed documents end."""


class Again:
    """Asks the model of one look again."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._tolerances: dict[tuple[int, bool], float] = {}
        self.questions = {
            "causality": self._causality,
            "padding": self._padding,
            "padding_side": self._padding_side,
            "neighbour": self._neighbour,
            "packing": self._packing,
            "adapter_start": self._adapter_start,
            REFERENCES: self._reference_start,
        }

    def _compared(
        self,
        call: Call,
        before: torch.Tensor,
        after: torch.Tensor,
        counts: torch.Tensor | None = None,
        *,
        weights: bool = False,
    ) -> Asked:
        """Compare scores within the tolerance. `counts`: True where a score counts; `weights`: see
        `rounding_of`."""
        apart = (after.double() - before.double()).abs().nan_to_num(nan=float("inf"))
        apart = apart if counts is None else torch.where(counts, apart, 0.0)
        if not apart.numel() or (counts is not None and not bool(counts.any())):
            raise CannotAsk("there is nothing to compare")
        key = id(call), weights
        if key not in self._tolerances:
            self._tolerances[key] = rounding_of(call, weights=weights)
        allowed, worst = self._tolerances[key], float(apart.max())
        what, inside = ("log-probability", "token") if call.scores_tokens else ("score", "class")
        if worst <= allowed:
            return holds(f"each {what} differs by at most {worst:.2g}, allowed {allowed:.2g}")
        first = (apart > allowed).nonzero()[0].tolist()
        was, now = (float(one[tuple(first)]) for one in (before, after))
        words = f"a {what} of {was:.6g} becomes {now:.6g}, allowed {allowed:.2g}"
        return broken(words, f"row {first[0]}, {inside} {first[1]}")

    # Other tokens.

    def _causality(self) -> Asked:
        """Change the tokens from the middle of what is trained on: what is said of the trained
        tokens before must not move. A prompt may be read in both directions on purpose."""
        look = self._look
        call = next((one for one in look.known if not look.is_packed(one)), None)
        if call is None:
            raise CannotAsk("the rows hold several packed documents")
        if not any(one.is_next_token for one in look.documents(call) if any(one.trained)):
            raise CannotAsk("the loss is not a next-token loss: tokens may see later ones")
        ids, before = call.ids.clone(), scored(call)
        counts = torch.zeros_like(before, dtype=torch.bool)
        left_out = ids.shape[1] - 1 - before.shape[1]
        for line, (_, end) in zip(lines(call), look.spans(call), strict=True):
            trained = [at for at, one in enumerate(line.weights[:end]) if one]
            for at in trained[: len(trained) // 2]:
                counts[line.row, at - 1 - left_out] = True
            middle = trained[len(trained) // 2] if trained else end
            ids[line.row, middle:end] = _others(ids[line.row, middle:end], call)
        return self._compared(call, before, scored(call, input_ids=ids), counts)

    def _neighbour(self) -> Asked:
        """Change the tokens of all rows but the first."""
        call = self._look.call
        if call.shape[0] < 2:
            raise CannotAsk("each micro-batch has one row")
        ids = call.ids.clone()
        ids[1:] = _others(ids[1:], call)
        before, after = scored(call), scored(call, input_ids=ids)
        counts = counted(call, before, self._look.spans(call))
        counts = None if counts is None else counts[:1]
        return self._compared(call, before[:1], after[:1], counts)

    # Padding.

    def _padding(self) -> Asked:
        """Add columns of padding to a padded row, where its padding is."""
        look = self._look
        call, more, row = self._padded_row()
        if look.pad_id is None:
            raise CannotAsk("the id of padding is not known")
        width, (first, end) = call.ids.shape[1], look.spans(call)[row]
        shift = max(0, -more)
        before = example(call, scored(call), row, (first, end), width)
        wider = scored(call, **changed_row(call, row, None, more, look.pad_id))
        span = first + shift, end + shift
        after = example(call, wider, 0, span, width + abs(more))
        both = min(before.shape[1], after.shape[1])
        return self._compared(call, before[:, -both:], after[:, -both:])

    def _padding_side(self) -> Asked:
        """Leave out the padding of a row."""
        call, more, row = self._padded_row()
        first, end = self._look.spans(call)[row]
        before = example(call, scored(call), row, (first, end), call.ids.shape[1])
        alone = scored(call, **changed_row(call, row, (first, end)))
        after = example(call, alone, 0, (0, end - first), end - first)
        both = min(before.shape[1], after.shape[1])
        found = self._compared(call, before[:, -both:], after[:, -both:])
        if found["status"] == "broken":
            side = "left" if more < 0 else "right"
            return broken(f"without its {side} padding, {found['words']}", f"row {row}")
        return found

    def _padded_row(self) -> tuple[Call, int, int]:
        """Return a call, columns that are added where its padding is (below 0: on the left), and
        its row with most of it."""
        look = self._look
        if look.call.is_encoder_decoder:
            raise CannotAsk("the ids are those of an encoder, and the logits those of a decoder")
        if not look.call.scores_tokens and len(look.call.shape) > 2:
            raise CannotAsk("the model has no token logits")
        for call in look.calls:
            spans, width = look.spans(call), call.ids.shape[1]
            # The token may stand in texts too, as noise does, if no mask tells which is padding.
            lines = zip(call.ids.tolist(), spans, strict=True)
            inside = any(look.pad_id in line[one : two - 1] for line, (one, two) in lines)
            if look.is_packed(call) or (inside and call.mask is None):
                continue
            rows = [(one, width - two, row) for row, (one, two) in enumerate(spans) if two > one]
            left, right = max(rows, default=(0, 0, 0)), max(rows, key=lambda x: x[1], default=None)
            if right is not None and left[0] > right[1]:
                return call, -COLUMNS, left[2]
            if right is not None and right[1]:
                return call, COLUMNS, right[2]
        raise CannotAsk("no row of the first update has padding")

    # Packed documents.

    def _packing(self) -> Asked:
        """Change the document before another one of a packed row, then give the other one alone."""
        call = next((x for x in self._look.calls if x.scores_tokens), self._look.call)
        spans = enumerate(self._look.spans(call))
        found = ((row, parts(call, row, *span)) for row, span in spans)
        row, several = next(((row, one) for row, one in found if len(one) > 1), (0, []))
        if not several or not call.scores_tokens:
            raise CannotAsk("no row holds several documents whose positions begin again")
        (_, first), (_, end) = several[:2]
        before, place = scored(call), f"row {row}, the document that begins at token {first}"
        skip = before.shape[1] - (call.ids.shape[1] - 1)
        # The first token of a document is said by the one before it.
        begins, ends = max(0, first + skip), end - 1 + skip
        packed, ids = before[row : row + 1, begins:ends], call.ids.clone()
        ids[row, : first - 1] = _others(ids[row, : first - 1], call)
        changed = scored(call, input_ids=ids)[row : row + 1, begins:ends]
        made = self._compared(call, packed, changed)
        if made["status"] == "holds":
            alone: dict[str, Any] = {
                name: None
                for name, value in call.arguments.items()
                if name != "labels" and (torch.is_tensor(value) or name.startswith(OF_PACKS))
            }
            alone["input_ids"] = call.ids[row : row + 1, first:end]
            given: Any = call.by_token("position_ids")
            alone["position_ids"] = given[row : row + 1, first:end] - given[row, first]
            after = scored(call, **alone)[:, -packed.shape[1] :]
            made = self._compared(call, packed, after)
            made["words"] = f"alone and packed, {made['words']}"
        return broken(made["words"], place) if made["status"] == "broken" else made

    # Other models.

    def _adapter_start(self) -> Asked:
        """Switch the adapters off."""
        model, call = self._look.model, self._look.call
        off = getattr(model, "disable_adapter", None)
        configs = getattr(model, "peft_config", None)
        if off is None or not isinstance(configs, dict):
            raise CannotAsk("only for adapters of peft")
        for one in configs.values():
            kind = str(getattr(one, "init_lora_weights", True)).lower()
            if kind.startswith(ADJUSTED):
                raise CannotAsk(f"init_lora_weights: {kind} changes the base model too")
            if getattr(one, "is_prompt_learning", False):
                raise CannotAsk("prompt learning changes the log-probabilities on purpose")
        before = scored(call)
        with off():
            after = scored(call)
        return self._compared(call, before, after, counted(call, before, self._look.spans(call)))

    def _reference_start(self) -> Asked:
        """Ask the references about the policy's first micro-batch. A model that is first seen later
        may have moved, but the policy without its adapters has not."""
        look, call = self._look, self._look.call
        own = _shapes(look.model)
        if look.start is None:
            look.start = scored(call)
        first = len(look.updates) == 1
        found = [
            (model, one)
            for model, one in look.references.values()
            if one.kind == "adapters" or (first and _shapes(model) == own)
        ]
        if not found:
            raise CannotAsk("no reference model was seen (same shapes, called without gradients)")
        if not look.is_preference:
            raise CannotAsk("the other model may be a teacher: the loss lowers no row")
        before, answers = look.start, list[Asked]()
        counts = counted(call, before, look.spans(call))
        for model, one in found:
            after = _said(model, one, call)
            answers.append(self._compared(call, before, after, counts, weights=True))
            if answers[-1]["status"] == "broken":
                words = f"{one.what} differs from the policy: {answers[-1]['words']}"
                return broken(words, answers[-1]["place"])
        return answers[-1]


def _said(own: nn.Module, reference: Scored, call: Call) -> torch.Tensor:
    """Ask a reference about a call of the policy, in evaluation mode."""
    module = call.module
    merged = any(getattr(one, "merged_adapters", None) for one in own.modules())
    if reference.kind == "adapters" and merged:
        raise CannotAsk("the adapters are merged: switching would change the weights")
    with undisturbed(own), with_adapters(own, reference.adapters):
        try:
            call.module = own
            return scored(call)
        finally:
            call.module = module


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    named = model.named_parameters()
    return {name.removeprefix("module."): tuple(value.shape) for name, value in named}


def _others(ids: torch.Tensor, call: Call) -> torch.Tensor:
    """Return ids of the same shape, each another one of the vocabulary."""
    size = call.shape[-1] if call.scores_tokens else max(int(ids.max()), 13) + 1
    return (ids + 13) % max(2, size)
