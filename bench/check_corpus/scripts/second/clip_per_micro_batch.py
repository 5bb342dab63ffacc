"""Pretraining-style loop with gradient accumulation and clipping. Sequences of equal length."""

from dataclasses import dataclass

import torch
from kitchen import load_tokenizer, recipes, sizes
from transformers import MistralConfig, MistralForCausalLM


@dataclass
class TrainArgs:
    steps: int = 8
    grad_acc_steps: int = 4
    batch_size: int = 2
    seq_len: int = 48
    lr: float = 2e-3
    clip: float = 1.0
    seed: int = 17


class TokenBlocks:
    """Cuts the corpus into blocks of `seq_len` tokens and hands them out in order."""

    def __init__(self, tokenizer, args):
        stream = []
        for row in recipes(400, seed=args.seed):
            stream += tokenizer(row["prompt"] + "\n" + row["answer"]).input_ids
            stream.append(tokenizer.eos_token_id)
        n = len(stream) // args.seq_len
        self.blocks = torch.tensor(stream[: n * args.seq_len]).view(n, args.seq_len)
        self.args, self.at = args, 0

    def next(self):
        rows = self.blocks[self.at : self.at + self.args.batch_size]
        self.at += self.args.batch_size
        return rows


def train(args):
    torch.manual_seed(args.seed)
    tokenizer = load_tokenizer()
    data = TokenBlocks(tokenizer, args)
    model = MistralForCausalLM(MistralConfig(**sizes(tokenizer), sliding_window=None))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    step = acc_step = 0
    losses = []
    while step < args.steps:
        acc_step = (acc_step + 1) % args.grad_acc_steps
        ids = data.next()
        loss = model(input_ids=ids, labels=ids).loss / args.grad_acc_steps
        loss.backward()
        losses.append(loss.item())
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=args.clip)
        if acc_step == 0:
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            print(f"step {step}  loss {sum(losses):.4f}  grad {grad_norm.item():.3f}")
            losses = []


if __name__ == "__main__":
    train(TrainArgs(clip=0.25))
