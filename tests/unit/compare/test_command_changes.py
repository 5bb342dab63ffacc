"""Two commands are compared option by option; what only names places excuses nothing."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from canary.compare.exact.changes import config_changes
from canary.compare.stats import compare_to_baseline
from tests.unit.comparing import altered, record
from tests.unit.diagnosing import OTHER_LOSS, changed, sides


def told(before: str, after: str) -> dict[str, tuple[Any, Any]]:
    """What can matter, by key."""
    return {c.key: (c.baseline, c.current) for c in changes(before, after) if not c.cosmetic}


def changes(before: str, after: str) -> tuple[Any, ...]:
    was, now = (
        altered(record(), "config", "command", to=shlex.split(words)) for words in (before, after)
    )
    return config_changes(was, now)


@pytest.mark.parametrize(
    ("before", "after", "key", "values"),
    [
        ("python t.py --lr 1e-4", "python t.py --lr 2e-4", "--lr", ("1e-4", "2e-4")),
        ("python t.py --lr=1e-4", "python t.py --lr 2e-4 -v", "--lr", ("1e-4", "2e-4")),
        ("python t.py", "python t.py --bf16", "--bf16", (None, True)),
        ("python t.py optim.lr=1", "python t.py optim.lr=2", "optim.lr", ("1", "2")),
        ("python t.py a.json", "python t.py b.json", "arguments", ("a.json", "b.json")),
        ("python a.py", "python b.py", "command", ("a.py", "b.py")),
        (
            "torchrun --nproc_per_node 2 t.py --lr 1",
            "torchrun --nproc_per_node 4 t.py --lr 1",
            "--nproc_per_node",
            ("2", "4"),
        ),
        ("python t.py", "torchrun t.py", "launcher", ("python", "torchrun")),
        ("bash -c 'X=1 python t.py'", "bash -c 'X=2 python t.py'", "X", ("1", "2")),
        (
            "bash -c 'cd a && python t.py --lr 1 > log'",
            "bash -c 'cd a && python t.py --lr 2 > log2'",
            "--lr",
            ("1", "2"),
        ),
        ("python t.py --x -1", "python t.py --x -2.5", "--x", ("-1", "-2.5")),
    ],
)
def test_only_the_option_that_differs_is_named(
    before: str, after: str, key: str, values: tuple[Any, Any]
) -> None:
    assert told(before, after)[key] == values
    extra = {"-v", "--bf16", "arguments"} if key in ("--lr", "--fp16") else set()
    assert set(told(before, after)) <= {key} | extra


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("python t.py --lr 1e-4 --seed 1", "python t.py --seed=1 --lr=0.0001"),
        ("python t.py --max-steps 5", "python t.py --max_steps 5"),
        ("python t.py --bf16", "python t.py --bf16 true"),
        ("/opt/a/bin/python3.11 t.py", "python t.py"),
        ("python -m accelerate.commands.launch t.py", "python -m accelerate.commands.launch t.py"),
        ("python t.py --hub_token abc", "python t.py --hub_token def"),
        ("bash -c 'python t.py --x 1'", "python t.py --x 1"),
    ],
)
def test_the_same_in_other_words_is_no_change(before: str, after: str) -> None:
    assert changes(before, after) == ()


@pytest.mark.parametrize(
    "words",
    [
        "--output_dir {}", "--output-dir={}", "-o {}", "hydra.run.dir={}",
        "logger={}"
    ],
)  # fmt: skip
def test_places_and_names_are_shown_and_excuse_nothing(words: str) -> None:
    found = changes(f"python t.py {words.format('a1')}", f"python t.py {words.format('a2')}")
    assert [(c.baseline, c.current, c.cosmetic) for c in found] == [("a1", "a2", True)]


@pytest.mark.parametrize("words", ["experiment={}", "name={}"])
def test_what_may_choose_what_is_trained_is_no_place(words: str) -> None:
    """As `experiment=` does in templates for hydra."""
    assert told(f"python t.py {words.format('a1')}", f"python t.py {words.format('a2')}")


def test_a_program_in_another_folder_is_the_same_program() -> None:
    found = changes("python /w/1/t.py", "python /w/2/t.py")
    assert [(c.key, c.cosmetic) for c in found] == [("command", True)]


def test_another_output_dir_hides_no_silent_fault() -> None:
    before, after = sides()
    words = ["python", "train.py", "--output_dir"]
    before = altered(before, "config", "command", to=[*words, "a"])
    after = changed(altered(after, "config", "command", to=[*words, "b"]), *OTHER_LOSS)
    found = compare_to_baseline(after, before, gates=())
    assert found.verdict == "changed"
    assert [c.key for c in found.config_changes] == ["--output_dir"]


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    "command", ["python t.py", ["python", 3], {"a": 1}, [["x"]], 7, ["env"] * 200_000]
)
def test_a_command_of_another_form_is_compared_whole(command: Any) -> None:
    odd = altered(record(), "config", "command", to=command)
    usual = altered(record(), "config", "command", to=["python", "t.py"])
    assert config_changes(odd, odd) == ()
    assert [c.key for c in config_changes(odd, usual)] == ["command"]
