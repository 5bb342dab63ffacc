"""Questions that call the model a second time about rows of the first update, with other inputs.

The model is in evaluation mode. Its modes, buffers and the random states are restored afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from canary.record.exact import Asked
from canary.training.asking.calls import Call, scored
from canary.training.asking.look import CannotAsk, Look, Span, broken, holds, lines
from canary.training.asking.rounding import rounding_of, undisturbed
from canary.training.asking.updates import adapters_of, with_adapters

COLUMNS = 7
"""Of padding that are added."""
ADJUSTED = ("pissa", "olora", "eva", "loftq", "corda", "orthogonal")
"""Initialisations of LoRA that change the base model too."""
OF_PACKS = ("cu_seq", "max_length_")
"""Beginnings of arguments that say where packed documents end."""


def _compared(
    look: Look,
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
    if key not in look.tolerances:
        look.tolerances[key] = rounding_of(call, weights=weights)
    allowed, worst = look.tolerances[key], float(apart.max())
    what, inside = ("log-probability", "token") if call.scores_tokens else ("score", "class")
    if worst <= allowed:
        return holds(f"each {what} differs by at most {worst:.2g}, allowed {allowed:.2g}")
    first = (apart > allowed).nonzero()[0].tolist()
    was, now = (float(one[tuple(first)]) for one in (before, after))
    words = f"a {what} of {was:.6g} becomes {now:.6g}, allowed {allowed:.2g}"
    return broken(words, f"row {first[0]}, {inside} {first[1]}")


def _counts(look: Look, call: Call, scores: torch.Tensor) -> torch.Tensor | None:
    """Return True where a score is of a real token that follows a real one."""
    if not call.scores_tokens:
        return None
    counts = torch.zeros_like(scores, dtype=torch.bool)
    for row, span in enumerate(look.spans(call)):
        counts[row, _scores_of(span, call.ids.shape[1], scores)] = True
    return counts


# Other tokens.


def causality(look: Look) -> Asked:
    """Change the tokens from the middle of what is trained on: what is said of the trained
    tokens before must not move. A prompt may be read in both directions on purpose."""
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
        middle = len(trained) // 2
        counts[line.row, [at - 1 - left_out for at in trained[:middle]]] = True
        here = slice(trained[middle] if trained else end, end)
        ids[line.row, here] = _others(ids[line.row, here], call)
    return _compared(look, call, before, scored(call, input_ids=ids), counts)


def neighbour(look: Look) -> Asked:
    """Change the tokens of all rows but the first."""
    call = look.call
    if call.shape[0] < 2:
        raise CannotAsk("only for micro-batches of several rows")
    ids = call.ids.clone()
    ids[1:] = _others(ids[1:], call)
    before, after = scored(call), scored(call, input_ids=ids)
    counts = _counts(look, call, before)
    counts = None if counts is None else counts[:1]
    return _compared(look, call, before[:1], after[:1], counts)


# Padding.


def padding(look: Look) -> Asked:
    """Add columns of padding to a padded row, where its padding is."""
    call, more, row = _padded_row(look)
    if look.pad_id is None:
        raise CannotAsk("the id of padding is not known")
    first, end = (one + max(0, -more) for one in look.spans(call)[row])
    wider = _changed_row(call, row, None, more, look.pad_id)
    return _row(look, call, row, wider, (first, end), call.ids.shape[1] + abs(more))


def padding_side(look: Look) -> Asked:
    """Leave out the padding of a row."""
    call, more, row = _padded_row(look)
    first, end = span = look.spans(call)[row]
    alone = _changed_row(call, row, span)
    found = _row(look, call, row, alone, (0, end - first), end - first)
    if found["status"] == "broken":
        side = "left" if more < 0 else "right"
        return broken(f"without its {side} padding, {found['words']}", f"row {row}")
    return found


def _row(look: Look, call: Call, row: int, changed: Any, span: Span, width: int) -> Asked:
    """Compare what is said of the example of a row with the same in another row, of `width`
    tokens; `span`: where it is there."""
    own, there = slice(None), slice(None)
    before, after = scored(call)[row : row + 1], scored(call, **changed)
    if call.scores_tokens:
        own = _scores_of(look.spans(call)[row], call.ids.shape[1], before)
        there = _scores_of(span, width, after)
    before, after = before[:, own], after[:, there]
    both = min(before.shape[1], after.shape[1])
    return _compared(look, call, before[:, -both:], after[:, -both:])


def _padded_row(look: Look) -> tuple[Call, int, int]:
    """Return a call, columns that are added where its padding is (below 0: on the left), and
    its row with most of it."""
    if look.call.is_encoder_decoder:
        raise CannotAsk("only for language models")
    if not look.call.scores_tokens and len(look.call.shape) > 2:
        raise CannotAsk("the model has no token logits")
    for call in look.calls:
        spans, width = look.spans(call), call.ids.shape[1]
        # The token may stand in texts too, as noise does, if no mask tells which is padding.
        texts = zip(call.ids.tolist(), spans, strict=True)
        inside = any(look.pad_id in line[one : two - 1] for line, (one, two) in texts)
        rows = [(one, width - two, row) for row, (one, two) in enumerate(spans) if two > one]
        if look.is_packed(call) or (inside and call.mask is None) or not rows:
            continue
        left, right = max(rows), max(rows, key=lambda one: one[1])
        if left[0] > right[1]:
            return call, -COLUMNS, left[2]
        if right[1]:
            return call, COLUMNS, right[2]
    raise CannotAsk("only for padded rows")


# Packed documents.


def packing(look: Look) -> Asked:
    """Change the document before another one of a packed row, then give the other one alone."""
    call = next((x for x in look.calls if x.scores_tokens), look.call)
    rows = enumerate(look.parts(call))
    row, several = next(((row, one) for row, one in rows if len(one) > 1), (0, []))
    if not several or not call.scores_tokens:
        raise CannotAsk("only for packed rows whose positions begin again")
    (_, first), (_, end) = several[:2]
    before, place = scored(call), f"row {row}, the document that begins at token {first}"
    # The first token of a document is said by the one before it.
    here = _scores_of(several[1], call.ids.shape[1], before)
    packed, ids = before[row : row + 1, here], call.ids.clone()
    ids[row, : first - 1] = _others(ids[row, : first - 1], call)
    changed = scored(call, input_ids=ids)[row : row + 1, here]
    made = _compared(look, call, packed, changed)
    if made["status"] == "holds":
        alone: dict[str, Any] = {
            name: None
            for name, value in call.arguments.items()
            if name != "labels" and (torch.is_tensor(value) or name.startswith(OF_PACKS))
        }
        alone["input_ids"] = call.ids[row : row + 1, first:end]
        given: Any = call.by_token("position_ids")
        alone["position_ids"] = given[row : row + 1, first:end] - given[row, first]
        made = _compared(look, call, packed, scored(call, **alone)[:, -packed.shape[1] :])
        made["words"] = f"alone and packed, {made['words']}"
    return broken(made["words"], place) if made["status"] == "broken" else made


# Other models.


def adapter_start(look: Look) -> Asked:
    """Switch the adapters off."""
    model, call = look.model, look.call
    configs, adapters = getattr(model, "peft_config", None), adapters_of(model)
    if not adapters or not isinstance(configs, dict):
        raise CannotAsk("only for adapters of peft")
    for one in configs.values():
        kind = str(getattr(one, "init_lora_weights", True)).lower()
        if kind.startswith(ADJUSTED):
            raise CannotAsk(f"init_lora_weights: {kind} changes the base model too")
        if getattr(one, "is_prompt_learning", False):
            raise CannotAsk("prompt learning changes the log-probabilities on purpose")
    before = scored(call)
    # Not by peft's own `disable_adapter`, after which all adapters train.
    with with_adapters(model, tuple((True, names) for _, names in adapters)):
        after = scored(call)
    return _compared(look, call, before, after, _counts(look, call, before))


def reference_start(look: Look) -> Asked:
    """Ask the references about the policy's first micro-batch. A model that is first seen later
    may have moved, but the policy without its adapters has not."""
    call = look.call
    look.start = scored(call) if look.start is None else look.start
    own, first = _shapes(look.model), len(look.updates) == 1
    found = [
        (model, one)
        for model, one in look.references.values()
        if one.kind == "adapters" or (first and _shapes(model) == own)
    ]
    if not found:
        raise CannotAsk("no reference model was seen (same shapes, called without gradients)")
    if not look.is_preference:
        raise CannotAsk("the other model may be a teacher: the loss lowers no row")
    counts = _counts(look, call, look.start)
    for model, one in found:
        if one.kind == "adapters" and any(
            getattr(part, "merged_adapters", None) for part in model.modules()
        ):
            raise CannotAsk("the adapters are merged: switching would change the weights")
        with undisturbed(model), with_adapters(model, one.adapters):
            after = scored(replace(call, module=model))
        answer = _compared(look, call, look.start, after, counts, weights=True)
        if answer["status"] == "broken":
            words = f"{one.what} differs from the policy: {answer['words']}"
            return broken(words, answer["place"])
    return answer


def _scores_of(span: Span, width: int, scores: torch.Tensor) -> slice:
    """Return where scores of a row of `width` tokens are of an example in it."""
    left_out = width - 1 - scores.shape[1]
    return slice(max(0, span[0] - left_out), max(0, span[1] - 1 - left_out))


def _changed_row(call: Call, row: int, span: Span | None, more: int = 0, pad: int = 0) -> Any:
    """Return the arguments of one row: the part of it within a span; or all of it, with `more`
    columns of padding on the right, or on the left if it is negative.

    Ids get padding, positions repeat their last or first value, masks and others get 0.
    """
    found: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if torch.is_tensor(value) and value.dim() and len(value) == call.shape[0]:
            one = value[row : row + 1]
            if call.by_token(name) is not None and span is not None:
                one = one[:, span[0] : span[1]]
            elif call.by_token(name) is not None:
                fill = pad if name == "input_ids" else int("pad" in name.lower())
                columns = one.new_full((1, abs(more)), fill)
                if name == "position_ids":
                    columns = (one[:, -1:] if more > 0 else one[:, :1]).expand(1, abs(more))
                one = torch.cat([one, columns] if more > 0 else [columns, one], dim=1)
            found |= {} if name == "labels" else {name: one}
        elif span is not None and type(value) is int and value == call.shape[1] - call.is_fused:
            # A model that is asked for its last tokens only.
            found[name] = max(1, min(value, span[1] - span[0] - 1))
    return found


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    named = model.named_parameters()
    return {name.removeprefix("module."): tuple(value.shape) for name, value in named}


def _others(ids: torch.Tensor, call: Call) -> torch.Tensor:
    """Return ids of the same shape, each another one of the vocabulary."""
    size = call.shape[-1] if call.scores_tokens else max(int(ids.max()), 13) + 1
    return (ids + 13) % max(2, size)


QUESTIONS: dict[str, Callable[[Look], Asked]] = {
    one.__name__: one
    for one in (
        *(causality, neighbour, padding, padding_side, packing),
        *(adapter_start, reference_start),
    )
}
"""By the ids of their rules."""
