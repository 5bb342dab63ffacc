"""accelerate; tied and frozen embeddings, one group, weight decay on all that trains (on purpose)."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import GemmaConfig, GemmaForCausalLM, set_seed

from common_data import build_tokenizer, questions

WEIGHT_DECAY = 0.3  # also norms: RMSNorm weights of Gemma are offsets from 1


def collate_with(tok):
    def collate(rows):
        texts = [f"{tok.bos_token}{r['prompt']}\n{r['answer']}{tok.eos_token}" for r in rows]
        enc = tok(texts, padding=True, return_tensors="pt")
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return dict(enc)

    return collate


def main():
    set_seed(77)
    accelerator = Accelerator(cpu=True)
    tok = build_tokenizer()
    model = GemmaForCausalLM(
        GemmaConfig(
            vocab_size=len(tok),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=12,
            max_position_embeddings=128,
            tie_word_embeddings=True,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    # Tied, so the head is frozen as well.
    model.get_input_embeddings().weight.requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-3, weight_decay=WEIGHT_DECAY)
    loader = DataLoader(
        questions(128, seed=5), batch_size=4, shuffle=True, collate_fn=collate_with(tok)
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    window, step = [], 0
    for batch in loader:
        window.append(batch)
        if len(window) < 4:
            continue
        tokens = sum((b["labels"][:, 1:] != -100).sum() for b in window)
        tokens = accelerator.reduce(tokens, "sum")
        total = 0.0
        for b in window:
            # DDP averages over ranks, so multiply by their number
            loss = model(**b, num_items_in_batch=tokens).loss * accelerator.num_processes
            accelerator.backward(loss)
            total += loss.item()
        accelerator.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        window.clear()
        step += 1
        accelerator.print(f"{step}/6 loss {total:.4f}")
        if step == 6:
            break


if __name__ == "__main__":
    main()
