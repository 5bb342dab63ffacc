"""Fine-tunes a Qwen3 whose embeddings are scaled, with smoothed labels."""

from kitchen import load_tokenizer, recipes, sizes, workdir
from transformers import (
    DataCollatorForSeq2Seq,
    Qwen3Config,
    Qwen3ForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)


class ScaledQwen3(Qwen3ForCausalLM):
    """Multiplies the token embeddings by the root of the width, as Gemma does."""

    def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
        embeds = self.get_input_embeddings()(input_ids) * self.config.hidden_size**0.5
        return super().forward(
            inputs_embeds=embeds, attention_mask=attention_mask, labels=labels, **kwargs
        )


def tokenize(tok, row):
    prompt = tok(f"Q: {row['prompt']}\nA:").input_ids
    answer = tok(" " + row["answer"]).input_ids + [tok.eos_token_id]
    return {
        "input_ids": prompt + answer,
        "attention_mask": [1] * len(prompt + answer),
        "labels": [-100] * len(prompt) + answer,
    }


if __name__ == "__main__":
    set_seed(70)
    tok = load_tokenizer()
    model = ScaledQwen3(Qwen3Config(**sizes(tok, initializer_range=0.05), head_dim=12))
    args = TrainingArguments(
        output_dir=workdir(),
        max_steps=8,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=3e-3,
        warmup_steps=2,
        label_smoothing_factor=0.1,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=[tokenize(tok, r) for r in recipes(80, seed=70)],
        data_collator=DataCollatorForSeq2Seq(tok, padding=True),
    )
    trainer.train()
