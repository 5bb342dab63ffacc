"""Check that completions are sampled from the policy that is trained, whatever samples them.

A training on replayed completions never uses what it would have sampled. So in the first
and the last step this check lets `generate` sample. It compares the result with a plain forward of
the same model: each sequence alone, without padding, cache, autocast or compilation.

`gap`: largest difference between a sampled token's log-probability in `generate` and in the
forward; rounding alone makes it more than 0. `rank`: the position of the sampled tokens among all
tokens, ordered by the forward's probability: 0 is the likeliest, 1 the least likely. Each token
counts at the middle of its share of probability, so the mean is 1/2 for any distribution.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from canary.record.exact import DrawnStep, Generation
from canary.training.collectors.aside import uncounted
from canary.training.trainers.ppo.model import evaluate

Arguments = Mapping[str, Any]

MOST_BYTES = 1 << 30
"""Largest size of the logits that `generate` returns; more tokens than fit are not checked."""


@dataclass
class StepDrawn:
    """Sums over the sampled tokens of one step."""

    tokens: int = 0
    gap: float | None = None
    ranked: int = 0
    rank_sum: float = 0.0

    def described(self, step: int) -> DrawnStep:
        """Return them as the record stores them."""
        return {
            "step": step,
            "tokens": self.tokens,
            "gap": self.gap,
            "rank": self.rank_sum / self.ranked if self.ranked else None,
            "ranked": self.ranked,
        }


@dataclass
class OnPolicyCheck:
    """Checks the calls to `generate` in the first step and in step `last`."""

    trainer: Any
    model: Any
    drawing: Callable[[], contextlib.AbstractContextManager[None]]
    """Returns a context in which sampling draws from a separate random stream."""
    last: int
    steps: dict[int, StepDrawn] = field(default_factory=dict)

    def described(self) -> Generation:
        """Return the figures of each checked step; None for one that could not be measured."""
        return {"steps": [one.described(step) for step, one in sorted(self.steps.items())]}

    def look(
        self, original: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Sample as this call would and check the result; the training is not affected."""
        step = int(self.trainer.state.global_step) + 1
        if step not in (1, self.last):
            return
        with uncounted(), torch.no_grad(), _evaluated(self.model), self.drawing():
            output = original(*args, **{**kwargs, **self._asked(args, kwargs)})
            self._judge(output, args, kwargs, self.steps.setdefault(step, StepDrawn()))

    def _asked(self, args: Sequence[Any], kwargs: Arguments) -> dict[str, Any]:
        """Return extra arguments for `generate`: return the logits, raw and after scaling and
        filtering, for as many tokens as MOST_BYTES allows."""
        asked: dict[str, Any] = dict.fromkeys(
            ("return_dict_in_generate", "output_logits", "output_scores"), True
        )
        head = self.model.get_output_embeddings()
        if head is not None:
            per_token = (
                2 * torch.float32.itemsize * len(prompts_of(args, kwargs)) * len(head.weight)
            )
            most = max(1, MOST_BYTES // per_token)
            for name in ("max_new_tokens", "min_new_tokens"):
                wanted = self._setting(kwargs, name)
                if wanted is not None and wanted > most:
                    asked[name] = most
        return asked

    def _judge(self, output: Any, args: Sequence[Any], kwargs: Arguments, into: StepDrawn) -> None:
        prompts, mask = prompts_of(args, kwargs), kwargs.get("attention_mask")
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
                used = torch.stack([one[row] for one in logits[: len(tokens)]]).float()
                gaps = (_logprobs(used, tokens) - _logprobs(policy, tokens)).abs()
                gaps = gaps.nan_to_num(torch.inf)
                into.gap = max(into.gap or 0.0, float(gaps.max()))
            if sampled:
                policy = policy / temperature
                if scores:
                    cut = torch.stack([one[row] for one in scores[: len(tokens)]]).isneginf()
                    policy = policy.masked_fill(cut, -torch.inf)
                into.ranked += len(tokens)
                into.rank_sum += float(ranks(policy, tokens).sum())

    def _drawn(self, completion: torch.Tensor, kwargs: Arguments) -> torch.Tensor:
        """Return a completion up to and including the token that ends it."""
        end = self._setting(kwargs, "eos_token_id")
        ends = torch.as_tensor([] if end is None else end, device=completion.device).reshape(-1)
        found = torch.isin(completion, ends.to(completion)).nonzero()
        return completion[: int(found[0]) + 1] if len(found) else completion

    def _setting(self, kwargs: Arguments, name: str) -> Any:
        return setting_of(self.model, kwargs, name)

    def _plain(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits (tokens, vocabulary) of one sequence."""
        # accelerate wraps the model's forward in autocast and keeps the original here.
        forward = getattr(self.model, "_original_forward", self.model)
        with (
            torch.compiler.set_stance("force_eager"),
            _without_autocast(self.model, ids.device.type),
        ):
            logits: torch.Tensor = forward(input_ids=ids[None], use_cache=False).logits[0]
        return logits


def ranks(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return (tokens,): the probability of all tokens likelier than the sampled one, plus half that
    of all equally likely ones. If the token was sampled from this distribution, the expectation is
    1/2 (the mid-distribution transform; Parzen 2004)."""
    shares = logits.softmax(dim=-1)
    sampled = shares.gather(1, tokens[:, None])
    likelier, as_likely = (shares * (shares > sampled), shares * (shares == sampled))
    return (likelier.sum(dim=1) + as_likely.sum(dim=1) / 2).nan_to_num(1.0)


def _logprobs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(dim=-1).gather(1, tokens[:, None])[:, 0]


def prompts_of(args: Sequence[Any], kwargs: Arguments) -> torch.Tensor:
    """Return the prompts (rows, tokens) of a call to `generate`."""
    prompts: torch.Tensor = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
    return prompts


def setting_of(model: Any, kwargs: Arguments, name: str) -> Any:
    """Return a setting of a call to `generate`."""
    given, default = kwargs.get("generation_config"), model.generation_config
    values = (kwargs.get(name), getattr(given, name, None), getattr(default, name, None))
    return next((value for value in values if value is not None), None)


@contextlib.contextmanager
def _evaluated(model: torch.nn.Module) -> Iterator[None]:
    """Switch dropout off inside: two forwards would draw different masks."""
    modes = {module: module.training for module in model.modules()}
    evaluate(model)
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _without_autocast(model: Any, device: str) -> contextlib.AbstractContextManager[Any]:
    """Compute in the dtype of the parameters; flash attention only has half precision kernels."""
    if getattr(model.config, "_attn_implementation", None) in (None, "eager", "sdpa"):
        return torch.autocast(device, enabled=False)
    return contextlib.nullcontext()
