"""Rebuild the embedded data, tokenizer, checkpoint and reward model.

`python -m tools.embedded`
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import tempfile
from pathlib import Path

from canary.inputs.embedded import data_file, reward_dir, tiny_dir
from tools.embedded.build_checkpoint import write_checkpoint
from tools.embedded.build_reward import write_reward
from tools.embedded.build_tokenizer import write_tokenizer
from tools.embedded.tasks import write_data


def differing_files() -> list[Path]:
    """Return the shipped data and tokenizer files whose sha256 a rebuild does not reproduce."""
    with tempfile.TemporaryDirectory() as scratch:
        pairs = [
            (path, data_file("prompt_only").parent / path.name)
            for path in write_data(Path(scratch) / "data")
        ] + [(path, tiny_dir() / path.name) for path in write_tokenizer(Path(scratch) / "tiny")]
        return [shipped for rebuilt, shipped in pairs if _sha256(rebuilt) != _sha256(shipped)]


def main() -> int:
    """Rebuild everything, or compare with `--check`; return 1 if a file differs."""
    parser = argparse.ArgumentParser(prog="python -m tools.embedded", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="compare data and tokenizer with a rebuild"
    )
    parser.add_argument("--reward", action="store_true", help="train only the reward model")
    options = parser.parse_args()
    if options.check:
        different = differing_files()
        for path in different:
            print(f"differs from its rebuild: {path}")
        return 1 if different else 0
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if not options.reward:
        _rebuild_default()
    pairs = write_reward(reward_dir())
    print(
        f"held out {pairs.pairs} pairs: {pairs.accuracy:.1%} right, margin {pairs.mean_margin:.2f}"
    )
    return 0


def _rebuild_default() -> None:
    write_data(data_file("prompt_only").parent)
    write_tokenizer(tiny_dir())
    figures = write_checkpoint(tiny_dir())
    print(
        f"sampled {len(figures.lengths)}: {figures.ended_share:.0%} ended, lengths "
        f"{min(figures.lengths)}-{max(figures.lengths)} tokens, "
        f"mean score {figures.mean_score:.2f}"
    )


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
