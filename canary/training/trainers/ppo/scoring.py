"""The scores of completions in PPO: of reward functions, or of a reward model, any frozen sequence
classifier with one label."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from canary.errors import InputError
from canary.training import adapt
from canary.training.collectors.batches import unmasked
from canary.training.data.dataset import DEFAULT_CHAT_TEMPLATE
from canary.training.models.model import from_named
from canary.training.trainers.rewards import rewards_for

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

    from canary.protocol.spec import WorkloadSpec
    from canary.training.trainers.ppo.rollout import Rollout

Prompt = str | list[dict[str, Any]]


@dataclass(frozen=True)
class Samples:
    """Completions to be scored, one per row of the data; `completions` are their texts without
    special tokens."""

    rows: Sequence[Mapping[str, Any]]
    completions: Sequence[str]
    rollout: Rollout

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts as the data has them."""
        return [row["prompt"] for row in self.rows]

    def completion_tokens(self) -> list[list[int]]:
        """Return the ids of each completion, without padding."""
        return unmasked(self.rollout.completion_ids, self.rollout.completion_mask)


class Scorer(Protocol):
    """Returns one number per completion, float32 (rows,), on the device of the ids."""

    def score(self, samples: Samples) -> torch.Tensor: ...


def build_scorer(
    spec: WorkloadSpec,
    rows: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    device: torch.device,
) -> Scorer:
    """Return the config's `ppo.reward_model` as scorer, or else the reward functions.

    Raises InputError if it cannot be loaded or the data lacks a column that it reads.
    """
    name = spec.config.ppo.reward_model if spec.config.ppo is not None else None
    if name is None:
        return RewardFunctions(rewards_for(spec, rows), spec.notes)
    return load_reward_model(spec, name, tokenizer, device)


class RewardFunctions:
    """Sums reward functions, called as trl calls them. A function that returns None abstains.

    A completion scores 0 if all functions abstain; `notes` says so once. A NaN score stays NaN, so
    that the checks see it.
    """

    def __init__(
        self, functions: Sequence[Callable[..., Any]], notes: list[str] | None = None
    ) -> None:
        self.functions = functions
        self._notes = notes
        self._noted = False

    def score(self, samples: Samples) -> torch.Tensor:
        """Return the sum of the functions' rewards, float32 (rows,)."""
        names = (name for name in samples.rows[0] if name != "prompt")
        # In the form of their prompts: texts, or lists of one message.
        completions: Sequence[Any] = samples.completions
        if not isinstance(samples.rows[0]["prompt"], str):
            completions = [[{"role": "assistant", "content": text}] for text in completions]
        arguments = {
            **{name: [row[name] for row in samples.rows] for name in names},
            "prompts": samples.prompts,
            "completions": list(completions),
            "completion_ids": samples.completion_tokens(),
        }
        columns = [_called(function, arguments) for function in self.functions]
        rewards = [[float(r) for r in row if r is not None] for row in zip(*columns, strict=True)]
        self._note_abstentions([not row for row in rewards], samples.completions)
        device = samples.rollout.completion_ids.device
        return torch.tensor([sum(row) for row in rewards], dtype=torch.float32, device=device)

    def _note_abstentions(self, abstained: Sequence[bool], completions: Sequence[str]) -> None:
        if self._notes is None or self._noted or not any(abstained):
            return
        self._noted = True
        first = completions[abstained.index(True)]
        self._notes.append(
            "completions score 0 if every reward function abstains: "
            f"{sum(abstained)} of {len(abstained)} in the first such step, for example {first!r}"
        )


def _called(function: Callable[..., Any], arguments: dict[str, Any]) -> list[float | None]:
    """Return a reward, or None, for each completion: `NamedReward` has checked them."""
    answer = function(**arguments)
    return list(asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer)


async def _awaited(answer: Any) -> Any:
    return await answer


UNLIMITED = 10**9
"""A tokenizer without a limit has a `model_max_length` above this."""


class RewardModel:
    """Scores with the model's only logit, in evaluation mode and without gradients.

    A model with the policy's tokenizer reads the sampled ids directly, so an unfinished completion
    has no end. Any other model reads the texts with its tokenizer and its chat template, which
    ends every turn.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        policy_tokenizer: PreTrainedTokenizerBase,
        *,
        rows_at_once: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.rows_at_once = rows_at_once
        self.takes_ids = _same_tokens(tokenizer, policy_tokenizer)
        self._policy_eos = policy_tokenizer.eos_token_id
        self._dtype = dtype
        config = model.config.get_text_config()
        if config.pad_token_id is None:
            config.pad_token_id = tokenizer.pad_token_id
        if config.pad_token_id is None:
            config.pad_token_id = tokenizer.eos_token_id or 0
        self._pad: int = config.pad_token_id
        self._longest: int = min(tokenizer.model_max_length, _positions(model), UNLIMITED)

    def score(self, samples: Samples) -> torch.Tensor:
        """Return one logit per row, float32 (rows,). Only the end of overlong sequences is read."""
        sequences = self._sequences(samples)
        shortest_first = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
        scores = torch.empty(len(sequences), device=self.model.device)
        for start in range(0, len(sequences), self.rows_at_once):
            rows = shortest_first[start : start + self.rows_at_once]
            scores[rows] = self._logits([sequences[row] for row in rows])
        return scores

    def _sequences(self, samples: Samples) -> list[list[int]]:
        completions = samples.completion_tokens()
        if self.takes_ids:
            prompts = unmasked(samples.rollout.prompt_ids, samples.rollout.prompt_mask)
            whole = [p + c for p, c in zip(prompts, completions, strict=True)]
        else:
            ended = [tokens[-1:] == [self._policy_eos] for tokens in completions]
            rows = zip(samples.prompts, samples.completions, ended, strict=True)
            whole = [self._read(*row) for row in rows]
        return [ids[-self._longest :] for ids in whole]

    def _read(self, prompt: Prompt, completion: str, ended: bool) -> list[int]:
        """Return the ids of a text in the format that the model was trained on."""
        if isinstance(prompt, str):
            end = str(self.tokenizer.eos_token or "") if ended else ""
            # Truncated by the tokenizer, so that its first special token stays: a classifier such
            # as RoBERTa reads its score there.
            plain: list[int] = self.tokenizer(
                prompt + completion + end, truncation=True, max_length=self._longest
            )["input_ids"]
            return plain
        messages = [*prompt, {"role": "assistant", "content": completion}]
        text = self.tokenizer.apply_chat_template(messages, tokenize=False)
        templated: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return templated

    def _logits(self, sequences: list[list[int]]) -> torch.Tensor:
        """Return float32 (len(sequences),); the inputs are padded on the right."""
        width = max(map(len, sequences))
        device = self.model.device
        ids = torch.tensor([row + [self._pad] * (width - len(row)) for row in sequences])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in sequences])
        with torch.no_grad(), self._autocast():
            answer = self.model(input_ids=ids.to(device), attention_mask=mask.to(device))
        logits: torch.Tensor = answer.logits[:, 0].float()
        return logits

    def _autocast(self) -> AbstractContextManager[Any]:
        if self._dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.model.device.type, dtype=self._dtype)


def load_reward_model(
    spec: WorkloadSpec, name: str, tokenizer: PreTrainedTokenizerBase, device: torch.device
) -> RewardModel:
    """Return the reward model by that name, for a policy with `tokenizer`.

    Raises InputError if it cannot be loaded or is not a sequence classifier with one label.
    """
    trusted = spec.config.trust_remote_code
    reward_tokenizer: PreTrainedTokenizerBase = from_named(
        name,
        lambda source, access: AutoTokenizer.from_pretrained(
            source, **access, padding_side="right", truncation_side="left"
        ),
        trusted=trusted,
        what="reward model",
    )
    if reward_tokenizer.chat_template is None and tokenizer.chat_template is not None:
        reward_tokenizer.chat_template = DEFAULT_CHAT_TEMPLATE
    model: PreTrainedModel = from_named(
        name,
        lambda source, access: _classifier(name, source, access),
        trusted=trusted,
        what="reward model",
    )
    return RewardModel(
        model.to(device),
        reward_tokenizer,
        tokenizer,
        rows_at_once=spec.config.batch_size,
        dtype=getattr(torch, spec.config.dtype),
    )


def _positions(model: PreTrainedModel) -> int:
    """Return the longest sequence that the model has positions for.

    RoBERTa and its relatives count positions from the row after the padding row of their table
    (XLM-R, CamemBERT, Longformer, MPNet, ESM).
    """
    config = model.config.get_text_config()
    found: int = getattr(config, "max_position_embeddings", None) or UNLIMITED
    for name, table in model.named_modules():
        padding = getattr(table, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            found = min(found, table.num_embeddings - padding - 1)
    return found


def _classifier(name: str, source: str, access: dict[str, Any]) -> PreTrainedModel:
    config: Any = AutoConfig.from_pretrained(source, **access)
    kinds = [*(config.architectures or ()), *(getattr(config, "auto_map", None) or ())]
    hint = "name a sequence classifier with one label"
    if not any("SequenceClassification" in kind for kind in kinds):
        what = ", ".join(config.architectures or ()) or config.model_type
        raise InputError(f"reward model '{name}' is a {what}, not a sequence classifier", hint)
    if config.num_labels != 1:
        raise InputError(
            f"reward model '{name}' has {config.num_labels} labels, but a reward is one number",
            hint,
        )
    model, loading = AutoModelForSequenceClassification.from_pretrained(
        source,
        config=config,
        output_loading_info=True,
        **access,
        **adapt.dtype_option(torch.float32),
    )
    if loading["missing_keys"]:
        missing = ", ".join(sorted(loading["missing_keys"])[:3])
        raise InputError(f"reward model '{name}' lacks weights: {missing}", hint)
    found: PreTrainedModel = model
    return found


def _same_tokens(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> bool:
    """Return whether both give the same ids for a conversation; padding may differ."""
    return (
        _vocabulary(one) == _vocabulary(other)
        and one.eos_token == other.eos_token
        and one.chat_template == other.chat_template
    )


def _vocabulary(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    return {
        token: number
        for token, number in tokenizer.get_vocab().items()
        if token != tokenizer.pad_token
    }
