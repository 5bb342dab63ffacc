"""Distils a Qwen2 teacher into a smaller student: KL between the two and cross entropy."""

import torch
import torch.nn.functional as F
from kitchen import load_tokenizer, recipes, sizes
from transformers import Qwen2Config, Qwen2ForCausalLM

ALPHA, TEMPERATURE, STEPS, ROWS = 0.5, 2.0, 8, 8


def make_models(tok):
    torch.manual_seed(30)
    teacher = Qwen2ForCausalLM(Qwen2Config(**sizes(tok, hidden_size=64, initializer_range=0.2)))
    student = Qwen2ForCausalLM(Qwen2Config(**sizes(tok, hidden_size=32)))
    return teacher.eval().requires_grad_(False), student


def make_batch(tok, rows):
    text = [f"{r['prompt']}\n{r['answer']}{tok.eos_token}" for r in rows]
    batch = tok(text, padding=True, return_tensors="pt")
    batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return batch


def distillation_loss(student_logits, teacher_logits):
    s = F.log_softmax(student_logits[:, :-1] / TEMPERATURE, -1)
    t = F.softmax(teacher_logits[:, :-1] / TEMPERATURE, -1)
    return F.kl_div(s, t, reduction="none").sum(-1).mean() * TEMPERATURE**2


def run():
    tok = load_tokenizer()
    teacher, student = make_models(tok)
    rows = recipes(STEPS * ROWS, seed=30)
    opt = torch.optim.AdamW(student.parameters(), lr=2e-3)
    for step in range(STEPS):
        batch = make_batch(tok, rows[step * ROWS : (step + 1) * ROWS])
        with torch.no_grad():
            target = teacher(
                input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
            ).logits
        out = student(**batch)
        kl = distillation_loss(out.logits, target)
        loss = ALPHA * kl + (1 - ALPHA) * out.loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"{step}: kl {kl.item():.4f} ce {out.loss.item():.4f}")


run()
