"""DPO in a plain loop: LoRA, and the model without adapters is the reference."""

import math

import torch
import torch.nn.functional as F
from common_pairs import as_chat, pairs, small_llama, word_tokenizer
from peft import LoraConfig, get_peft_model
from torch.optim.lr_scheduler import LambdaLR

MICRO, ACCUMULATE, UPDATES, BETA, SMOOTHING = 2, 2, 8, 0.15, 0.1


class Pairs:
    def __init__(self, tokenizer, rows):
        self.tokenizer = tokenizer
        self.items = [self.encode(as_chat(row)) for row in rows]

    def ids(self, messages, **more):
        out = self.tokenizer.apply_chat_template(messages, **more)
        return list(out["input_ids"] if hasattr(out, "keys") else out)

    def encode(self, row):
        start = len(self.ids(row["prompt"], add_generation_prompt=True))
        return [(self.ids(row["prompt"] + row[side]), start) for side in ("chosen", "rejected")]

    def batch(self, start, size):
        items = self.items[start : start + size]
        flat = [item[0] for item in items] + [item[1] for item in items]
        width = max(len(ids) for ids, _ in flat)
        ids, attention, answer = (torch.zeros(len(flat), width, dtype=torch.long) for _ in range(3))
        for i, (tokens, begin) in enumerate(flat):
            # Left padding: every row ends in the last column.
            ids[i, width - len(tokens) :] = torch.tensor(tokens)
            attention[i, width - len(tokens) :] = 1
            answer[i, width - len(tokens) + begin :] = 1
        return ids, attention, answer


def logps(model, ids, attention, answer):
    logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1]
    each = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return (each * answer[:, 1:]).sum(-1)


def reference_logps(model, *batch):
    was_training = model.training
    model.eval()
    with torch.no_grad(), model.disable_adapter():
        out = logps(model, *batch)
    model.train(was_training)
    return out


def main():
    torch.manual_seed(13)
    tokenizer = word_tokenizer()
    data = Pairs(tokenizer, pairs(MICRO * ACCUMULATE * UPDATES, seed=13))
    lora = LoraConfig(
        r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    model = get_peft_model(small_llama(13), lora)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=3e-3, weight_decay=0.0)
    schedule = LambdaLR(optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * s / UPDATES)))
    model.train()
    position = 0
    for update in range(UPDATES):
        total = 0.0
        for _ in range(ACCUMULATE):
            batch = data.batch(position, MICRO)
            position += MICRO
            reference = reference_logps(model, *batch)
            chosen, rejected = (logps(model, *batch) - reference).chunk(2)
            h = BETA * (chosen - rejected)
            loss = -(1 - SMOOTHING) * F.logsigmoid(h) - SMOOTHING * F.logsigmoid(-h)
            (loss.mean() / ACCUMULATE).backward()
            total += loss.mean().item() / ACCUMULATE
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        print(f"update {update} loss {total:.4f} lr {schedule.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()
