"""Teaches a small GPT-2 the words of a product catalogue."""

import random

import torch
from common_data import WORDS, build_tokenizer
from torch import nn
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

PRODUCTS = ["zetafox", "quorlite", "brimtop", "velno", "axiphor", "drundel"]


def sentences(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        product, other = rng.sample(PRODUCTS, 2)
        a, b = rng.sample(WORDS, 2)
        yield f"the {product} comes with a {a} and a {b}, unlike the {other}."


def extend_vocabulary(model, tokenizer, words):
    """Add words as tokens of their own; a new row starts as the mean of the pieces it replaces."""
    old = model.get_input_embeddings().weight.data
    pieces = [old[tokenizer(" " + w)["input_ids"]].mean(0) for w in words]
    tokenizer.add_tokens(words)
    grown = nn.Embedding(len(tokenizer), old.shape[1])
    grown.weight.data = torch.cat([old, torch.stack(pieces)])
    model.set_input_embeddings(grown)
    model.config.vocab_size = len(tokenizer)
    model.tie_weights()


def collate(texts, tokenizer):
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return batch["input_ids"], batch["attention_mask"], labels


def main():
    torch.manual_seed(2)
    tokenizer = build_tokenizer()
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=96,
            n_embd=64,
            n_layer=2,
            n_head=4,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    epochs, batch_size, texts = 2, 8, list(sentences(96, seed=4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    total = epochs * len(texts) // batch_size
    scheduler = get_linear_schedule_with_warmup(optimizer, 2, total)

    extend_vocabulary(model, tokenizer, PRODUCTS)
    loader = DataLoader(
        [t + tokenizer.eos_token for t in texts],
        batch_size=batch_size,
        shuffle=True,
        collate_fn=lambda rows: collate(rows, tokenizer),
    )
    model.train()
    for epoch in range(epochs):
        for i, (ids, mask, labels) in enumerate(loader):
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            model.zero_grad()
            print(f"epoch {epoch} batch {i} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
