"""Reward model on a Qwen2 trunk: the score is read at the last token of the dialogue."""

from dataclasses import dataclass

import torch
from datasets import Dataset
from kitchen import load_tokenizer, preferences, sizes, workdir
from transformers import Qwen2Config, Qwen2ForSequenceClassification, set_seed
from transformers.modeling_outputs import SequenceClassifierOutputWithPast
from trl import RewardConfig, RewardTrainer


class Scorer(Qwen2ForSequenceClassification):
    def forward(self, input_ids=None, attention_mask=None, **kwargs):
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask)[0]
        last = attention_mask.sum(1) - 1
        pooled = hidden[torch.arange(hidden.size(0)), last]
        return SequenceClassifierOutputWithPast(logits=self.score(pooled))


@dataclass
class Pairs:
    """Pads with the tokenizer, so that its settings hold for training and for serving."""

    tokenizer: object

    def __call__(self, rows):
        ids = [r["chosen_ids"] for r in rows] + [r["rejected_ids"] for r in rows]
        batch = self.tokenizer.pad({"input_ids": ids}, return_tensors="pt")
        return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def as_messages(row, side):
    return [
        {"role": "user", "content": row["prompt"]},
        {"role": "assistant", "content": row[side]},
    ]


if __name__ == "__main__":
    set_seed(15)
    tok = load_tokenizer(padding_side="left")
    data = Dataset.from_list(
        [{s: as_messages(r, s) for s in ("chosen", "rejected")} for r in preferences(64, seed=15)]
    )
    trainer = RewardTrainer(
        model=Scorer(Qwen2Config(**sizes(tok), num_labels=1)),
        args=RewardConfig(
            output_dir=workdir(),
            max_length=128,
            max_steps=8,
            per_device_train_batch_size=4,
            learning_rate=2e-3,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
        train_dataset=data,
        processing_class=tok,
        data_collator=Pairs(tok),
    )
    trainer.train()
