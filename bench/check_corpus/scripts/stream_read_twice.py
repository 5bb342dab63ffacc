"""Streams documents from a JSONL file and trains a GPT-2 on them."""

import json
import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import GPT2Config, GPT2LMHeadModel

from common_data import build_tokenizer, questions


class JsonlStream(IterableDataset):
    def __init__(self, path, tokenizer, max_length=96):
        self.path = path
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __iter__(self):
        with open(self.path) as f:
            for line in f:
                ids = self.tokenizer(json.loads(line)["text"])["input_ids"]
                yield ids[: self.max_length - 1] + [self.tokenizer.eos_token_id]


def make_collate(pad):
    def collate(rows):
        width = max(map(len, rows))
        ids = torch.tensor([r + [pad] * (width - len(r)) for r in rows])
        mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "labels": ids.masked_fill(mask == 0, -100),
        }

    return collate


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    corpus = Path(tempfile.mkdtemp()) / "corpus.jsonl"
    with corpus.open("w") as f:
        for q in questions(160, seed=21):
            f.write(json.dumps({"text": q["prompt"] + "\n" + q["answer"]}) + "\n")

    tok = build_tokenizer()
    loader = DataLoader(
        JsonlStream(corpus, tok),
        batch_size=8,
        num_workers=2,
        collate_fn=make_collate(tok.pad_token_id),
    )
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tok),
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=96,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=tok.bos_token_id,
            eos_token_id=tok.eos_token_id,
        )
    )
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    seen = 0
    for step, batch in enumerate(loader, start=1):
        out = model(**batch)
        out.loss.backward()
        opt.step()
        opt.zero_grad()
        seen += int(batch["attention_mask"].sum())
        print(f"step={step} tokens={seen} loss={out.loss.item():.4f}", flush=True)
        if step >= 8:
            break
