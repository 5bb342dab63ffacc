"""ORPO on a small model. Labels are made in the batch, because rows come from several sources."""

import warnings

from common_pairs import pairs, scratch, small_gpt2, word_tokenizer
from datasets import Dataset
from transformers import set_seed
from trl.experimental.orpo import ORPOConfig, ORPOTrainer
from trl.experimental.utils import DPODataCollatorWithPadding

warnings.filterwarnings("ignore")


class FreshLabels(DPODataCollatorWithPadding):
    """Build labels from the ids, so that a row never carries stale ones."""

    def __call__(self, features):
        batch = super().__call__(features)
        for side in ("chosen", "rejected"):
            padding = batch[f"{side}_attention_mask"] == 0
            batch[f"{side}_labels"] = batch[f"{side}_input_ids"].masked_fill(padding, -100)
        return batch


set_seed(2)
tok = word_tokenizer()
data = Dataset.from_list(
    [{k: (v if k == "prompt" else " " + v) for k, v in row.items()} for row in pairs(80, seed=2)]
)
config = ORPOConfig(
    output_dir=scratch(),
    beta=0.2,
    max_length=64,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    learning_rate=1e-3,
    max_steps=8,
    logging_steps=2,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    bf16=False,
    remove_unused_columns=False,
)
trainer = ORPOTrainer(
    model=small_gpt2(2),
    args=config,
    train_dataset=data,
    processing_class=tok,
    data_collator=FreshLabels(pad_token_id=tok.pad_token_id),
)
result = trainer.train()
print("mean loss", result.training_loss)
