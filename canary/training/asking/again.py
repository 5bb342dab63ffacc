"""Questions that call the model a second time about rows of the first update, with other inputs.

The model is in evaluation mode. Its modes, buffers and the random states are restored afterwards.

How far rounding moves what a model says is measured, with parameters that are off by one rounding.
This is the perturbation of TTrace (arXiv 2506.09280): each parameter is multiplied by 1 + epsilon
or 1 - epsilon, with epsilon of the arithmetic that the model computes in. In half precision, this
moves far more than two ways to compute differ: there the same model in float32 tells the error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from canary.record.exact import Asked
from canary.training.asking.calls import Call, scored
from canary.training.asking.look import CannotAsk, Look, Span, broken, holds
from canary.training.asking.updates import adapters_of, without_adapters
from canary.training.collectors.aside import attributes_set, kept_random

DRAWS = 3
FACTOR = 8.0
"""Two kernels round more often than one perturbed parameter does."""
FLOOR = 16
"""Epsilons of the largest value: it is rounded too."""
HALF = 1e-6
"""Half precision has a larger epsilon."""
FACTOR_OF_ERROR = 4.0
"""Both sides have errors, and the measured one is the largest of few."""


def replaced(
    model: nn.Module, made: Callable[[torch.Tensor], torch.Tensor]
) -> contextlib.AbstractContextManager[None]:
    """Replace what parameters and buffers of floats hold within a block."""
    held = (*model.parameters(), *model.buffers())
    floats = (one for one in held if one.dtype.is_floating_point)
    return attributes_set(*((one, "data", made(one.data)) for one in floats))


def perturbed(model: nn.Module, eps: float, seed: int) -> contextlib.AbstractContextManager[None]:
    """Put each value off by one rounding, up or down at random, within a block. Integers of a
    quantised model are exact."""
    generator = torch.Generator().manual_seed(seed)

    def moved(value: torch.Tensor) -> torch.Tensor:
        signs = torch.randint(0, 2, value.shape, generator=generator) * 2 - 1
        return (value.double() * (1 + eps * signs.to(value.device))).to(value.dtype)

    return replaced(model, moved)


def rounding_of(call: Call) -> float:
    """Return the tolerance of a call's scores."""
    before, moved = scored(call), 0.0
    kinds = {*(value.dtype for value in call.module.parameters()), call.autocast or torch.float32}
    eps = max(float(torch.finfo(kind).eps) for kind in kinds if kind.is_floating_point)
    errors = [_error(call, before)] if eps > HALF else []
    for seed in range(DRAWS):
        with perturbed(call.module, eps, seed):
            again = scored(call)
            errors += [_error(call, again)] if errors else []
        moved = max(moved, _largest(again - before))
    largest = _largest(before)
    known = [one for one in errors if one is not None]
    if known and len(known) == len(errors):
        return max(FACTOR_OF_ERROR * max(known), eps * largest)
    return max(FACTOR * moved, FLOOR * eps * largest)


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().nan_to_num(posinf=0.0).max())


def _error(call: Call, said: torch.Tensor) -> float | None:
    """Return how far what a call said is from the same in float32; None if that is not possible: a
    kernel may refuse float32, or memory may lack."""
    try:
        with replaced(call.module, torch.Tensor.float):
            return _largest(said - scored(replace(call, autocast=None)))
    except Exception:  # noqa: BLE001 - a user's model may refuse anything
        return None


@contextlib.contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run a block in evaluation mode; restore modes, buffers and random states after it."""
    modes = attributes_set(*((one, "training", one.training) for one in model.modules()))
    buffers = [(one, one.detach().clone()) for one in model.buffers()]
    try:
        with modes, kept_random():
            model.eval()
            yield
    finally:
        with torch.no_grad():
            for buffer, kept in buffers:
                buffer.copy_(kept)


ADJUSTED = ("pissa", "olora", "eva", "loftq", "corda", "orthogonal")
"""Initialisations of LoRA that change the base model too."""


def _compared(
    look: Look,
    call: Call,
    before: torch.Tensor,
    after: torch.Tensor,
    counts: torch.Tensor | None = None,
) -> Asked:
    """Compare scores within the tolerance. `counts`: True where a score counts."""
    apart = (after.double() - before.double()).abs().nan_to_num(nan=float("inf"))
    apart = apart if counts is None else torch.where(counts, apart, 0.0)
    if not apart.numel() or (counts is not None and not bool(counts.any())):
        raise CannotAsk("there is nothing to compare")
    if id(call) not in look.tolerances:
        look.tolerances[id(call)] = rounding_of(call)
    allowed, worst = look.tolerances[id(call)], float(apart.max())
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
    ids, before = call.ids.clone(), scored(call)
    counts = torch.zeros_like(before, dtype=torch.bool)
    left_out = ids.shape[1] - 1 - before.shape[1]
    for one in look.documents(call):
        trained, end = [at for at, is_so in enumerate(one.trained, one.first) if is_so], one.end
        middle = len(trained) // 2
        counts[one.row, [at - 1 - left_out for at in trained[:middle]]] = True
        here = slice(trained[middle] if trained else end, end)
        ids[one.row, here] = _others(ids[one.row, here], call)
    found = _compared(look, call, before, scored(call, input_ids=ids), counts)
    if not any(one.is_next_token for one in look.documents(call) if any(one.trained)):
        look.is_causal = found["status"] == "holds"
        raise CannotAsk("the loss is not a next-token loss: tokens may see later ones")
    return found


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


def padding_side(look: Look) -> Asked:
    """Leave out the padding of a row."""
    call, row, side = _padded_row(look)
    first, end = span = look.spans(call)[row]
    before, after = scored(call)[row : row + 1], scored(call, **_without_padding(call, row, span))
    if call.scores_tokens:
        before = before[:, _scores_of(span, call.ids.shape[1], before)]
        after = after[:, _scores_of((0, end - first), end - first, after)]
    both = min(before.shape[1], after.shape[1])
    found = _compared(look, call, before[:, -both:], after[:, -both:])
    if found["status"] == "broken":
        return broken(f"without its {side} padding, {found['words']}", f"row {row}")
    return found


def _padded_row(look: Look) -> tuple[Call, int, str]:
    """Return a call, its row with most padding, and the side of that."""
    if look.call.is_encoder_decoder:
        raise CannotAsk("only for language models")
    if not look.call.scores_tokens and len(look.call.shape) > 2:
        raise CannotAsk("no output is known to be logits of tokens")
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
            return call, left[2], "left"
        if right[1]:
            return call, right[2], "right"
    raise CannotAsk("only for padded rows")


# Packed documents.


def packing(look: Look) -> Asked:
    """Change the document before another one of a packed row."""
    call = next((x for x in look.calls if x.scores_tokens), look.call)
    rows = enumerate(look.parts(call))
    row, several = next(((row, one) for row, one in rows if len(one) > 1), (0, []))
    if not several or not call.scores_tokens:
        raise CannotAsk("only for packed rows whose positions begin again")
    before, ids, first = scored(call), call.ids.clone(), several[1][0]
    # The first token of a document is said by the one before it.
    here = _scores_of(several[1], call.ids.shape[1], before)
    ids[row, : first - 1] = _others(ids[row, : first - 1], call)
    after = scored(call, input_ids=ids)
    made = _compared(look, call, before[row : row + 1, here], after[row : row + 1, here])
    place = f"row {row}, the document that begins at token {first}"
    return broken(made["words"], place) if made["status"] == "broken" else made


# Other models.


def adapter_start(look: Look) -> Asked:
    """Switch the adapters off."""
    model, call = look.model, look.call
    configs = getattr(model, "peft_config", None)
    if not adapters_of(model) or not isinstance(configs, dict):
        raise CannotAsk("only for adapters of peft")
    for one in configs.values():
        kind = str(getattr(one, "init_lora_weights", True)).lower()
        if kind.startswith(ADJUSTED):
            raise CannotAsk(f"init_lora_weights: {kind} changes the base model too")
        if getattr(one, "is_prompt_learning", False):
            raise CannotAsk("prompt learning changes the log-probabilities on purpose")
    before = scored(call)
    with without_adapters(model):
        after = scored(call)
    return _compared(look, call, before, after, _counts(look, call, before))


def _scores_of(span: Span, width: int, scores: torch.Tensor) -> slice:
    """Return where scores of a row of `width` tokens are of an example in it."""
    left_out = width - 1 - scores.shape[1]
    return slice(max(0, span[0] - left_out), max(0, span[1] - 1 - left_out))


def _without_padding(call: Call, row: int, span: Span) -> dict[str, Any]:
    """Return the arguments of one row, and of its tokens within a span."""
    found: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if torch.is_tensor(value) and value.dim() and len(value) == call.shape[0]:
            one = value[row : row + 1]
            one = one if call.by_token(name) is None else one[:, span[0] : span[1]]
            found |= {} if name == "labels" else {name: one}
        elif type(value) is int and value == call.shape[1] - call.is_fused:
            # A model that is asked for its last tokens only.
            found[name] = max(1, min(value, span[1] - span[0] - 1))
    return found


def _others(ids: torch.Tensor, call: Call) -> torch.Tensor:
    """Return ids of the same shape, each another one of the vocabulary."""
    size = call.shape[-1] if call.scores_tokens else max(int(ids.max()), 13) + 1
    return (ids + (13 % max(2, size) or 1)) % max(2, size)


QUESTIONS: dict[str, Callable[[Look], Asked]] = {
    one.__name__: one for one in (causality, neighbour, padding_side, packing, adapter_start)
}
"""By the ids of their rules."""
