"""The models of PPO: a policy with a value head, and a reference model that never changes."""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from canary.training.trainers.ppo.objective import entropy_of


class ForwardOutput(NamedTuple):
    """Outputs of a forward for the completions, each (rows, completion), or None if not asked for.
    A tuple, because accelerate converts the outputs of a forward."""

    log_probs: torch.Tensor | None
    values: torch.Tensor | None
    entropy: torch.Tensor | None


@dataclass(frozen=True)
class Request:
    """Outputs to compute in a forward. `whole`: compute log-probabilities of all positions, prompts
    and padding too, and keep those of the completions. This is slower and gives the same result."""

    temperature: float
    logprobs: bool = True
    values: bool = True
    entropy: bool = False
    whole: bool = False


class LanguageModel:
    """Computes log-probabilities and last hidden states of a causal model, also with adapters."""

    def __init__(self, model: Any) -> None:
        self.model = model
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._trunk = inner.base_model
        self._head = inner.get_output_embeddings()
        self._takes_positions = "position_ids" in inspect.signature(inner.forward).parameters
        self._whole = inner
        self._splits = self._head is not None and self._trunk is not inner and self._same_split()

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        return int(self._head.weight.shape[-1])

    def _same_split(self) -> bool:
        """Return whether trunk and head, called one after the other, give the model's logits: some
        models scale or cap them in between or afterwards."""
        ids = torch.arange(2, device=self._head.weight.device).unsqueeze(0)
        mask = torch.ones_like(ids)
        training = self._whole.training
        evaluate(self._whole)
        try:
            with torch.no_grad():
                hidden = self._trunk(input_ids=ids, attention_mask=mask).last_hidden_state
                logits = self._whole(input_ids=ids, attention_mask=mask).logits
                return bool(torch.equal(self._head(hidden), logits))
        finally:
            self._whole.train(training)

    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, length: int, request: Request
    ) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor | None]:
        """Return (log-probabilities, hidden states, entropy) of the last `length` tokens of each
        row. A token's probability and value come from the hidden state before it."""
        inputs: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self._takes_positions:
            # Each token's place in its sequence, however it is padded.
            places = attention_mask.long().cumsum(dim=1) - 1
            inputs["position_ids"] = places.clamp(min=0)
        inputs["use_cache"] = False
        if self._splits:
            hidden = self._trunk(**inputs).last_hidden_state
        else:
            output = self._whole(**inputs, output_hidden_states=True)
            hidden = output.hidden_states[-1]
        before = slice(-length - 1, -1)
        # Contiguous: on a slice, matmul computes differently for trainable and for frozen weights.
        # Policy and reference would then differ by rounding from the start.
        states = hidden[:, before].contiguous()
        if not (request.logprobs or request.entropy):
            return None, states, None
        if request.whole:
            logits = self._head(hidden) if self._splits else output.logits
            found, entropy = _of_tokens(logits[:, :-1], input_ids[:, 1:], request)
            found = found[:, -length:]
            entropy = None if entropy is None else entropy[:, -length:]
        else:
            logits = self._head(states) if self._splits else output.logits[:, before]
            found, entropy = _of_tokens(logits, input_ids[:, -length:], request)
        return found, states, entropy


def _of_tokens(
    logits: torch.Tensor, ids: torch.Tensor, request: Request
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the log-probabilities of `ids` (rows, tokens) at the sampling temperature."""
    every = torch.log_softmax(logits.float() / request.temperature, dim=-1)
    chosen = every.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    return chosen, entropy_of(every) if request.entropy else None


class ActorCritic(nn.Module):
    """The policy, with a value head on its last hidden states: one linear layer in float32. It
    starts at 0, so that the first advantages depend on the rewards alone."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy
        self._language_model = LanguageModel(policy)
        width = self._language_model.hidden_size
        device = next(policy.parameters()).device
        self.value_head = nn.Linear(width, 1, device=device)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)
        self.config = policy.config
        self.generation_config = policy.generation_config
        if hasattr(policy, "peft_config"):
            self.peft_config = policy.peft_config

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, length: int, request: Request
    ) -> ForwardOutput:
        """Return log-probabilities, values and entropy of the last `length` tokens of each row."""
        found, hidden, entropy = self._language_model(input_ids, attention_mask, length, request)
        values = self._values(hidden) if request.values else None
        return ForwardOutput(found, values, entropy)

    def _values(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return (rows, tokens), always in float32."""
        device = hidden.device.type
        # Only if autocast is on: torch.compile cannot cache a graph that enters autocast, and each
        # process would compile it again.
        on = torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False) if on else contextlib.nullcontext():
            values: torch.Tensor = self.value_head(hidden.float()).squeeze(-1)
        return values

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Call the policy's `generate`."""
        return self.policy.generate(*args, **kwargs)

    @property
    def device(self) -> torch.device:
        """The policy's device."""
        return next(self.policy.parameters()).device


class Reference:
    """The reference model: a frozen copy of the policy, or the policy without its adapter."""

    def __init__(self, copy: Any | None, policy: Any) -> None:
        self._policy: Any = policy if copy is None else None
        self._language_model = LanguageModel(policy if copy is None else copy)

    def logprobs(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, length: int, request: Request
    ) -> torch.Tensor:
        """Return (rows, length): log-probabilities of the last `length` tokens of each row."""
        off = contextlib.nullcontext() if self._policy is None else self._policy.disable_adapter()
        with torch.no_grad(), off:
            found, _, _ = self._language_model(input_ids, attention_mask, length, request)
        assert found is not None
        return found


def without_dropout(model: nn.Module) -> float:
    """Switch off all dropout, also that of adapters; return the largest rate found.

    With dropout the first ratio would not be 1: updates would learn from the random masks, and
    clipping would stop some of them. Models of transformers have dropout modules. They also pass
    rates, under many names in modules or configs, to `torch.nn.functional.dropout`.
    """
    found = [0.0]
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            found.append(module.p)
            module.p = 0.0
        for owner in (module, getattr(module, "config", None)):
            for name in rates(owner):
                found.append(getattr(owner, name))
                setattr(owner, name, 0.0)
    return max(found)


def rates(owner: object) -> list[str]:
    """Return the names of a module's or config's attributes that are dropout rates."""
    values = getattr(owner, "__dict__", {})
    return [name for name, value in values.items() if "drop" in name and isinstance(value, float)]


def evaluate(model: nn.Module) -> None:
    """Set evaluation mode, except for 4-bit layers on a CPU with bfloat16 instructions: there
    bitsandbytes would repack the weights for kernels that compute other values than training."""
    model.train(False)
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.training = True
