"""Instruction tuning of a GPT-2 with sample answers every second update."""

import random

import torch
from kitchen import load_tokenizer, recipes
from transformers import GPT2Config, GPT2LMHeadModel


class Tuner:
    def __init__(self, updates=8, rows=6, sample_every=2):
        torch.manual_seed(44)
        self.updates, self.rows, self.sample_every = updates, rows, sample_every
        self.tok = load_tokenizer()
        config = GPT2Config(
            vocab_size=len(self.tok),
            n_positions=160,
            n_embd=48,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            initializer_range=0.1,
            bos_token_id=None,
            eos_token_id=self.tok.eos_token_id,
            pad_token_id=self.tok.pad_token_id,
        )
        self.model = GPT2LMHeadModel(config)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        data = recipes(110, seed=44)
        self.train_rows, self.held_out = data[:100], data[100:]

    @staticmethod
    def prompt(row):
        return f"Question: {row['prompt']}\nAnswer: "

    def batch(self, rows):
        texts = [self.prompt(r) + r["answer"] + self.tok.eos_token for r in rows]
        batch = self.tok(texts, padding=True, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        for i, row in enumerate(rows):
            answer = len(self.tok(row["answer"] + self.tok.eos_token).input_ids)
            end = int(batch["attention_mask"][i].nonzero().max()) + 1
            labels[i, : end - answer] = -100
        return {**batch, "labels": labels}

    @torch.no_grad()
    def sample(self, rows):
        self.model.eval()
        self.tok.padding_side = "left"
        enc = self.tok([self.prompt(r) for r in rows], padding=True, return_tensors="pt")
        out = self.model.generate(**enc, max_new_tokens=8, do_sample=False)
        self.model.train()
        return self.tok.batch_decode(out[:, enc["input_ids"].size(1) :], skip_special_tokens=True)

    def fit(self):
        order = list(range(len(self.train_rows)))
        random.Random(44).shuffle(order)
        self.model.train()
        for step in range(self.updates):
            if step % self.sample_every == 0:
                print("samples:", self.sample(self.held_out[:3]))
            some = order[step * self.rows : (step + 1) * self.rows]
            loss = self.model(**self.batch([self.train_rows[i] for i in some])).loss
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            print(f"update {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    Tuner().fit()
