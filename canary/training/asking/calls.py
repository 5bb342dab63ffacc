"""Calls of a model in a training step: what each position was trained towards and how strongly.

All of it is read in pieces of a few positions: no copy of the logits is made or kept.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from canary.training.collectors.named import items_of

PIECE = 128
"""Positions of a row whose logits are read together."""
IGNORE = -100
"""The label that a loss ignores."""
LEAST_VOCABULARY = 3
"""Of two tokens, the gradient does not show which one was trained towards."""
MOST_CLASSES = 16
"""A model with so few outputs scores rows, or tokens by classes if its ids go beyond them."""
SUMS_TO_ZERO = 1e-3
"""The gradient of a log-softmax adds up to 0 over the vocabulary; relative, if not rounded more."""
ROUNDED = 1e-5
"""Of the largest gradient of a token: one that adds up to less may be rounding."""
CERTAIN = 1e-5
"""A token whose probability is this close to 1 has no gradient, trained or not."""
SURE = 0.95
"""Share of trained tokens whose label must be the next token."""
UNKNOWN = float("nan")
NOT_INPUTS = ("label", "target", "mask", "pos", "segment", "type", "seq_id", "cu_")
"""Parts of names of integers that are no token ids."""
NO_MASK = ("pad", "loss", "label")
"""Parts of names of masks that are no attention masks."""
Adapters = tuple[tuple[bool, tuple[str, ...]], ...]
"""Per layer of peft: whether its adapters are disabled, and the names of the active ones."""


@dataclass(eq=False)
class Call:
    """One call of a model whose loss trained it. All but the arguments is on the CPU."""

    module: nn.Module
    arguments: dict[str, Any]
    """By the names of transformers, as far as the model has such arguments; copies of tensors."""
    names: dict[str, str]
    """The model's own names of arguments, where they differ."""
    is_fused: bool
    """Whether it says the log-probability of each label, as trl's models with a fused head do."""
    shape: tuple[int, ...]
    """Of the logits: (rows, tokens, vocabulary), or (rows, classes)."""
    autocast: torch.dtype | None = None
    """The dtype that the call computed in, if not that of the parameters."""
    adapters: Adapters = ()
    temperature: float = 1.0
    """Of the log-probabilities that the loss takes, as far as the trainer says it."""
    log_probs: torch.Tensor | None = None
    """Of each own token but the first, (rows, tokens - 1)."""
    seen: tuple[torch.Tensor, torch.Tensor] | None = None
    """Both (rows, positions), until the gradient comes: log-probabilities of the next token, and of
    the likeliest one."""
    trained: bool = False
    """Whether a gradient reached what it said."""
    weights: torch.Tensor | None = None
    """How much the label at each token's place was raised; negative if lowered, 0 if it was not
    trained on. As the next three, it is (rows, tokens); logits are of the place after theirs."""
    labels: torch.Tensor | None = None
    """The token that was trained towards there."""
    certain: torch.Tensor | None = None
    """True where a weight of 0 may be that of a certain token."""
    strengths: torch.Tensor | None = None
    """The size of the gradient, whatever its label."""

    @property
    def ids(self) -> torch.Tensor:
        """The token ids, (rows, tokens)."""
        found: torch.Tensor = self.arguments["input_ids"]
        return found

    def by_token(self, name: str) -> torch.Tensor | None:
        """Return an argument if it has one entry per token."""
        found: Any = self.arguments.get(name)
        return found if torch.is_tensor(found) and found.shape == self.ids.shape else None

    @property
    def mask(self) -> torch.Tensor | None:
        """The attention mask, if it has one entry per token."""
        return self.by_token("attention_mask")

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether its ids are those of an encoder, and its logits those of a decoder."""
        said = bool(getattr(getattr(self.module, "config", None), "is_encoder_decoder", False))
        return said or any(name.startswith("decoder_") for name in self.arguments)

    @property
    def scores_tokens(self) -> bool:
        """Whether the logits are those of tokens."""
        if self.is_fused or len(self.shape) != 3 or self.shape[-1] > MOST_CLASSES:
            return self.is_fused or len(self.shape) == 3
        return self.shape[-1] > 1 and not bool((self.ids >= self.shape[-1]).any())

    @property
    def is_language_model(self) -> bool:
        """Whether the logits are those of the tokens after its ids."""
        return self.log_probs is not None and not self.is_encoder_decoder


def said_of(output: Any) -> tuple[bool, torch.Tensor] | None:
    """Return whether a head is fused, and what a model says of its inputs, if that is known."""
    known: Any = getattr(output, "log_probs", None)
    if torch.is_tensor(known) and known.dim() == 2:
        return True, known
    found: Any = getattr(output, "logits", None)
    if found is None:
        found = (items_of(output) or {}).get("logits")
    if found is None and isinstance(output, tuple | list):
        found = next((one for one in output if torch.is_tensor(one) and one.dim() >= 2), None)
    found = output if found is None else found
    is_said = torch.is_tensor(found) and found.is_floating_point() and found.dim() >= 2
    return (False, found) if is_said else None


def says_of(args: Any, kwargs: Mapping[str, Any], output: Any) -> str:
    """Return what a call with token ids says: logits of `tokens` or their classes, a few scores of
    `rows`; else nothing."""
    if not any(map(_are_integers, (*args, *kwargs.values()))):
        return ""
    known = said_of(output)
    if known is None:
        return ""
    is_fused, said = known
    if is_fused or (said.dim() == 3 and said.shape[-1] > 1):
        return "tokens"
    return "rows" if said.dim() == 2 and said.shape[1] <= MOST_CLASSES else ""


def _are_integers(value: Any) -> bool:
    return torch.is_tensor(value) and value.dim() == 2 and not value.is_floating_point()


def call_of(
    module: nn.Module,
    args: Any,
    kwargs: Mapping[str, Any],
    is_fused: bool,
    said: torch.Tensor,
    *,
    whole: bool,
) -> Call | None:
    """Return a call that said something; None if it is none of rows of token ids. `whole`: keep all
    arguments, to call again; else only integers of one number per token."""
    named: dict[str, Any] = {}
    if args:
        # A compiled module takes any arguments for its own.
        forward = inspect.signature(getattr(module, "_orig_mod", module).forward)
        named = dict(zip(forward.parameters, args, strict=False))
    named |= kwargs
    shape = tuple(said.shape)
    if is_fused:
        size = getattr(getattr(module, "config", None), "vocab_size", None)
        shape = (len(said), said.shape[1] + 1, size or 1 << 30)
    names = {} if "input_ids" in named else own_names(named, shape)
    theirs = {own: name for name, own in names.items()}
    kept = {
        theirs.get(name, name): value.detach().clone() if torch.is_tensor(value) else value
        for name, value in named.items()
        if whole or _are_integers(value)
    }
    ids: Any = kept.get("input_ids")
    if not _are_integers(ids) or len(ids) != len(said):
        return None
    return Call(module, kept, names, is_fused, shape)


def own_names(arguments: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, str]:
    """Return a model's own names of its ids, mask and positions, by those of transformers."""
    found: dict[str, str] = {}
    for name, value in arguments.items():
        if _are_integers(value) and value.dtype in (torch.int32, torch.int64):
            fits = tuple(value.shape) == shape[:2] if len(shape) == 3 else len(value) == shape[0]
            if fits and not any(part in name.lower() for part in NOT_INPUTS):
                found.setdefault("input_ids", name)
    ids = arguments[found["input_ids"]] if found else None
    for name, value in arguments.items():
        low = name.lower()
        if value is ids or not torch.is_tensor(value) or ids is None or value.shape != ids.shape:
            continue
        is_mask = "mask" in low and not any(part in low for part in NO_MASK)
        if is_mask and bool(((value == 0) | (value == 1)).all()):
            found.setdefault("attention_mask", name)
        elif "pos" in low and not value.is_floating_point():
            found.setdefault("position_ids", name)
    return {theirs: own for theirs, own in found.items() if theirs not in arguments}


# What was said.


def pieces(
    logits: torch.Tensor, temperature: float = 1.0
) -> Iterator[tuple[int, slice, torch.Tensor]]:
    """Yield a row, a few of its positions, and what is said there, as floats."""
    for row in range(len(logits)):
        for first in range(0, logits.shape[1], PIECE):
            here = slice(first, first + PIECE)
            yield row, here, logits[row, here].float() / temperature


def following(ids: torch.Tensor, kept: int) -> torch.Tensor:
    """Return the next token of each of the last `kept` positions; of the last one, the first."""
    return ids.roll(-1, 1)[:, ids.shape[1] - kept :]


def _by_token(call: Call, values: torch.Tensor, missing: float = 0.0) -> torch.Tensor:
    """Return values of the last positions at the places of their labels, (rows, tokens)."""
    width, kept = call.ids.shape[1], values.shape[1]
    found = values.new_full((len(values), width), missing)
    first = max(0, width - kept) + 1 - call.is_fused
    found[:, first:] = values[:, max(0, kept - width) :][:, : width - first]
    return found


def own_log_probs(
    is_fused: bool, said: torch.Tensor, ids: torch.Tensor, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probabilities of each position's next token and likeliest token; (rows,
    positions), on the device. Of a fused head: what it returned, twice."""
    if is_fused:
        return said.float(), said.float()
    wanted, found = following(ids, said.shape[1]), said.new_empty(said.shape[:2]).float()
    top = found.clone()
    for row, here, part in pieces(said, temperature):
        total = part.logsumexp(-1)
        found[row, here] = part.gather(-1, wanted[row, here].unsqueeze(-1)).squeeze(-1) - total
        top[row, here] = part.amax(-1) - total
    return found, top


def read_said(call: Call, said: torch.Tensor) -> None:
    """Keep the own log-probabilities of a call, and what tells a weight from a gradient."""
    if said.shape[1] > call.ids.shape[1] or not call.scores_tokens:
        return
    if int(call.ids.max()) >= call.shape[-1] or int(call.ids.min()) < 0:
        return
    own, top = (one.cpu() for one in own_log_probs(call.is_fused, said, call.ids, call.temperature))
    call.log_probs = _by_token(call, own, UNKNOWN)[:, 1:]
    labels = call.by_token("labels")
    if call.is_fused and labels is not None:
        ignored = labels[:, 1:].cpu() == IGNORE
        call.log_probs = call.log_probs.masked_fill(ignored, UNKNOWN)
    call.seen = None if call.is_fused else (own, top)


def read_gradient(call: Call, gradient: torch.Tensor) -> None:
    """Read from the gradient of what a call said what each position was trained towards.

    The gradient of a cross-entropy with weight w is w (p - 1) at the label and w p elsewhere. So
    the label is where the sign differs from all others, and the others add up to w (1 - p). At
    temperature T both are 1 / T of that.
    """
    call.trained = True
    seen, call.seen = call.seen, None
    if call.is_fused:
        _read_fused(call, gradient)
    if call.is_fused or gradient.dim() != 3:
        return
    size, total, low, high = (torch.empty(gradient.shape[:2]) for _ in range(4))
    at_low, at_high = (torch.empty(gradient.shape[:2], dtype=torch.long) for _ in range(2))
    for row, here, part in pieces(gradient):
        size[row, here], total[row, here] = part.abs().sum(-1), part.sum(-1)
        low[row, here], at_low[row, here] = part.min(-1)
        high[row, here], at_high[row, here] = part.max(-1)
    call.strengths = _by_token(call, size)
    zero = max(SUMS_TO_ZERO, float(torch.finfo(gradient.dtype).eps))
    # Of an almost certain token, only rounding of its weight is left.
    rounded = ROUNDED * float(size.max()) if size.numel() else 0.0
    is_other = bool((total.abs() > zero * size + rounded + 1e-12).any())
    if seen is None or is_other or gradient.shape[-1] < LEAST_VOCABULARY:
        return
    wanted = following(call.ids, gradient.shape[1]).cpu()
    up = -low >= high
    # Where only two tokens are possible, both sizes are equal: then it is the next token.
    equal = (low + high).abs() <= zero * size
    up = (up | (equal & (at_low == wanted))) & ~(equal & (at_high == wanted))
    labels = torch.where(up, at_low, at_high)
    others = size - torch.where(up, -low, high)
    # The probability of a label that is not the next token is not kept: it is small.
    probability = torch.where(labels == wanted, seen[0].exp(), 0.0)
    weight = others / (1 - probability).clamp_min(1e-6)
    call.labels, call.certain = (_by_token(call, x) for x in (labels, seen[1].exp() > 1 - CERTAIN))
    call.weights = _by_token(call, torch.where(up, weight, -weight) * call.temperature)


def _read_fused(call: Call, gradient: torch.Tensor) -> None:
    """Read the gradient of log-probabilities. A label that is ignored is its own token, and has no
    weight: a loss may sum up all of them, as the ignored ones are constants."""
    labels, call.labels = call.by_token("labels"), call.ids.cpu()
    call.weights = _by_token(call, -gradient.detach().float().cpu())
    if labels is not None:
        labels = labels.cpu()
        call.labels = torch.where(labels == IGNORE, call.labels, labels)
        call.weights = call.weights * (labels != IGNORE)
    call.strengths = call.weights.abs()


# The same call again.


def autocast_now() -> torch.dtype | None:
    """Return the dtype of autocast, if it is on."""
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
    return None


def scored(call: Call, **changed: Any) -> torch.Tensor:
    """Return what the model says, without gradients: the log-probability of each next token, (rows,
    tokens - 1); of a model that scores rows, the logits. `changed`: arguments; None leaves one
    out."""
    ids: Any = changed.get("input_ids", call.ids)
    if call.is_fused and "labels" in call.arguments:
        changed = {**changed, "labels": ids}
    arguments = {
        call.names.get(name, name): value
        for name, value in {**call.arguments, **changed}.items()
        if not (name in changed and value is None) and (call.is_fused or name != "labels")
    }
    device, mixed = next(call.module.parameters()).device.type, call.autocast is not None
    context = torch.autocast(device, dtype=call.autocast) if mixed else contextlib.nullcontext()
    with torch.no_grad(), context:
        # Not through the instance's own call: a plain loop is followed there.
        said = said_of(nn.Module._call_impl(call.module, **arguments))
        if said is None or (said[0] != call.is_fused and said[1].dim() > 2):
            raise ValueError("without labels, the model returns something else")
        if not call.scores_tokens:
            return said[1].float().reshape(len(said[1]), -1)
        found, _ = own_log_probs(call.is_fused, said[1], ids)
    return found if call.is_fused else found[:, :-1]
