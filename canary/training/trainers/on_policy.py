"""Whether completions are drawn from the policy that is trained, whatever draws them.

A training on given completions never uses what it would have sampled. So this lets `generate`
sample as it is asked to, in the first step and in the last, and holds it against a plain forward of
the same model: each sequence by itself, without padding, cache, autocast or compilation.

`gap`: largest difference of a drawn token's log-probability, between the logits that `generate`
had and those of the forward; rounding alone makes it more than 0. `rank`: where the drawn tokens
lie among all tokens in order of the forward's probability, 0 the likeliest and 1 the least likely,
each at the middle of its own share; its mean is 1/2 for draws from any distribution.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from canary.record.exact import DrawnStep, Generation
from canary.training.trainers.ppo.modes import evaluate

Arguments = Mapping[str, Any]

MOST_BYTES = 1 << 30
"""Of the logits that `generate` is asked for; where all would be more, fewer tokens are looked at,
the first ones."""


@dataclass
class StepDrawn:
    """What was seen of one step."""

    tokens: int = 0
    gap: float | None = None
    gap_sum: float = 0.0
    ranked: int = 0
    rank_sum: float = 0.0

    def described(self, step: int) -> DrawnStep:
        """As the record has it."""
        return {
            "step": step,
            "tokens": self.tokens,
            "gap": self.gap,
            "gap_mean": None if self.gap is None else self.gap_sum / max(1, self.tokens),
            "rank": self.rank_sum / self.ranked if self.ranked else None,
            "ranked": self.ranked,
        }


@dataclass
class OnPolicyCheck:
    """Looks at calls to `generate` in the first step and in step `last`."""

    trainer: Any
    model: Any
    drawing: Callable[[], contextlib.AbstractContextManager[None]]
    """Inside, random numbers of sampling are drawn, apart from all others."""
    last: int
    steps: dict[int, StepDrawn] = field(default_factory=dict)

    def described(self) -> Generation:
        """Of each step that was looked at; a figure is None where it could not be told."""
        return {"steps": [one.described(step) for step, one in sorted(self.steps.items())]}

    def look(
        self, original: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Samples as this call asks for, and judges what comes; changes nothing."""
        step = int(self.trainer.state.global_step) + 1
        if step not in (1, self.last):
            return
        with _disable_current_modes(), torch.no_grad(), _evaluated(self.model), self.drawing():
            output = original(*args, **{**kwargs, **self._asked(args, kwargs)})
            self._judge(output, args, kwargs, self.steps.setdefault(step, StepDrawn()))

    def _asked(self, args: Sequence[Any], kwargs: Arguments) -> dict[str, Any]:
        """What `generate` is asked beside what the trainer asks: its logits, as the model gives
        them, and after they are scaled and cut; of so many tokens as there is room for."""
        asked: dict[str, Any] = dict.fromkeys(
            ("return_dict_in_generate", "output_logits", "output_scores"), True
        )
        head = self.model.get_output_embeddings()
        if head is not None:
            a_token = 2 * torch.float32.itemsize * len(_prompts(args, kwargs)) * len(head.weight)
            most = max(1, MOST_BYTES // a_token)
            for name in ("max_new_tokens", "min_new_tokens"):
                wanted = self._setting(kwargs, name)
                if wanted is not None and wanted > most:
                    asked[name] = most
        return asked

    def _judge(self, output: Any, args: Sequence[Any], kwargs: Arguments, into: StepDrawn) -> None:
        prompts, mask = _prompts(args, kwargs), kwargs.get("attention_mask")
        sequences = output if isinstance(output, torch.Tensor) else output.sequences
        logits, scores = (getattr(output, name, None) for name in ("logits", "scores"))
        copies = len(sequences) // len(prompts)
        temperature = self._setting(kwargs, "temperature") or 1.0
        sampled = bool(self._setting(kwargs, "do_sample"))
        for row, sequence in enumerate(sequences):
            tokens = self._drawn(sequence[prompts.shape[1] :], kwargs)
            prompt = prompts[row // copies]
            if mask is not None:
                prompt = prompt[mask[row // copies].bool()]
            policy = self._plain(torch.cat([prompt, tokens]))[-len(tokens) - 1 : -1].float()
            into.tokens += len(tokens)
            if logits:
                own = torch.stack([one[row] for one in logits[: len(tokens)]]).float()
                apart = (_logprobs(own, tokens) - _logprobs(policy, tokens)).abs()
                apart = apart.nan_to_num(torch.inf)
                into.gap = max(into.gap or 0.0, float(apart.max()))
                into.gap_sum += float(apart.sum())
            if sampled:
                policy = policy / temperature
                if scores:
                    cut = torch.stack([one[row] for one in scores[: len(tokens)]]).isneginf()
                    policy = policy.masked_fill(cut, -torch.inf)
                into.ranked += len(tokens)
                into.rank_sum += float(ranks(policy, tokens).sum())

    def _drawn(self, completion: torch.Tensor, kwargs: Arguments) -> torch.Tensor:
        """A completion up to and with the token that ends it."""
        end = self._setting(kwargs, "eos_token_id")
        ends = torch.as_tensor([] if end is None else end, device=completion.device).reshape(-1)
        found = torch.isin(completion, ends.to(completion)).nonzero()
        return completion[: int(found[0]) + 1] if len(found) else completion

    def _setting(self, kwargs: Arguments, name: str) -> Any:
        """A setting of this call to `generate`."""
        given, own = kwargs.get("generation_config"), self.model.generation_config
        values = (kwargs.get(name), getattr(given, name, None), getattr(own, name, None))
        return next((value for value in values if value is not None), None)

    def _plain(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (tokens, words) of one sequence."""
        # accelerate puts autocast around a model's forward and keeps the one inside.
        forward = getattr(self.model, "_original_forward", self.model)
        with _eager(), _without_autocast(self.model, ids.device.type):
            logits: torch.Tensor = forward(input_ids=ids[None], use_cache=False).logits[0]
        return logits


def ranks(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """(tokens,): the share of the probability on words likelier than the drawn one, and half of
    that on words as likely as it. Its expectation is 1/2 for any distribution, if the token was
    drawn from it (the mid-distribution transform; Parzen 2004)."""
    shares = logits.softmax(dim=-1)
    own = shares.gather(1, tokens[:, None])
    likelier, as_likely = (shares * (shares > own), shares * (shares == own))
    return (likelier.sum(dim=1) + as_likely.sum(dim=1) / 2).nan_to_num(1.0)


def _logprobs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(dim=-1).gather(1, tokens[:, None])[:, 0]


def _prompts(args: Sequence[Any], kwargs: Arguments) -> torch.Tensor:
    prompts: torch.Tensor = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
    return prompts


@contextlib.contextmanager
def _evaluated(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout, which no two forwards would share."""
    modes = {module: module.training for module in model.modules()}
    evaluate(model)
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _eager() -> contextlib.AbstractContextManager[Any]:
    """What is compiled runs as it is written; before torch 2.6 it stays compiled."""
    stance = getattr(torch.compiler, "set_stance", None)
    return contextlib.nullcontext() if stance is None else stance("force_eager")


def _without_autocast(model: Any, device: str) -> contextlib.AbstractContextManager[Any]:
    """In the dtype of the parameters; kernels of flash attention have none but half precision."""
    if getattr(model.config, "_attn_implementation", None) in (None, "eager", "sdpa"):
        return torch.autocast(device, enabled=False)
    return contextlib.nullcontext()
