"""DPO with trl and a collator of our own, which pads to a multiple of eight."""

from dataclasses import dataclass

import torch
from common_pairs import as_chat, pairs, scratch, small_llama, word_tokenizer
from datasets import Dataset
from transformers import set_seed
from trl import DPOConfig, DPOTrainer


@dataclass
class PairCollator:
    pad_token_id: int
    multiple: int = 8

    def __call__(self, features):
        # The trainer splits the batch in two halves.
        rejected = [(f["prompt_ids"], f["rejected_ids"]) for f in features]
        chosen = [(f["prompt_ids"], f["chosen_ids"]) for f in features]
        halves = rejected + chosen
        longest = max(len(p) + len(a) for p, a in halves)
        width = -(-longest // self.multiple) * self.multiple
        ids = torch.full((len(halves), width), self.pad_token_id, dtype=torch.long)
        attention = torch.zeros_like(ids)
        completion = torch.zeros_like(ids)
        for i, (p, a) in enumerate(halves):
            n = len(p) + len(a)
            ids[i, :n] = torch.tensor([*p, *a])
            attention[i, :n] = 1
            completion[i, len(p) : n] = 1
        return {"input_ids": ids, "attention_mask": attention, "completion_mask": completion}


def run():
    set_seed(11)
    tokenizer = word_tokenizer()
    args = DPOConfig(
        output_dir=scratch(),
        per_device_train_batch_size=4,
        max_steps=8,
        learning_rate=5e-4,
        beta=0.1,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    trainer = DPOTrainer(
        model=small_llama(11),
        ref_model=small_llama(11),
        args=args,
        train_dataset=Dataset.from_list([as_chat(row) for row in pairs(64)]),
        processing_class=tokenizer,
        data_collator=PairCollator(tokenizer.pad_token_id),
    )
    trainer.train()


if __name__ == "__main__":
    run()
