"""Distillation with the Trainer: the teacher's distribution at the answer's tokens, and labels."""

import torch
import torch.nn.functional as F
from kitchen import load_tokenizer, recipes, sizes, workdir
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)


class DistillationTrainer(Trainer):
    def __init__(self, *args, teacher, alpha=0.7, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher, self.alpha = teacher.eval().requires_grad_(False), alpha
        self.model_accepts_loss_kwargs = True

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        with torch.no_grad():
            teacher = self.teacher(**inputs).logits
        keep = labels[:, 1:] != -100
        student = outputs.logits[:, :-1][keep].log_softmax(-1)
        kl = F.kl_div(
            student, teacher[:, :-1][keep].log_softmax(-1), log_target=True, reduction="sum"
        )
        ce = F.nll_loss(student, labels[:, 1:][keep], reduction="sum")
        total = keep.sum() if num_items_in_batch is None else num_items_in_batch
        loss = (self.alpha * kl + (1 - self.alpha) * ce) / total
        return (loss, outputs) if return_outputs else loss


class Collator:
    """Right padding; every field has its own filler."""

    def __init__(self, pad):
        self.fillers = {"input_ids": pad, "attention_mask": 0, "labels": -100}

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)
        return {
            k: torch.tensor([r[k] + [v] * (width - len(r[k])) for r in rows])
            for k, v in self.fillers.items()
        }


def encode(tok, row):
    prompt = tok(row["prompt"] + "\n").input_ids
    answer = tok(row["answer"]).input_ids + [tok.eos_token_id]
    ids = prompt + answer
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": [-100] * len(prompt) + answer,
    }


if __name__ == "__main__":
    set_seed(112)
    tok = load_tokenizer()
    teacher = LlamaForCausalLM(LlamaConfig(**sizes(tok, hidden_size=64, initializer_range=0.2)))
    student = Qwen2ForCausalLM(Qwen2Config(**sizes(tok, hidden_size=32)))
    args = TrainingArguments(
        output_dir=workdir(),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        max_steps=8,
        learning_rate=2e-3,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": 0.1},
        warmup_steps=2,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    DistillationTrainer(
        model=student,
        args=args,
        teacher=teacher,
        train_dataset=[encode(tok, r) for r in recipes(96, seed=112)],
        data_collator=Collator(tok.pad_token_id),
    ).train()
