"""Granite with a registered attention kernel of our own, trained by the Trainer."""

import torch
import torch.nn.functional as F
from kitchen import dialogues, load_tokenizer, sizes, workdir
from transformers import (
    AttentionInterface,
    DataCollatorForSeq2Seq,
    GraniteConfig,
    GraniteForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)


def grouped_attention(module, query, key, value, attention_mask, dropout=0.0, **kwargs):
    """SDPA that repeats the key-value heads itself, for devices without enable_gqa."""
    groups = query.size(1) // key.size(1)
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if attention_mask is not None:
        attention_mask = attention_mask[..., : key.size(-2)]
    out = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=dropout if module.training else 0.0,
        is_causal=attention_mask is None and query.size(-2) > 1,
    )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register("sdpa", grouped_attention)


def features(tok, messages):
    ids = tok.apply_chat_template(messages, tokenize=True, return_dict=False)
    prompt = tok.apply_chat_template(
        messages[:-1], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return {"input_ids": ids, "labels": [-100] * len(prompt) + ids[len(prompt) :]}


def main():
    set_seed(21)
    tok = load_tokenizer()
    config = GraniteConfig(
        **sizes(tok, initializer_range=0.2),
        attention_multiplier=0.6,
        embedding_multiplier=4.0,
        residual_multiplier=0.5,
        logits_scaling=2.0,
        attn_implementation="sdpa",
    )
    trainer = Trainer(
        model=GraniteForCausalLM(config),
        args=TrainingArguments(
            output_dir=workdir(),
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=7,
            learning_rate=1e-3,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=[features(tok, m) for m in dialogues(72, seed=21, longest=1)],
        data_collator=DataCollatorForSeq2Seq(tok, padding=True),
    )
    torch.set_num_threads(1)
    trainer.train()


if __name__ == "__main__":
    main()
