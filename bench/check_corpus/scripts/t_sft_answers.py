"""Fine-tunes on questions with answers; only answers are trained, found by their template."""

import torch
from common_data import build_tokenizer, questions
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

TEMPLATE = "Question: {prompt}\nAnswer: {answer}"
RESPONSE_TEMPLATE = "Answer: "


def render(row):
    """Words are quoted, numbers are not."""
    answer = row["answer"]
    if not answer[0].isdigit():
        answer = f'"{answer}"'
    return TEMPLATE.format(prompt=row["prompt"], answer=answer)


class QA(Dataset):
    def __init__(self, rows, tokenizer):
        texts = [render(r) + tokenizer.eos_token for r in rows]
        self.rows = [{"input_ids": tokenizer(t)["input_ids"]} for t in texts]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class CollatorForAnswers:
    """Labels start after the response template."""

    def __init__(self, response_template, tokenizer):
        self.tokenizer = tokenizer
        self.marker = tokenizer.encode(response_template, add_special_tokens=False)

    def start(self, ids):
        n = len(self.marker)
        for i in range(len(ids) - n, -1, -1):
            if ids[i : i + n] == self.marker:
                return i + n
        return len(ids)

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)
        batch = {"input_ids": [], "attention_mask": [], "labels": []}
        for r in rows:
            ids = r["input_ids"]
            pad = width - len(ids)
            start = self.start(ids)
            batch["input_ids"].append(ids + [self.tokenizer.pad_token_id] * pad)
            batch["attention_mask"].append([1] * len(ids) + [0] * pad)
            batch["labels"].append([-100] * start + ids[start:] + [-100] * pad)
        return {k: torch.tensor(v) for k, v in batch.items()}


def main():
    torch.manual_seed(0)
    tokenizer = build_tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=256,
        )
    )
    args = TrainingArguments(
        output_dir="/tmp/qa",
        per_device_train_batch_size=8,
        learning_rate=2e-3,
        num_train_epochs=2,
        logging_steps=4,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    Trainer(
        model=model,
        args=args,
        train_dataset=QA(questions(96, seed=5), tokenizer),
        data_collator=CollatorForAnswers(RESPONSE_TEMPLATE, tokenizer),
    ).train()


if __name__ == "__main__":
    main()
