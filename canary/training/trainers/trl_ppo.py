"""trl's PPOTrainer, to be timed beside the canary's PPO; trl 1.12 is the last version with it.

Both do equal work: the same prompts per rollout, tokens per completion, epochs and updates. But
trl's critic is a separate model as large as the policy; the canary's is a head on the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import Trainer

from canary.errors import ConfigError
from canary.protocol.spec import WorkloadSpec
from canary.training import adapt
from canary.training.data.dataset import load_rows
from canary.training.models.model import load_model, load_tokenizer, lora_config
from canary.training.plugins import callbacks
from canary.training.trainers.arguments import training_arguments
from canary.training.trainers.ppo.rollout import prompt_ids
from canary.training.trainers.ppo.scoring import Samples, Scorer, build_scorer

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

SAME_NAME = (
    "gamma",
    "lam",
    "cliprange",
    "cliprange_value",
    "vf_coef",
    "kl_estimator",
    "num_mini_batches",
    "whiten_rewards",
    "missing_eos_penalty",
)
NOT_IN_TRL = {"ent_coef": 0.0, "adap_kl_ctrl": False, "target_kl": None}
"""Settings that trl's trainer lacks, with the values that switch them off."""


def build(spec: WorkloadSpec) -> Any:
    """Return trl's PPOTrainer, not yet started. Raises ConfigError if this trl has no PPO."""
    config_class, trainer_class = _offered()
    config = spec.config
    assert config.ppo is not None
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    policy = load_model(spec, tokenizer)
    arguments = training_arguments(spec, config_class, **_settings(spec))
    ids = rows.map(
        lambda row: {"input_ids": prompt_ids(row, tokenizer)}, remove_columns=rows.column_names
    )
    scorer = build_scorer(spec, rows, tokenizer, arguments.device)
    trainer = adapt.build(
        trainer_class,
        args=arguments,
        processing_class=tokenizer,
        model=policy,
        ref_model=None,
        reward_model=_Scored(scorer, rows, tokenizer),
        value_model=_critic(spec, policy),
        train_dataset=ids,
        eval_dataset=ids.select(range(1)),
        callbacks=callbacks(spec),
        peft_config=lora_config(spec),
    )
    _use_canary_order(trainer)
    _update_per_mini_batch(trainer, config.gradient_accumulation_steps)
    if config.fixed_length:
        # EOS is then never sampled, which changes trl's first ratio; the work stays the same.
        policy.generation_config.min_new_tokens = config.max_new_tokens
    return trainer


def _offered() -> tuple[type[Any], type[Any]]:
    try:
        return adapt.offered("PPO", takes="value_model")
    except ConfigError as error:
        raise ConfigError(
            f"trl {adapt.installed('trl')} has no PPO",
            "pip install trl==1.12.0, the last version with PPO",
            key="training_type",
        ) from error


def _settings(spec: WorkloadSpec) -> dict[str, Any]:
    """Return arguments of trl's trainer for the same work."""
    config, ppo = spec.config, spec.config.ppo
    assert ppo is not None
    for name, off in NOT_IN_TRL.items():
        if getattr(ppo, name) != off:
            spec.notes.append(f"ppo.{name} is ignored: trl's PPO has no such setting")
    # trl's rollout has micro-batch size times accumulation steps completions.
    accumulated = config.gradient_accumulation_steps * ppo.num_mini_batches
    return {
        **{name: getattr(ppo, name) for name in SAME_NAME},
        "gradient_accumulation_steps": accumulated,
        "total_episodes": spec.max_steps * config.batch_size * accumulated * spec.ranks,
        "num_ppo_epochs": ppo.ppo_epochs,
        "kl_coef": ppo.init_kl_coef,
        "response_length": config.max_new_tokens,
        "temperature": config.temperature,
        "stop_token": "eos",
        "num_sample_generations": 0,
        "remove_unused_columns": False,
    }


def _critic(spec: WorkloadSpec, policy: Any) -> Any:
    """Return a classifier with one label on a copy of the policy's weights."""
    from transformers import AutoModelForSequenceClassification

    folder = str(spec.scratch_dir / "policy")
    policy.save_pretrained(folder)
    loader: Any = AutoModelForSequenceClassification
    return loader.from_pretrained(folder, num_labels=1, **adapt.dtype_option(torch.float32))


def _use_canary_order(trainer: Any) -> None:
    """Draw the prompts that transformers' Trainer, and so the canary's PPO, draws in each step.
    trl's PPO would draw others, with other lengths."""
    loading = trainer.accelerator.dataloader_config
    loading.use_seedable_sampler = True
    loading.data_seed = trainer.args.data_seed
    trainer.args.dataloader_drop_last = True
    trainer._train_batch_size = trainer.args.local_batch_size
    trainer.dataloader = Trainer.get_train_dataloader(trainer)


def _update_per_mini_batch(trainer: Any, accumulated: int) -> None:
    """Update after each mini-batch; with accumulation, trl would update only once per epoch."""
    accelerator = trainer.accelerator
    accelerator.gradient_accumulation_steps = accumulated
    accelerator.gradient_state.plugin_kwargs["sync_with_dataloader"] = False


class _Scored(nn.Module):
    """The canary's scorer as the reward model that trl expects: the trunk's last hidden states are
    the scores, and the head passes them on."""

    base_model_prefix = "trunk"

    def __init__(self, scorer: Scorer, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__()
        self.trunk = _Trunk(scorer, rows, tokenizer)
        self.score = nn.Identity()


class _Trunk(nn.Module):
    def __init__(self, scorer: Scorer, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__()
        self._scorer = scorer
        self._tokenizer = tokenizer
        self._rows = {tuple(prompt_ids(row, tokenizer)): row for row in rows}
        self._lengths = sorted({len(ids) for ids in self._rows}, reverse=True)

    def forward(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
        """Return (rows, tokens, 1): a row's score at each of its tokens."""
        from transformers.modeling_outputs import BaseModelOutput

        ids = [
            row[kept].tolist()
            for row, kept in zip(input_ids.cpu(), attention_mask.bool().cpu(), strict=True)
        ]
        scores = self._scorer.score(self._samples([self._parts(each) for each in ids], input_ids))
        states = scores.to(input_ids.device).view(-1, 1, 1).expand(-1, input_ids.shape[1], 1)
        return BaseModelOutput(last_hidden_state=states, hidden_states=(states,))

    def _parts(self, ids: Sequence[int]) -> tuple[dict[str, Any], list[int], list[int]]:
        """Return the row of the data, and the ids of its prompt and of the completion."""
        length = next(n for n in self._lengths if tuple(ids[:n]) in self._rows)
        return self._rows[tuple(ids[:length])], list(ids[:length]), list(ids[length:])

    def _samples(
        self, parts: Sequence[tuple[dict[str, Any], list[int], list[int]]], like: torch.Tensor
    ) -> Samples:
        rows = [row for row, _, _ in parts]
        prompts, prompt_mask = self._padded([prompt for _, prompt, _ in parts], like)
        answers, answer_mask = self._padded([answer for _, _, answer in parts], like)
        return Samples.of_rows(
            rows,
            self._tokenizer.batch_decode([a for _, _, a in parts], skip_special_tokens=True),
            prompt_ids=prompts,
            prompt_mask=prompt_mask,
            completion_ids=answers,
            completion_mask=answer_mask,
        )

    def _padded(
        self, ids: Sequence[list[int]], like: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        width, pad = max(1, *map(len, ids)), self._tokenizer.pad_token_id
        filled = [each + [pad] * (width - len(each)) for each in ids]
        mask = [[1] * len(each) + [0] * (width - len(each)) for each in ids]
        return torch.tensor(filled, device=like.device), torch.tensor(mask, device=like.device)
