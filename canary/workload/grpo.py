"""Group relative policy optimization with trl's GRPOTrainer and a reward that can be checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl import GRPOConfig, GRPOTrainer

from canary.errors import InputError
from canary.workload.arguments import training_arguments
from canary.workload.data import load_rows
from canary.workload.embedded import EMBEDDED_DATA
from canary.workload.embedded.tasks import score
from canary.workload.model import load_model, load_tokenizer, save_initial
from canary.workload.peft import lora_config
from canary.workload.spec import WorkloadSpec

Completion = str | list[dict[str, Any]]
Reward = Callable[..., list[float | None]]

CONTAINED_REWARD = 0.5


def build(spec: WorkloadSpec) -> GRPOTrainer:
    """A GRPOTrainer that generates with the model's own `generate`, not yet started."""
    config = spec.config
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    reward = reward_for(config.dataset_name, rows)
    arguments = training_arguments(
        spec,
        GRPOConfig,
        beta=config.beta,
        num_generations=config.num_generations,
        max_completion_length=config.max_new_tokens,
        temperature=config.temperature,
        use_vllm=False,
        remove_unused_columns=False,
        trust_remote_code=config.trust_remote_code,
    )
    return GRPOTrainer(
        model=_policy(spec, tokenizer),
        reward_funcs=reward,
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=lora_config(spec),
    )


def _policy(spec: WorkloadSpec, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The model; with a KL term and no adapter, trl reads the reference from the saved copy."""
    model = load_model(spec, tokenizer)
    if spec.config.beta and not spec.config.use_peft:
        save_initial(spec, model)
    return model


def reward_for(dataset_name: str, rows: Dataset) -> Reward:
    """The embedded tasks' own score, or the match with the `answer` column of other data."""
    if "answer" not in rows.column_names:
        raise InputError(
            f"dataset '{dataset_name}' has no 'answer' column, and a GRPO reward needs one",
            "add a column 'answer' with the text that a right completion gives",
        )
    return task_reward if dataset_name == EMBEDDED_DATA else match_reward


def task_reward(
    completions: list[Completion], answer: list[str], **_columns: Any
) -> list[float | None]:
    """A score in [0, 1] a completion, by the rules of the embedded tasks."""
    pairs = zip(completions, answer, strict=True)
    return [score(completion_text(completion), right) for completion, right in pairs]


def match_reward(
    completions: list[Completion], answer: list[object], **_columns: Any
) -> list[float | None]:
    """1 where the completion is the answer, CONTAINED_REWARD where it contains it, else 0."""
    pairs = zip(completions, answer, strict=True)
    return [
        _match(completion_text(completion).strip(), str(right).strip())
        for completion, right in pairs
    ]


def _match(text: str, right: str) -> float:
    if text == right:
        return 1.0
    return CONTAINED_REWARD if right and right in text else 0.0


def completion_text(completion: Completion) -> str:
    """The text of a completion, plain or conversational."""
    if isinstance(completion, str):
        return completion
    return "".join(str(message["content"]) for message in completion)
