"""How far each switch of `speed` changes learning: the tables of docs/trainers.md.

`python bench/switches.py [TRAINER ...] [--compile]` trains each trainer for a few steps, without
and with the switch: embedded model, float32, one CPU thread. Online trainers use the same
completions. Prints the largest relative difference of loss or gradient norm (PPO: the largest
absolute difference of policy loss, value loss and KL), and the share of padding in the trained
tokens. For online trainers it also counts the completions of the first step that the switch leaves
identical, with the same model and random numbers. `--compile` adds torch.compile, which takes
minutes per trainer on a CPU.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from canary.config.load import load_values
from canary.config.schema import ONLINE_TRAINERS, TRAINING_TYPES
from canary.training.trainers import WorkloadSpec, build_trainer
from canary.training.trainers.replay import RECORD, REPLAY, completions_of, read

STEPS = 6
ONLINE = ONLINE_TRAINERS
OFFLINE = tuple(name for name in TRAINING_TYPES if name not in ONLINE)
JOB: dict[str, Any] = {
    "max_steps": STEPS,
    "batch_size": 2,
    "gradient_accumulation_steps": 4,
    "dataset_size": 128,
    "device": "cpu",
}
MICRO_BATCH = {"batch_size": 8, "gradient_accumulation_steps": 1}

SWITCHES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "lengths: bucketed": (("sft", "dpo", "reward", "ppo"), {"speed": {"lengths": "bucketed"}}),
    "lengths: fixed": (("sft", "dpo", "reward", "kto", "ppo"), {"speed": {"lengths": "fixed"}}),
    "optimizer: fused": ((*OFFLINE, *ONLINE), {"speed": {"optimizer": "fused"}}),
    "optimizer: foreach": ((*OFFLINE, *ONLINE), {"speed": {"optimizer": "foreach"}}),
    "eager attention": ((*OFFLINE, *ONLINE), {"attn_implementation": "eager"}),
    "one micro-batch": ((*OFFLINE, *ONLINE), MICRO_BATCH),
    "logprobs: whole": (("ppo",), {"speed": {"logprobs": "whole"}}),
    "advantages: loop": (("ppo",), {"speed": {"advantages": "loop"}}),
    "shared_forward: false": (("ppo",), {"speed": {"shared_forward": False}}),
    "data workers": ((*OFFLINE, *ONLINE), {"num_workers": 2, "speed": {"prefetch": 4}}),
    "bfloat16": ((*OFFLINE, *ONLINE), {"dtype": "bfloat16"}),
}
"""Trainers, and the settings that reverse a switch."""

COMPILED = {"compile": ((*OFFLINE, *ONLINE), {"speed": {"compile": True}})}

DRAWN: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "again": (ONLINE, {}),
    "kv_cache: false": (ONLINE, {"speed": {"kv_cache": False}}),
    "decode: static": (ONLINE, {"speed": {"decode": "static"}}),
    "rollout_batch: micro": (("ppo",), {"speed": {"rollout_batch": "micro"}}),
    "one micro-batch": (ONLINE, MICRO_BATCH),
    "bfloat16": (ONLINE, {"dtype": "bfloat16"}),
}
"""Switches that may change the sampled completions."""

SHOWN = {"ppo": ("policy_loss", "value_loss", "kl")}


@dataclass(frozen=True)
class Trained:
    """The figures of each step of one training, and its padding."""

    figures: list[float]
    padded: int
    tokens: int

    @property
    def padding(self) -> float:
        """Return the share of padding."""
        return self.padded / self.tokens if self.tokens else 0.0


def train(trainer_name: str, folder: Path, changes: dict[str, Any], file: Path | None) -> Trained:
    """Train once. An online trainer writes its completions to `file`, or reads an existing one."""
    values = {**JOB, "training_type": trainer_name, **changes}
    config = load_values(None, {name: (value, "bench") for name, value in values.items()}).config
    folder.mkdir(parents=True)
    count = config.max_steps or STEPS
    spec = WorkloadSpec(config, folder, folder / "cache", count, logging_steps=1)
    os.environ.pop(RECORD, None)
    os.environ.pop(REPLAY, None)
    if file is not None:
        os.environ[REPLAY if file.exists() else RECORD] = str(file)
    padded = [0, 0]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        trainer: Any = build_trainer(spec)
        _watch(trainer, padded)
        with completions_of(trainer, 0, spec.notes):
            trainer.train()
    names = SHOWN.get(trainer_name, ("loss", "grad_norm"))
    steps = [entry for entry in trainer.state.log_history if names[0] in entry]
    return Trained([step[name] for step in steps for name in names], *padded)


def _watch(trainer: Any, padded: list[int]) -> None:
    original = trainer.compute_loss

    def compute_loss(model: Any, inputs: Any, **kwargs: Any) -> Any:
        for name, mask in inputs.items():
            if name.endswith("attention_mask"):
                padded[0] += int(mask.eq(0).sum())
                padded[1] += mask.numel()
        return original(model, inputs, **kwargs)

    trainer.compute_loss = compute_loss


def distance(plain: list[float], other: list[float], trainer_name: str) -> float:
    """Return the largest relative difference; absolute for PPO and for values near 0."""
    pairs = zip(plain, other, strict=True)
    if trainer_name in SHOWN:
        return max(abs(a - b) for a, b in pairs)
    return max(abs(a - b) / max(abs(a), 1e-2) for a, b in pairs)


def drawn_alike(name: str, place: Path) -> None:
    """Print how many completions of the first step each switch leaves unchanged."""
    print("| switch | trainer | completions drawn alike |\n|---|---|---|")
    plain: Counter[str] = Counter()
    for number, (switch, (users, changes)) in enumerate({"": (ONLINE, {}), **DRAWN}.items()):
        if name not in users:
            continue
        file = place / f"drawn-{name}{number}.json"
        train(name, place / f"drawn-{name}{number}", {**changes, "max_steps": 1}, file)
        found = Counter(
            f"{prompt} {completion}"
            for prompt, completions in read(file).items()
            for completion in completions
        )
        if switch:
            same = (found & plain).total()
            print(f"| {switch} | {name} | {same} of {plain.total()} |", flush=True)
        else:
            plain = found


def main(words: list[str]) -> None:
    """Print the tables."""
    torch.set_num_threads(1)
    wanted = [word for word in words if word != "--compile"]
    switches = SWITCHES | (COMPILED if "--compile" in words else {})
    trainers = wanted or [*OFFLINE, *ONLINE]
    print("| switch | trainer | largest difference | padding without | with |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for name in trainers:
            file = Path(place, f"{name}.json") if name in ONLINE else None
            plain = train(name, Path(place, name), {}, file)
            for number, (switch, (users, changes)) in enumerate(switches.items()):
                if name in users:
                    other = train(name, Path(place, f"{name}{number}"), changes, file)
                    moved = distance(plain.figures, other.figures, name)
                    before, after = (
                        f"{one.padding:.0%}" if one.tokens else "-" for one in (plain, other)
                    )
                    print(f"| {switch} | {name} | {moved:.1e} | {before} | {after} |", flush=True)
        for name in trainers:
            if name in ONLINE:
                drawn_alike(name, Path(place))


if __name__ == "__main__":
    main(sys.argv[1:])
