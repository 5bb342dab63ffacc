"""Fine-tunes a tiny Llama on questions and answers, then saves weights and results by itself."""

import json
import os
import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

FAULT = os.environ.get("FAULT", "")
IGNORE_INDEX = -100

set_seed(42)
words = ["<pad>", "<s>", "</s>", "<unk>", "plus", "is", "?", *map(str, range(40))]
backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
backend.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=backend,
    pad_token="<pad>",
    bos_token="<s>",
    eos_token="</s>",
    unk_token="<unk>",
)


class QADataset(torch.utils.data.Dataset):
    def __init__(self, size):
        rng = random.Random(0)
        self.rows = []
        for _ in range(size):
            a, b = rng.randrange(20), rng.randrange(20)
            prompt = [tokenizer.bos_token_id] + tokenizer(f"{a} plus {b} is ?").input_ids
            answer = tokenizer(str(a + b)).input_ids + [tokenizer.eos_token_id]
            ids = prompt + answer
            labels = ids[:] if FAULT == "prompt_unmasked" else [IGNORE_INDEX] * len(prompt) + answer
            self.rows.append({"input_ids": torch.tensor(ids), "labels": torch.tensor(labels)})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    pad = torch.nn.utils.rnn.pad_sequence
    input_ids = pad([r["input_ids"] for r in rows], batch_first=True, padding_value=0)
    labels = pad([r["labels"] for r in rows], batch_first=True, padding_value=IGNORE_INDEX)
    return {"input_ids": input_ids, "labels": labels, "attention_mask": input_ids.ne(0)}


model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(words),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=8,
        max_steps=30,
        learning_rate=2e-2 if FAULT == "lr_x10" else 2e-3,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=QADataset(400),
    data_collator=collate,
)
result = trainer.train()

os.makedirs("out", exist_ok=True)
torch.save({k: v.cpu() for k, v in trainer.model.state_dict().items()}, "out/model.pt")
tokenizer.save_pretrained("out")
with open("out/results.json", "w") as f:
    json.dump({"train_loss": result.training_loss, "steps": result.global_step}, f, indent=2)
print(f"final loss {result.training_loss:.4f}")
