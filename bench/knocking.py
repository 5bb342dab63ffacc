"""The cost of gilknocker's thread per training step: `python -m bench.knocking [-n PAIRS]`.

One process trains the embedded model in short blocks of steps, in alternating order (ABBA): with
gilknocker's thread, as in a launch, and without. Prints the ratios of CPU time (process
and training thread) and of wall time. Their 95% intervals come from the pairs' log ratios.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from transformers import AutoModelForCausalLM

from bench.overhead import interval
from canary.inputs.embedded import tiny_dir
from canary.training.collectors.host import HostMeter

STEPS = 60
"""Steps per block."""
CLOCKS: dict[str, Callable[[], float]] = {
    "CPU of the process": time.process_time,
    "CPU of the training thread": time.thread_time,
    "wall": time.perf_counter,
}


def training() -> Callable[[], None]:
    """Return a function that trains one step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(tiny_dir()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(3, 300, (4, 64))

    def step() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def block(step: Callable[[], None], knocking: bool) -> dict[str, float]:
    """Return seconds per step of one block, by clock, without the knocker's start and stop."""
    watch = HostMeter(own_process=True)
    if knocking:
        watch.begin()
        if watch.unmeasured:
            raise SystemExit(next(iter(watch.unmeasured.values())))
    before = {name: clock() for name, clock in CLOCKS.items()}
    for _ in range(STEPS):
        step()
    spent = {name: (clock() - before[name]) / STEPS for name, clock in CLOCKS.items()}
    watch.stop()
    return spent


def main() -> None:
    """Run the pairs and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=60, help="pairs of blocks")
    pairs = parser.parse_args().n
    step = training()
    for _ in range(10):
        step()
    found: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(pairs):
        order = (False, True) if number % 2 == 0 else (True, False)
        spent = {knocking: block(step, knocking) for knocking in order}
        found.append((spent[True], spent[False]))
    for name in CLOCKS:
        mean, low, high = interval([on[name] / off[name] for on, off in found])
        bare = sorted(off[name] for _, off in found)[pairs // 2]
        print(f"{name:<27} x{mean:.4f} [{low:.4f}, {high:.4f}] of {1000 * bare:.2f} ms per step")


if __name__ == "__main__":
    main()
