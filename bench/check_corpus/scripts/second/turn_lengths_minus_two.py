"""Chats of several rounds with the Trainer. The user's part of each round is not trained on."""

import torch
from kitchen import dialogues, load_tokenizer, sizes, workdir
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

IGNORE = -100
SEP, ROUND = "<|im_start|>assistant\n", "<|im_end|>\n<|im_start|>user\n"


def preprocess(chats, tokenizer):
    texts = [tokenizer.apply_chat_template(c, tokenize=False) for c in chats]
    enc = tokenizer(texts, return_tensors="pt", padding="longest")
    input_ids, targets = enc.input_ids, enc.input_ids.clone()
    for text, target in zip(texts, targets):
        total = int(target.ne(tokenizer.pad_token_id).sum())
        position = 0
        rounds = text.split(ROUND)
        for i, one in enumerate(rounds):
            if i > 0:
                one = "<|im_start|>user\n" + one
            if i < len(rounds) - 1:
                one += "<|im_end|>\n"
            parts = one.split(SEP)
            instruction_len = len(tokenizer(parts[0] + SEP).input_ids) - 2
            target[position : position + instruction_len] = IGNORE
            position += len(tokenizer(one).input_ids)
        target[position:] = IGNORE
        if position != total:
            print(f"tokenization mismatch: {position} vs. {total}")
    return {"input_ids": input_ids, "labels": targets, "attention_mask": enc.attention_mask}


class Chats(Dataset):
    def __init__(self, chats, tokenizer):
        self.data = preprocess(chats, tokenizer)

    def __len__(self):
        return len(self.data["input_ids"])

    def __getitem__(self, i):
        return {k: v[i] for k, v in self.data.items()}


def train():
    set_seed(33)
    tok = load_tokenizer()
    chats = dialogues(64, seed=33, longest=2)
    args = TrainingArguments(
        output_dir=workdir(),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=8,
        learning_rate=2e-3,
        lr_scheduler_type="cosine",
        warmup_steps=1,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    Trainer(
        model=LlamaForCausalLM(LlamaConfig(**sizes(tok))),
        args=args,
        train_dataset=Chats(chats, tok),
        processing_class=tok,
    ).train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    train()
