"""What the words of a training command say, without starting it."""

from __future__ import annotations

import shlex

import pytest

from canary.config.command_line import name_of, simple_commands, started


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 1e-4", "train"),
        ("python -m pkg.train --config x.py", "pkg.train"),
        ("trl sft --model x", "trl-sft"),
        ("torchrun --standalone --nproc_per_node=2 train.py", "train"),
        ("torchrun --no-python trl sft", "trl-sft"),
        ("python -m torch.distributed.run --nproc_per_node 2 run_clm.py -o out", "run_clm"),
        ("accelerate launch --multi_gpu train.py", "train"),
        ("accelerate launch --config_file a.yaml --num_processes 2 -m pkg.train", "pkg.train"),
        ("uv run --with trl python train.py", "train"),
        ("timeout 60 nice -n 5 trl dpo", "trl-dpo"),
        ("bash -euo pipefail -c 'pip install -e . && LR=1 trl sft'", "trl-sft"),
        ("bash train.sh 4", "train"),
        ("bash -c 'cd x && python loop.py; touch done'", "loop"),
        ("python -c 'print(1)'", None),
        ("python", None),
        ("bash -c 'echo \"open'", None),
    ],
)
def test_a_run_is_named_after_the_program_that_trains(command: str, name: str | None) -> None:
    assert name_of(shlex.split(command)) == name


def test_launchers_and_program_are_told_apart() -> None:
    (found,) = started(shlex.split("A=1 torchrun --nproc_per_node 2 src/train.py --lr 1e-4 -v"))
    assert found.launch == ("A=1", "torchrun", "--nproc_per_node", "2")
    assert (found.program, found.arguments) == ("src/train.py", ("--lr", "1e-4", "-v"))


def test_a_script_of_a_shell_is_its_simple_commands_without_where_they_write() -> None:
    script = "# first\nset -e\nif true; then python a.py \\\n  --x 1 2>err >> log & fi"
    assert list(simple_commands(script)) == [
        ("set", "-e"),
        ("true",),
        ("python", "a.py", "--x", "1"),
        ("fi",),
    ]


def test_shells_within_shells_end_somewhere() -> None:
    command = ["python", "train.py"]
    for _ in range(12):
        command = ["bash", "-c", shlex.join(command)]
        if len(command[2]) > 100_000:
            break
    started(command)
    name_of(command)
