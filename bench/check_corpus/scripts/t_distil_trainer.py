"""Distils a larger model into a smaller one with a subclass of Trainer."""

import torch
import torch.nn.functional as F
from common_data import build_tokenizer, questions
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def llama(vocab, hidden, layers):
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=256,
        )
    )


class DistilTrainer(Trainer):
    def __init__(self, *args, teacher, alpha=0.5, temperature=2.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher.eval().requires_grad_(False)
        self.alpha, self.temperature = alpha, temperature

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"][:, 1:]
        out = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        student = out.logits[:, :-1]
        with torch.no_grad():
            teacher = self.teacher(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
            ).logits[:, :-1]
        kept = labels != -100
        hard = F.cross_entropy(student[kept], labels[kept])
        t = self.temperature
        soft = F.kl_div(
            F.log_softmax(student[kept] / t, -1),
            F.log_softmax(teacher[kept] / t, -1),
            log_target=True,
            reduction="batchmean",
        )
        loss = self.alpha * hard + (1 - self.alpha) * t * t * soft
        return (loss, out) if return_outputs else loss


def main():
    torch.manual_seed(8)
    tokenizer = build_tokenizer()
    rows = []
    for q in questions(240, seed=8):
        text = f"{q['prompt']} {q['answer']}{tokenizer.eos_token}"
        enc = tokenizer(text, padding="max_length", max_length=64, truncation=True)
        ids, mask = enc["input_ids"], enc["attention_mask"]
        labels = [i if m else -100 for i, m in zip(ids, mask)]
        rows.append({"input_ids": ids, "attention_mask": mask, "labels": labels})
    args = TrainingArguments(
        output_dir="/tmp/distil",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        num_train_epochs=1,
        learning_rate=1e-3,
        max_grad_norm=1.0,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    DistilTrainer(
        model=llama(len(tokenizer), 48, 2),
        teacher=llama(len(tokenizer), 96, 3),
        args=args,
        train_dataset=rows,
    ).train()


if __name__ == "__main__":
    main()
