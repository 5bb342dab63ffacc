"""False alarms of `canary check`: `python -m bench.check_healthy`.

Checks healthy trainings: each trainer with and without LoRA, in float32 and bfloat16, on three
families of small models, padded on the right and, where the collator can be replaced, on the left.
GPT-2 is not padded on the left: its positions would count the padding, which is a fault. So it has
no cells of GRPO and RLOO, for which trl pads prompts on the left and gives no positions.
By default it takes cells that cover each pair of these settings; `--all` takes all, and
`--only TRAINER` its cells alone.

Prints Markdown: each cell with its broken rules and its notes, then how often each rule holds. The
exit code is 1 if a rule is broken. `--keep DIR` keeps the answers, and the next call
runs only missing ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.checking import Asked, ask
from bench.left_padding import LEFT
from canary.config.trainers import TRAINERS
from canary.inputs.embedded import tiny_dir

FAMILIES = ("llama", "qwen3", "gpt2")
STATUSES = ("holds", "not asked", "note", "broken")


@dataclass(frozen=True)
class Cell:
    """One healthy training."""

    trainer: str
    lora: bool
    dtype: str
    family: str
    side: str

    @property
    def name(self) -> str:
        """Its folder."""
        kind = "lora" if self.lora else "full"
        return f"{self.trainer}-{kind}-{self.dtype}-{self.family}-{self.side}"

    @property
    def settings(self) -> tuple[object, ...]:
        """All that is varied."""
        return (self.trainer, self.lora, self.dtype, self.family, self.side)


def cells() -> list[Cell]:
    """Return all cells that can be trained."""
    every = itertools.product(
        TRAINERS, (False, True), ("float32", "bfloat16"), FAMILIES, ("right", "left")
    )
    return [
        cell
        for cell in itertools.starmap(Cell, every)
        if (cell.side == "right" or cell.trainer in LEFT) and not _counts_padding(cell)
    ]


def _counts_padding(cell: Cell) -> bool:
    """Whether positions of the model count its padding."""
    left = cell.side == "left" or cell.trainer in ("grpo", "rloo")
    return cell.family == "gpt2" and left


def covering(found: Sequence[Cell]) -> list[Cell]:
    """Return few cells that hold each pair of settings that some cell holds."""
    missing = set().union(*map(_pairs, found))
    chosen: list[Cell] = []
    while missing:
        best = max(found, key=lambda cell: len(_pairs(cell) & missing))
        chosen.append(best)
        missing -= _pairs(best)
    return sorted(chosen, key=lambda cell: found.index(cell))


def _pairs(cell: Cell) -> set[tuple[object, ...]]:
    return set(itertools.combinations(enumerate(cell.settings), 2))


def model_of(family: str, folder: Path) -> Path:
    """Write a small model with random weights and the embedded tokenizer; return its folder."""
    place = folder / "models" / family
    if place.exists():
        return place
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_dir())
    sizes: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    if family == "gpt2":
        sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}
        sizes |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    else:
        sizes |= {"intermediate_size": 128, "num_key_value_heads": 2, "head_dim": 16}
    ids = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")
    }
    config = AutoConfig.for_model(family, vocab_size=len(tokenizer), **sizes, **ids)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def checked(cell: Cell, folder: Path) -> Asked:
    """Run `canary check` on a cell, or return its kept answer."""
    place = folder / cell.name
    place.mkdir(parents=True, exist_ok=True)
    config = {
        "name": cell.name,
        "training_type": cell.trainer,
        "model_name": str(model_of(cell.family, folder)),
        "dataset_name": "embedded/tasks",
        "use_peft": cell.lora,
        "dtype": cell.dtype,
        "max_steps": 8,
        "batch_size": 4,
        "gradient_accumulation_steps": 2,
    }
    if cell.side == "left":
        config["data_collator"] = f"bench.left_padding:{LEFT[cell.trainer]}"
    (place / "canary.yaml").write_text(json.dumps(config))
    return ask(place, ["canary.yaml"])


def table(answers: Iterable[tuple[Cell, Asked]]) -> tuple[str, int]:
    """Return the tables of all answers as Markdown, and how many rules are broken."""
    lines = ["| training | holds | not asked | notes | broken |", "|---|--:|--:|---|---|"]
    rules: dict[str, Counter[str]] = {}
    failed = 0
    for cell, asked in answers:
        failed += not asked.statuses
        for name, status in asked.statuses.items():
            rules.setdefault(name, Counter())[status] += 1
        counts = f"{len(asked.of('holds'))} | {len(asked.of('not asked'))}"
        broken = asked.error or ", ".join(asked.broken)
        lines.append(f"| {cell.name} | {counts} | {', '.join(asked.of('note'))} | {broken} |")
    lines += ["", f"| rule | {' | '.join(STATUSES)} |", "|---|--:|--:|--:|--:|"]
    for name, count in rules.items():
        lines.append(f"| {name} | {' | '.join(str(count[status]) for status in STATUSES)} |")
    broken_count = sum(count["broken"] for count in rules.values())
    lines += ["", f"Broken rules: {broken_count}. Trainings that failed: {failed}."]
    return "\n".join(lines), broken_count + failed


def main() -> int:
    """Check the cells and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    chosen = cells() if options.all else covering(cells())
    chosen = [cell for cell in chosen if not options.only or cell.trainer in options.only]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.keep or Path(temporary)).absolute()
        answers = []
        for number, cell in enumerate(chosen, start=1):
            print(f"{number}/{len(chosen)} {cell.name}", file=sys.stderr, flush=True)
            answers.append((cell, checked(cell, folder)))
        text, broken = table(answers)
    print(text)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
