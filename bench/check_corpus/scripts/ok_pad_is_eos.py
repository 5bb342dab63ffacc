"""pad = eos, and still every answer ends with a trained EOS: labels follow the attention mask."""

import tempfile
from dataclasses import dataclass

import torch
from transformers import (
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)

from common_data import build_tokenizer, questions


@dataclass
class AnswerCollator:
    tokenizer: PreTrainedTokenizerBase
    separator: str = "\nAnswer:"

    def __call__(self, features):
        full, prompt_lengths = [], []
        for f in features:
            head = self.tokenizer("Question: " + f["prompt"] + self.separator).input_ids
            tail = self.tokenizer(" " + f["answer"]).input_ids
            full.append(head + tail + [self.tokenizer.eos_token_id])
            prompt_lengths.append(len(head))
        batch = self.tokenizer.pad({"input_ids": full}, pad_to_multiple_of=8, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        columns = torch.arange(labels.size(1))
        labels[columns < torch.tensor(prompt_lengths)[:, None]] = -100
        batch["labels"] = labels
        return batch


class ListDataset(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def main():
    set_seed(5)
    tokenizer = build_tokenizer(pad="</s>")
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    model = OPTForCausalLM(
        OPTConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            ffn_dim=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=128,
            word_embed_proj_dim=32,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=1,
            eos_token_id=2,
            dropout=0.1,
        )
    )
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        remove_unused_columns=False,
        max_steps=6,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    Trainer(
        model=model,
        args=args,
        train_dataset=ListDataset(questions(96, seed=6)),
        data_collator=AnswerCollator(tokenizer),
    ).train()


if __name__ == "__main__":
    main()
