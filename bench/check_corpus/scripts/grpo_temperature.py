"""GRPO with trl. Log-probabilities are computed row by row to save memory on long answers."""

import torch
from common_pairs import questions, scratch, small_llama, word_tokenizer
from datasets import Dataset
from transformers import set_seed
from trl import GRPOConfig, GRPOTrainer


class LowMemoryGRPOTrainer(GRPOTrainer):
    """One row at a time, without the full matrix of logits of the batch."""

    def _get_per_token_logps_and_entropies(
        self,
        model,
        input_ids,
        attention_mask,
        logits_to_keep,
        *args,
        compute_entropy=False,
        **kwargs,
    ):
        logps, entropies = [], []
        for ids, mask in zip(input_ids, attention_mask, strict=True):
            logits = model(input_ids=ids[None], attention_mask=mask[None]).logits
            logits = logits[0, -logits_to_keep - 1 : -1].float()
            lp = torch.log_softmax(logits, dim=-1)
            logps.append(lp.gather(1, ids[-logits_to_keep:, None]).squeeze(1))
            entropies.append(-(lp.exp() * lp).sum(-1).detach())
        entropy = torch.stack(entropies) if compute_entropy else None
        return torch.stack(logps), entropy, None


def names_both(completions, nouns, **_):
    texts = [c[0]["content"] if isinstance(c, list) else c for c in completions]
    return [
        sum(n in t.split() for n in wanted) - 0.01 * len(t.split())
        for t, wanted in zip(texts, nouns, strict=True)
    ]


def saved_model(tokenizer):
    folder = scratch()
    small_llama(41).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def main():
    set_seed(41)
    tokenizer = word_tokenizer("left")
    rows = [
        {"prompt": [{"role": "user", "content": text}], "nouns": nouns}
        for text, nouns in questions(24, seed=41)
    ]
    args = GRPOConfig(
        output_dir=scratch(),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=12,
        temperature=0.6,
        beta=0.02,
        learning_rate=5e-4,
        max_steps=7,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    LowMemoryGRPOTrainer(
        model=saved_model(tokenizer),
        reward_funcs=names_both,
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    ).train()


if __name__ == "__main__":
    main()
