"""A classifier on the mean of BertModel's last states; its pooler has weights but no part in the loss."""

import json
import os

import torch
from torch import nn
from transformers import BertConfig, BertModel, Trainer, TrainingArguments, set_seed

FAULT = os.environ.get("FAULT", "")


class MeanClassifier(nn.Module):
    def __init__(self, config, num_labels=3):
        super().__init__()
        self.encoder = BertModel(config)
        self.dropout = nn.Dropout(0.1)
        self.classifier = nn.Linear(config.hidden_size, num_labels)

    def forward(self, input_ids, attention_mask, labels=None):
        if FAULT == "mask_ignored":
            attention_mask = torch.ones_like(attention_mask)
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).float()
        mean = (hidden * mask).sum(1) / mask.sum(1)
        logits = self.classifier(self.dropout(mean))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def rows(n, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        length = int(torch.randint(4, 16, (1,), generator=generator))
        ids = torch.randint(1, 30, (length,), generator=generator)
        yield {"input_ids": ids, "labels": int(ids.sum()) % 3}


def collate(batch):
    input_ids = nn.utils.rnn.pad_sequence([b["input_ids"] for b in batch], batch_first=True)
    return {
        "input_ids": input_ids,
        "attention_mask": (input_ids != 0).long(),
        "labels": torch.tensor([b["labels"] for b in batch]),
    }


set_seed(5)
model = MeanClassifier(
    BertConfig(
        vocab_size=32,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=32,
    )
)
if FAULT == "layer_frozen":
    for p in model.encoder.encoder.layer[0].parameters():
        p.requires_grad_(False)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        "bert",
        max_steps=30,
        per_device_train_batch_size=16,
        learning_rate=1e-3,
        logging_steps=10,
        save_strategy="no",
        remove_unused_columns=False,
        report_to="none",
        use_cpu=True,
    ),
    train_dataset=list(rows(480, 0)),
    data_collator=collate,
)
output = trainer.train()
torch.save(model.state_dict(), "bert.bin")
with open("metrics.json", "w") as f:
    json.dump({"loss": output.training_loss}, f)
