"""Trains only the bias terms of a small BERT, and the new head."""

import random

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

GOOD, BAD = [10, 11, 12, 13], [14, 15, 16, 17]
CLS, SEP = 1, 2


def reviews(n, seed):
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        label = rng.randrange(2)
        words = rng.choices(range(20, 60), k=rng.randint(2, 6))
        words += rng.choices(GOOD if label else BAD, k=rng.randint(3, 5))
        rng.shuffle(words)
        rows.append({"input_ids": [CLS, *words, SEP], "labels": label})
    return rows


def collate(rows):
    width = max(len(r["input_ids"]) for r in rows)
    ids = [r["input_ids"] + [0] * (width - len(r["input_ids"])) for r in rows]
    ids = torch.tensor(ids)
    labels = torch.tensor([r["labels"] for r in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


def main():
    torch.manual_seed(4)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=60,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=96,
            max_position_embeddings=64,
            initializer_range=0.15,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            num_labels=2,
        )
    )
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.endswith(".bias") or name.startswith("classifier")
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"{trained} of {sum(p.numel() for p in model.parameters())} parameters are trained")
    args = TrainingArguments(
        output_dir="/tmp/bias_terms",
        per_device_train_batch_size=16,
        num_train_epochs=3,
        learning_rate=1e-2,
        weight_decay=0.0,
        warmup_steps=4,
        logging_steps=4,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    Trainer(model=model, args=args, train_dataset=reviews(192, 4), data_collator=collate).train()


if __name__ == "__main__":
    main()
