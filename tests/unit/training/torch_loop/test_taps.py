"""The taps wait for an optimizer, and know of a loop that never makes one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TAPPED = """
import torch
from canary.training.collectors import taps
original = torch.autograd.backward
found = []
told = lambda _: found.append("optimizer"), lambda count: print("backward", count)
taps.Taps(*told).install(torch)
value = torch.ones(1, requires_grad=True)
for step in range(3):
    {before}
    (value * 2).sum().backward()
    value.data.add_(value.grad, alpha=-0.1)
print(found, torch.autograd.backward is original)
{after}
"""


def output(before: str = "pass", after: str = "pass") -> list[str]:
    code = TAPPED.format(before=before, after=after)
    root = Path(__file__).parents[4]
    return subprocess.run(
        [sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def test_a_loop_without_an_optimizer_says_how_often_it_ran_backward() -> None:
    assert output() == ["backward ", "[] False", "backward 3"]


def test_the_first_optimizer_ends_the_count() -> None:
    made = "torch.optim.SGD([value]) if step == 1 else None"
    assert output(made) == ["backward ", "['optimizer'] True"]


def test_a_process_that_ends_at_once_leaves_that_backward_ran() -> None:
    leave = "import os, sys; sys.stdout.flush(); os._exit(0)"
    assert output(after=leave) == ["backward ", "[] False"]
