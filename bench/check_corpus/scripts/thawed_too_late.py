"""Sentence classifier: the head warms up alone, then the top of the encoder thaws."""

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from common_data import build_tokenizer, questions

HEAD_ONLY_STEPS = 2
STEPS = 8


class Run:
    def __init__(self):
        torch.manual_seed(0)
        self.tok = build_tokenizer()
        self.model = DistilBertForSequenceClassification(
            DistilBertConfig(
                vocab_size=len(self.tok),
                dim=48,
                hidden_dim=96,
                n_layers=2,
                n_heads=4,
                max_position_embeddings=128,
                num_labels=2,
                pad_token_id=0,
            )
        )
        rows = questions(STEPS * 16, seed=40)
        self.texts = [r["prompt"] for r in rows]
        self.labels = torch.tensor([int("," in r["answer"]) for r in rows])

        self.freeze_encoder()
        trainable = filter(lambda p: p.requires_grad, self.model.parameters())
        self.opt = torch.optim.AdamW(trainable, lr=2e-3)
        self.sched = LambdaLR(self.opt, lambda s: min(1.0, (s + 1) / 2))

    def freeze_encoder(self):
        self.model.distilbert.requires_grad_(False)

    def thaw_top(self):
        top = self.model.distilbert.transformer.layer[-1]
        top.requires_grad_(True)
        n = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        print(f"thawed the top layer, {n} trainable parameters")

    def micro_batches(self, step):
        for half in range(2):
            at = step * 16 + half * 8
            enc = self.tok(self.texts[at : at + 8], padding=True, return_tensors="pt")
            yield enc["input_ids"], enc["attention_mask"], self.labels[at : at + 8]

    def train(self):
        self.model.train()
        for step in range(STEPS):
            if step == HEAD_ONLY_STEPS:
                self.thaw_top()
            total = 0.0
            for ids, mask, y in self.micro_batches(step):
                logits = self.model(input_ids=ids, attention_mask=mask).logits
                loss = nn.functional.cross_entropy(logits, y) / 2
                loss.backward()
                total += loss.item()
            self.opt.step()
            self.sched.step()
            self.model.zero_grad()
            print(f"step {step} loss {total:.4f} lr {self.sched.get_last_lr()[0]:.1e}")


if __name__ == "__main__":
    Run().train()
