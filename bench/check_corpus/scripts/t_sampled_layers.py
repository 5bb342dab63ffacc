"""Trains two random layers at a time, and the ends always; the choice changes every few steps."""

import random

import torch
from common_data import build_tokenizer, questions
from torch.utils.data import Dataset
from transformers import (
    DataCollatorForLanguageModeling,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

LAYERS, ACTIVE, PERIOD = 6, 2, 3


class SampledLayers(TrainerCallback):
    def __init__(self, model, seed):
        self.layers, self.rng = model.model.layers, random.Random(seed)

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step % PERIOD:
            return
        active = self.rng.sample(range(LAYERS), ACTIVE)
        for i, layer in enumerate(self.layers):
            layer.requires_grad_(i in active)
            if i not in active:
                for parameter in layer.parameters():
                    parameter.grad = None
        print("layers", sorted(active))


class Texts(Dataset):
    def __init__(self, tokenizer, n):
        texts = [f"{q['prompt']} {q['answer']}" for q in questions(n, seed=43)]
        self.ids = [tokenizer(t)["input_ids"] + [tokenizer.eos_token_id] for t in texts]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i]}


def main():
    torch.manual_seed(43)
    tokenizer = build_tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=128,
        )
    )
    args = TrainingArguments(
        output_dir="/tmp/sampled_layers",
        per_device_train_batch_size=8,
        max_steps=18,
        learning_rate=3e-3,
        logging_steps=3,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    Trainer(
        model=model,
        args=args,
        train_dataset=Texts(tokenizer, 160),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        callbacks=[SampledLayers(model, 43)],
    ).train()


if __name__ == "__main__":
    main()
