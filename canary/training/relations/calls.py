"""Calls of the model in a training step, and the same calls again with other inputs."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from canary.training.random_states import kept_random
from canary.training.relations.adapters import State
from canary.training.relations.naming import own_names
from canary.training.relations.temperature import nearest, of_gradient

MOST_LOGITS = 1 << 26
"""Numbers of a gradient of logits that are kept; a larger one is only summed up."""
IGNORE = -100
"""The label that a loss ignores."""
LEAST_VOCABULARY = 17
"""A model with fewer outputs per token scores rows or tokens by classes."""
SUMS_TO_ZERO = 1e-3
"""The gradient of a log-softmax adds up to 0 over the vocabulary; relative, if not rounded more."""
ROUNDED = 1e-5
"""Of the largest gradient of a token: one that adds up to less may be rounding."""
CERTAIN = 1e-5
"""A token whose probability is this close to 1 has no gradient, trained or not."""


Says = Literal["logits", "log_probs"]
"""What a model returns: logits, or, as trl's models with a fused head, the log-probability of each
label."""


@dataclass
class KeptCall:
    """One call of the policy whose loss trained it; see `canary.relations.relation.Call`."""

    module: nn.Module
    arguments: dict[str, Any]
    """By the names of transformers, as far as the model has such arguments."""
    shape: tuple[int, ...]
    training: bool
    says: Says
    names: dict[str, str] = field(default_factory=dict)
    """The model's own names of arguments, where they differ."""
    head: nn.Module | None = None
    """The part that says the logits, if the model returns only its loss."""
    weights: torch.Tensor | None = None
    labels: torch.Tensor | None = None
    certain: torch.Tensor | None = None
    """Shape (rows, tokens): True where a weight of 0 may be that of a certain token."""
    strengths: torch.Tensor | None = None
    """Shape (rows, tokens): the size of the gradient at each position."""
    gradient: torch.Tensor | None = None
    """Of what it said; None if it is too large to keep."""
    trained: bool = False
    """Whether a gradient reached what it said."""
    temperature: float | None = None
    """Of the log-probabilities that the loss took; None if it was not measured."""
    autocast: torch.dtype | None = None
    """The dtype that the call computed in, if not that of the parameters."""
    log_probs: torch.Tensor | None = None
    """Of each own token but the first, shape (rows, tokens - 1); None if they were not kept."""
    adapters: State = ()
    """Which adapters of peft it used, if they were kept."""

    @property
    def ids(self) -> torch.Tensor | None:
        """The token ids, shape (rows, tokens)."""
        found: Any = self.arguments.get("input_ids")
        return found if torch.is_tensor(found) and found.dim() == 2 else None

    @property
    def mask(self) -> torch.Tensor | None:
        """The attention mask, shape (rows, tokens)."""
        found: Any = self.arguments.get("attention_mask")
        return found if torch.is_tensor(found) and found.dim() == 2 else None

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether its ids are those of an encoder, and its logits those of a decoder."""
        config = getattr(self.module, "config", None)
        said = bool(getattr(config, "is_encoder_decoder", False))
        return said or any(name.startswith("decoder_") for name in self.arguments)

    @property
    def are_labels_known(self) -> bool:
        """Whether the model got its labels and returned their log-probabilities."""
        labels: Any = self.arguments.get("labels")
        given = torch.is_tensor(labels) and self.ids is not None and labels.shape == self.ids.shape
        return self.says == "log_probs" and given

    @property
    def scores_tokens(self) -> bool:
        """Whether the logits are those of tokens."""
        return self.says == "log_probs" or (
            len(self.shape) == 3 and self.shape[-1] >= LEAST_VOCABULARY
        )


def kept_call(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], says: Says, said: Any
) -> KeptCall:
    """Return a call, with its arguments by the names of transformers."""
    shape = shape_of(module, says, said)
    arguments = bound(module, args, kwargs)
    names = own_names(arguments, shape)
    theirs = {own: name for name, own in names.items()}
    arguments = {theirs.get(name, name): value for name, value in arguments.items()}
    return KeptCall(module, arguments, shape, module.training, says, names)


def bound(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, with copies of tensors."""
    named: dict[str, Any] = {}
    if args:
        places = [
            one.name
            # A compiled module takes any arguments for its own.
            for one in inspect.signature(
                getattr(module, "_orig_mod", module).forward
            ).parameters.values()
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
        named = dict(zip(places, args, strict=False))
    named |= kwargs
    return {
        name: value.detach().clone() if torch.is_tensor(value) else value
        for name, value in named.items()
    }


def said_of(output: Any) -> tuple[Says, torch.Tensor] | None:
    """Return what a model says of its inputs, if that is known."""
    known: Any = getattr(output, "log_probs", None)
    if torch.is_tensor(known) and known.dim() == 2:
        return "log_probs", known
    logits = _logits_of(output)
    return None if logits is None or logits.dim() < 2 else ("logits", logits)


def is_loss(output: Any) -> bool:
    """Whether a model returns only its loss."""
    return torch.is_tensor(output) and output.dim() == 0 and output.requires_grad


def are_logits(module: nn.Module, output: Any) -> bool:
    """Whether a part of a model may say its logits."""
    return (
        isinstance(module, nn.Linear)
        and torch.is_tensor(output)
        and output.dim() == 3
        and output.shape[-1] >= LEAST_VOCABULARY
        and output.requires_grad
    )


def gets_ids(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call has an argument that may be rows of token ids."""
    return any(
        torch.is_tensor(one) and one.dim() == 2 and not one.is_floating_point()
        for one in (*args, *kwargs.values())
    )


def rows_in(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return what tells the rows of a call from others: the shape and sums of its token ids."""
    for one in (*args, *kwargs.values()):
        if torch.is_tensor(one) and one.dim() == 2 and not one.is_floating_point():
            places = torch.arange(1, one.shape[1] + 1, device=one.device)
            return (*one.shape, int(one.sum()), int((one * places).sum()))
    return None


def scores_tokens(output: Any) -> bool:
    """Whether a part of a model says the logits of tokens."""
    known = said_of(output)
    return known is not None and known[1].dim() == 3 and known[1].shape[-1] >= LEAST_VOCABULARY


def shape_of(module: nn.Module, says: Says, said: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of the logits."""
    if says == "logits":
        return tuple(said.shape)
    size = getattr(getattr(module, "config", None), "vocab_size", None)
    return len(said), said.shape[1] + 1, size or 1 << 30


def _logits_of(output: Any) -> torch.Tensor | None:
    found: Any = getattr(output, "logits", None)
    if found is None and isinstance(output, Mapping):
        found = output.get("logits")
    if found is None and isinstance(output, tuple | list):
        found = next((one for one in output if torch.is_tensor(one) and one.dim() >= 2), None)
    if found is None:
        found = output
    return found if torch.is_tensor(found) and found.is_floating_point() else None


def called(call: KeptCall, **changed: Any) -> torch.Tensor:
    """Call the model again and return what it says. `changed`: arguments; None leaves one out."""
    arguments = {**call.arguments, **changed}
    arguments = {
        call.names.get(name, name): value
        for name, value in arguments.items()
        if not (name in changed and value is None)
        and not (name == "labels" and call.says == "logits")
    }
    # Not through the instance's own call: a plain loop is followed there.
    with _autocast(call), _said_by(call.head) as heard:
        said = said_of(nn.Module._call_impl(call.module, **arguments))
    if call.head is not None:
        return heard[-1]
    if said is None or (said[0] != call.says and said[1].dim() > 2):
        raise ValueError("without labels, the model returns something else")
    return said[1]


@contextlib.contextmanager
def _said_by(head: nn.Module | None) -> Iterator[list[torch.Tensor]]:
    """Keep what a part of the model says within a block."""
    heard: list[torch.Tensor] = []
    if head is None:
        yield heard
        return
    handle = head.register_forward_hook(lambda *call: heard.append(call[-1]))
    try:
        yield heard
    finally:
        handle.remove()


def _autocast(call: KeptCall) -> contextlib.AbstractContextManager[Any]:
    """Compute as the call did."""
    if call.autocast is None:
        return contextlib.nullcontext()
    device = next(call.module.parameters()).device.type
    return torch.autocast(device, dtype=call.autocast)


def autocast_now() -> torch.dtype | None:
    """Return the dtype of autocast, if it is on."""
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
    return None


def scored(call: KeptCall, temperature: float = 1.0, **changed: Any) -> torch.Tensor:
    """Return what the model says, without gradients; see `Look.scores`. `temperature`: that of the
    log-probabilities of tokens, where the model returns logits."""
    ids: Any = changed.get("input_ids", call.ids)
    if call.says == "log_probs":
        with torch.no_grad():
            labels = {"labels": ids} if "labels" in call.arguments else {}
            return called(call, **{**changed, **labels}).float()
    with torch.no_grad():
        logits = called(call, **changed)
    if not call.scores_tokens or not torch.is_tensor(ids):
        return logits.float().reshape(len(logits), -1)
    kept = logits.shape[1]
    following = ids[:, ids.shape[1] - kept + 1 :]
    found = (logits[:, :-1].float() / temperature).log_softmax(-1)
    return found.gather(-1, following.unsqueeze(-1)).squeeze(-1)


def weigh(call: KeptCall, logits: torch.Tensor, gradient: torch.Tensor, keep: bool = True) -> None:
    """Read from the gradient of the logits what each position was trained towards.

    The gradient of a cross-entropy with weight w is w (p - 1) at the label and w p elsewhere. So
    the label is where the sign differs from all others, and the others add up to w (1 - p). At
    temperature T both are 1 / T of that. `keep`: keep the gradient too.
    """
    call.trained = True
    with torch.no_grad():
        if keep and gradient.numel() <= MOST_LOGITS:
            call.gradient = gradient.detach().clone()
        if call.says == "log_probs":
            call.weights = -gradient.detach().float() * _asked_for(call, gradient)
            call.strengths = call.weights.abs()
            call.labels = _fused_labels(call, gradient)
            return
        size = gradient.float().abs().sum(-1)
        call.strengths = size if gradient.dim() == 3 else None
        apart = gradient.float().sum(-1).abs()
        zero = max(SUMS_TO_ZERO, float(torch.finfo(gradient.dtype).eps))
        # Of an almost certain token, only rounding of its weight is left.
        rounded = ROUNDED * float(size.max()) if size.numel() else 0.0
        if gradient.dim() != 3 or bool((apart > zero * size + rounded + 1e-12).any()):
            return
        call.temperature = of_gradient(logits, gradient)
        told = nearest(call.temperature or 1.0)
        low, at_low = gradient.min(-1)
        high, at_high = gradient.max(-1)
        up = _raises(call, (low, at_low), (high, at_high), zero * size)
        call.labels = torch.where(up, at_low, at_high)
        probability = (logits.float() / told).softmax(-1)
        chosen = probability.gather(-1, call.labels.unsqueeze(-1)).squeeze(-1)
        call.certain = probability.amax(-1) > 1 - CERTAIN
        others = size - torch.where(up, -low, high).float()
        weight = others / (1 - chosen).clamp_min(1e-6)
        call.weights = torch.where(up, weight, -weight) * told


def _raises(
    call: KeptCall,
    low: tuple[torch.Tensor, torch.Tensor],
    high: tuple[torch.Tensor, torch.Tensor],
    zero: torch.Tensor,
) -> torch.Tensor:
    """Return whether the label is at the lowest gradient, so that it is raised, or at the highest.
    Where only two tokens are possible, both sizes are equal: then the label is the next token."""
    up = -low[0] >= high[0]
    ids, kept = call.ids, up.shape[1]
    if ids is None or kept > ids.shape[1]:
        return up
    following = ids.roll(-1, 1)[:, ids.shape[1] - kept :]
    equal = (low[0] + high[0]).abs() <= zero
    up = up | (equal & (low[1] == following))
    return up & ~(equal & (high[1] == following))


def _fused_labels(call: KeptCall, gradient: torch.Tensor) -> torch.Tensor | None:
    """Return the labels whose log-probabilities a model returned; an ignored one is its token."""
    if call.ids is None:
        return None
    ids = call.ids[:, call.ids.shape[1] - gradient.shape[1] :]
    labels: Any = call.arguments.get("labels")
    if not torch.is_tensor(labels) or labels.shape != call.ids.shape:
        return ids
    labels = labels[:, labels.shape[1] - gradient.shape[1] :]
    return torch.where(labels == IGNORE, ids, labels)


def _asked_for(call: KeptCall, gradient: torch.Tensor) -> torch.Tensor:
    """Return 1 where a log-probability was asked for, 0 where the label is ignored: a loss may sum
    up all of them, as the ignored ones are constants."""
    labels: Any = call.arguments.get("labels")
    if not torch.is_tensor(labels) or labels.dim() != 2 or labels.shape[1] <= gradient.shape[1]:
        return torch.ones_like(gradient, dtype=torch.float32)
    return (labels[:, -gradient.shape[1] :] != IGNORE).float()


@contextlib.contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run a block in evaluation mode; restore modes, buffers and random states after it."""
    modes = [(one, one.training) for one in model.modules()]
    buffers = [(one, one.detach().clone()) for one in model.buffers()]
    model.eval()
    try:
        with kept_random():
            yield
    finally:
        for one, training in modes:
            one.training = training
        with torch.no_grad():
            for buffer, kept in buffers:
                buffer.copy_(kept)
