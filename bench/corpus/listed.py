"""The open fault corpus: real incidents, as tests/faults injects them."""

from __future__ import annotations

from bench.corpus.row import Category, Row
from tests.faults import (
    test_dpo,
    test_grpo,
    test_ranks,
    test_sft_data,
    test_sft_learning,
    test_sft_work,
)
from tests.faults.laboratory import Fault


def _taken(
    fault: Fault,
    category: Category,
    incident: str,
    *,
    id: str | None = None,
    paired: bool = False,
) -> Row:
    return Row(
        id or fault.id,
        incident,
        fault.canary,
        category,
        plant=fault.plant,
        before=fault.before,
        config=fault.config,
        paired=paired,
    )


ROWS = (
    _taken(
        test_sft_data.EOS_MASKED,
        "data",
        "Padding is EOS, EOS leaves the labels, and the model never stops "
        "(huggingface/trl#3200, huggingface/transformers#23530).",
    ),
    _taken(
        test_sft_data.TEMPLATE_SPACE,
        "tokenization",
        "One more space in the chat template (class of huggingface/trl#6433).",
    ),
    _taken(test_sft_data.PROMPT_LOSS, "data", "Prompts are trained on too (huggingface/trl#1185)."),
    _taken(
        test_sft_data.MAX_LENGTH,
        "data",
        "Another default of the truncation length (huggingface/trl#5305).",
    ),
    _taken(
        test_sft_data.MAX_LENGTH_CONFIG,
        "data",
        "Another truncation length in the config (huggingface/trl#5305).",
    ),
    _taken(
        test_sft_data.PACKED_WRAPPED,
        "data",
        "Packing splits documents at the border of a sequence (huggingface/trl#5076).",
    ),
    _taken(
        test_sft_learning.MEAN_OF_MEANS,
        "objective",
        "Accumulation averages the means of micro-batches (huggingface/transformers#34191).",
    ),
    _taken(
        test_sft_learning.FAST_SCHEDULE,
        "optimizer",
        "The schedule is stepped too fast "
        "(huggingface/transformers#24088, huggingface/accelerate#2926).",
    ),
    _taken(
        test_sft_learning.LEARNING_RATE_CONFIG,
        "optimizer",
        "The learning rate is doubled by a merged config.",
        id="lr_2x",
    ),
    _taken(
        test_sft_learning.LEARNING_RATE,
        "optimizer",
        "The learning rate is doubled by code that merges its defaults.",
        id="lr_2x_code",
    ),
    _taken(
        test_sft_learning.FROZEN_ADAPTERS,
        "adapter",
        "Half of the adapters are left frozen (class of huggingface/peft#2765).",
    ),
    _taken(
        test_sft_learning.BF16_MASTER,
        "numerics",
        "The optimizer's weights are kept in bfloat16 (OpenRLHF/OpenRLHF#634).",
    ),
    _taken(
        test_sft_learning.NAN_ROW,
        "numerics",
        "A NaN that the log filter hides (unslothai/unsloth#3006).",
    ),
    _taken(
        test_sft_work.CHECKPOINTING,
        "kernel",
        "A default recomputes activations (huggingface/trl#999 reversed).",
    ),
    _taken(
        test_sft_work.ITEM_EACH_STEP,
        "kernel",
        "The loss is read by Python in each micro-batch (huggingface/transformers#6999).",
    ),
    _taken(
        test_sft_work.KEPT_LOSSES,
        "memory",
        "Losses are kept with their graphs (huggingface/transformers#6999).",
    ),
    _taken(
        test_sft_work.SLOW_COLLATOR,
        "dataloader",
        "A slow collator (axolotl-ai-cloud/axolotl#3219).",
        paired=True,
    ),
    _taken(
        test_sft_work.RETOKENIZED,
        "tokenization",
        "Tokenization is done again in each run (huggingface/trl#6206).",
    ),
    _taken(
        test_sft_work.SAVED_EACH_STEP,
        "io",
        "A checkpoint after each step (verl-project/verl#2860).",
    ),
    _taken(
        test_dpo.REFERENCE_IS_POLICY,
        "adapter",
        "The reference is the policy itself (huggingface/trl#1534).",
    ),
    _taken(
        test_dpo.BETA_CONFIG,
        "objective",
        "Beta is a tenth of what it was, by the config.",
        id="beta_x10",
    ),
    _taken(
        test_dpo.BETA,
        "objective",
        "Beta is a tenth of what it was, because a default is not passed on.",
        id="beta_x10_code",
    ),
    _taken(test_dpo.SWAPPED, "data", "Chosen and rejected are swapped."),
    _taken(
        test_grpo.UNSCALED,
        "objective",
        "Advantages are not divided by the deviation of their group (huggingface/trl#3992).",
    ),
    _taken(
        test_grpo.CONSTANT_REWARD,
        "rollout",
        "The parser of answers is broken, every reward is equal (class of OpenRLHF/OpenRLHF#1219).",
    ),
    _taken(
        test_grpo.NO_CACHE,
        "rollout",
        "Generation without a KV cache (huggingface/trl#3683).",
    ),
    _taken(
        test_grpo.TEMPERATURE,
        "rollout",
        "Log-probabilities of another temperature than the sampling "
        "(class of huggingface/trl#4873).",
    ),
    Row(
        "sync_micro",
        "Gradients are synchronised on every micro-batch (huggingface/accelerate#2790).",
        "own_ranks",
        "communication",
        plant=test_ranks.SYNC_MICRO,
    ),
)
