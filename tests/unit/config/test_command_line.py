"""What the words of a training command say, without starting it."""

from __future__ import annotations

import shlex

import pytest

from canary.config.command_line import (
    name_of,
    replaced_path,
    simple_commands,
    started,
    why_unwatched,
)


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
        ("python -c 'print(1)'", None),
        ("python", None),
        ("bash -c 'echo \"open'", None),
    ],
)
def test_a_run_is_named_after_the_program_that_trains(command: str, name: str | None) -> None:
    assert name_of(shlex.split(command)) == name


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python -I train.py", "python -I runs isolated"),
        ("/usr/bin/python3.11 -BE -m pkg.train", "python -E runs ignoring"),
        ("python -W ignore -S train.py", "python -S runs without"),
        ("bash -c 'cd src; python -I train.py | tee log'", "-I"),
        ("torchrun --no-python python -I train.py", "-I"),
        ("env -i python train.py", "env -i clears"),
    ],
)
def test_a_python_that_lets_no_canary_in_is_seen_in_the_words(command: str, said: str) -> None:
    found = why_unwatched(shlex.split(command))
    assert found is not None
    assert said in found[0]


@pytest.mark.parametrize(
    "command",
    [
        "python train.py -I",
        "python -m pkg -S",
        "python -X importtime -W error::S train.py",
        "python -c 1",
        "bash -c 'python -I prepare.py; python train.py'",
        "bash -c 'PYTHONPATH=src python own_loop_with_a_recorder.py'",
        "true",
    ],
)
def test_a_command_that_may_let_it_in_is_not_refused(command: str) -> None:
    assert why_unwatched(shlex.split(command)) is None


@pytest.mark.parametrize(
    ("command", "value"),
    [
        ("bash -c 'PYTHONPATH=src python train.py'", "src"),
        ("env PYTHONPATH=. python train.py", "."),
        ("bash -c 'PYTHONPATH=src:$PYTHONPATH python train.py'", None),
        ("A=1 python train.py", None),
    ],
)
def test_a_python_path_that_is_replaced_is_seen(command: str, value: str | None) -> None:
    assert replaced_path(shlex.split(command)) == value


def test_launchers_and_program_are_told_apart() -> None:
    (found,) = started(shlex.split("A=1 torchrun --nproc_per_node 2 src/train.py --lr 1e-4 -v"))
    assert found.assigned == (("A", "1"),)
    assert found.launch == ("torchrun", "--nproc_per_node", "2")
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
