"""`canary check` on trainings that nobody here wrote: `python -m bench.check_strangers`.

trl's own scripts, unmodified, on the embedded model and data; the scripts written like public ones
in `tests/integration/exec/strange`; and the loops of plain torch of `tests/integration/loops`.
Prints Markdown: per training the broken rules, and how many hold, are notes or were not asked.
`--keep DIR` keeps the answers; the next call runs only missing ones. `-v` prints each message.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.checking import ask
from bench.strangers import EXPECTED, SCRIPTS
from canary.inputs import embedded
from tests.integration.loops.torch_scripts import SCRIPTS as LOOPS
from tests.integration.loops.torch_scripts import write_script

EMBEDDED = Path(embedded.__file__).parent
TRL = {
    "sft": ("prompt_completion", ()),
    "dpo": ("preference", ()),
    "reward": ("preference", ()),
    "kto": ("preference", ()),
    "grpo": ("prompt_only", ("--reward_funcs", "think_format_reward")),
    "rloo": ("prompt_only", ("--reward_funcs", "think_format_reward")),
}
"""trl's scripts, with the embedded data and the options that each needs."""
COMMON = (
    *("--max_steps", "8", "--per_device_train_batch_size", "4", "--gradient_accumulation_steps"),
    *("2", "--use_cpu", "--report_to", "none", "--save_strategy", "no", "--output_dir", "out"),
    *("--bf16", "false", "--learning_rate", "1e-3", "--logging_steps", "1"),
)
ONLINE = ("--num_generations", "4", "--max_completion_length", "24")


def trl(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield trl's scripts with their commands."""
    for name, (data, options) in TRL.items():
        place = folder / f"trl {name}"
        (place / "data").mkdir(parents=True, exist_ok=True)
        shutil.copy(EMBEDDED / "data" / f"{data}.jsonl", place / "data" / "train.jsonl")
        model = EMBEDDED / ("reward" if name == "reward" else "tiny")
        words = [sys.executable, "-m", f"trl.scripts.{name}", "--dataset_name", "data", *COMMON]
        online = ONLINE if name in ("grpo", "rloo") else ()
        yield place.name, [*words, "--model_name_or_path", str(model), *options, *online]


def strange(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the scripts written like public ones."""
    for name in EXPECTED:
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(SCRIPTS / f"{name}.py", place / "train.py")
        yield name, [sys.executable, "train.py"]


def loops(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the loops of plain torch."""
    for name, text in LOOPS.items():
        place = folder / f"loop {name}"
        place.mkdir(parents=True, exist_ok=True)
        write_script(place, text, steps=8)
        yield place.name, [sys.executable, "train.py"]


def main() -> None:
    """Ask all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="PART OF A NAME")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    rows = ["| training | broken | hold | notes | not asked |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as scratch:
        keep = (options.keep or Path(scratch)).resolve()
        for of in (trl, strange, loops):
            for name, words in of(keep):
                if options.only and not any(one in name for one in options.only):
                    continue
                asked = ask(keep / name, ["--", *words])
                counts = [len(asked.of(one)) for one in ("holds", "note", "not asked")]
                broken = ", ".join(asked.broken) or ("" if asked.statuses else "did not complete")
                rows.append(f"| {name} | {broken} | {' | '.join(map(str, counts))} |")
                print(rows[-1], file=sys.stderr, flush=True)
                if options.verbose:
                    print(f"{name}\n{asked.lines()}", flush=True)
    print("\n".join(rows))


if __name__ == "__main__":
    main()
