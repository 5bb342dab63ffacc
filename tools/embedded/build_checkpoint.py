"""Train the embedded checkpoint: a small Llama that ends its completions; some are correct."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from canary.inputs.embedded.scoring import score
from tools.embedded.build_tokenizer import MAX_LENGTH
from tools.embedded.tasks import Task, make_tasks, task_stream

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

SEED = 11
# Differs from the seed of the shipped rows, so that they are new to the checkpoint.
TRAIN_SEED = 13
STEPS = 1200
WARMUP_STEPS = 50
BATCH_SIZE = 32
PEAK_LEARNING_RATE = 3e-3
GRADIENT_NORM_LIMIT = 1.0
IGNORED_LABEL = -100


@dataclass(frozen=True)
class SampleFigures:
    """Results of sampling from the checkpoint: shares in [0, 1], lengths in tokens."""

    ended_share: float
    lengths: list[int]
    mean_score: float


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer that `write_tokenizer` wrote to `folder`."""
    from transformers import PreTrainedTokenizerFast

    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(str(folder))
    return tokenizer


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return the untrained Llama: about 0.4M float32 parameters, tied embeddings, no dropout."""
    from transformers import LlamaConfig, LlamaForCausalLM

    # rope_theta stays at its default: transformers 4 and 5 store it under different keys.
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_LENGTH,
        attention_dropout=0.0,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def encode(task: Task, tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], list[int]]:
    """Return the token ids of a task's prompt, ready for generation, and of completion + EOS."""
    prompt = _render(task, tokenizer)
    whole = prompt + task.answer + str(tokenizer.eos_token)
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, whole)]
    return ids[0], ids[1][len(ids[0]) :]


def _render(task: Task, tokenizer: PreTrainedTokenizerFast) -> str:
    message = [{"role": "user", "content": task.prompt}]
    return str(tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False))


def _batches(
    tokenizer: PreTrainedTokenizerFast,
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield ids, attention mask and labels, each int64 [BATCH_SIZE, longest], right-padded."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    stream = task_stream(TRAIN_SEED)
    while True:
        pairs = [encode(task, tokenizer) for task in islice(stream, BATCH_SIZE)]
        ids = [torch.tensor(prompt + completion) for prompt, completion in pairs]
        labels = [
            torch.tensor([IGNORED_LABEL] * len(prompt) + completion) for prompt, completion in pairs
        ]
        mask = [torch.ones_like(row) for row in ids]
        padding = int(tokenizer.pad_token_id or 0)
        yield (
            pad_sequence(ids, batch_first=True, padding_value=padding),
            pad_sequence(mask, batch_first=True),
            pad_sequence(labels, batch_first=True, padding_value=IGNORED_LABEL),
        )


def train(tokenizer: PreTrainedTokenizerFast, steps: int = STEPS) -> LlamaForCausalLM:
    """Train a new model on completions only: AdamW, linear warm-up, linear decay to zero."""
    import torch

    torch.manual_seed(SEED)
    model = new_model(tokenizer)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=PEAK_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / WARMUP_STEPS, (steps - step) / (steps - WARMUP_STEPS)),
    )
    model.train()
    for step, (ids, mask, labels) in enumerate(islice(_batches(tokenizer), steps)):
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM_LIMIT)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 0 or step == steps - 1:
            logger.info("step %d of %d, loss %.3f", step, steps, loss.item())
    return model.eval()


def sample_figures(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    samples: int = 32,
    max_new_tokens: int = 64,
    seed: int = 0,
) -> SampleFigures:
    """Sample one completion at temperature 1 for each of the first shipped prompts."""
    import torch

    tasks = make_tasks(samples)
    batch = tokenizer(
        [_render(task, tokenizer) for task in tasks],
        add_special_tokens=False,
        padding=True,
        padding_side="left",
        return_tensors="pt",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        output = model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=max_new_tokens,
        )
    rows = output[:, batch["input_ids"].shape[1] :].tolist()
    eos = tokenizer.eos_token_id
    lengths = [row.index(eos) + 1 if eos in row else len(row) for row in rows]
    texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
    scores = [score(text, task.answer) for text, task in zip(texts, tasks, strict=True)]
    return SampleFigures(
        ended_share=sum(eos in row for row in rows) / samples,
        lengths=lengths,
        mean_score=sum(scores) / samples,
    )


def write_checkpoint(folder: Path) -> SampleFigures:
    """Train on one thread with the tokenizer in `folder` and save the model there.

    Writes config.json, generation_config.json and model.safetensors (float32).
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        tokenizer = load_tokenizer(folder)
        model = train(tokenizer)
        model.save_pretrained(str(folder))
        return sample_figures(model, tokenizer)
    finally:
        torch.set_num_threads(threads)
