"""A reward must not change with the way it is asked: each dependence is found and named."""

from __future__ import annotations

import datetime
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable
from datetime import datetime as moment
from pathlib import Path
from typing import Any

import pytest
import torch

from canary.relations.sampling import Reward
from canary.training.random_states import random_states
from canary.training.relations.calls import KeptCall
from canary.training.sampling import rewards
from canary.training.sampling.reward_models import asked_model
from canary.training.sampling.rewards import asked

COMPLETIONS = ["ab", "c", "dddd", "ee"]
STATE = {"calls": 0}


def lengths(completions: list[str], **_: Any) -> list[float]:
    return [float(len(one)) for one in completions]


def as_tensor(completions: list[str], **_: Any) -> torch.Tensor:
    return torch.tensor(lengths(completions))


def abstains(completions: list[str], **_: Any) -> list[None]:
    return [None for _ in completions]


def by_column(completions: list[str], answers: list[str], **_: Any) -> list[float]:
    return [float(one[0] == right) for one, right in zip(completions, answers, strict=True)]


def by_order(completions: list[str], **_: Any) -> list[float]:
    return [len(one) + 0.1 * place for place, one in enumerate(completions)]


def by_others(completions: list[str], **_: Any) -> list[float]:
    longest = max(map(len, completions))
    return [len(one) / longest for one in completions]


def by_second(completions: list[str], **_: Any) -> list[float]:
    return [len(one) + time.time() % 10 for one in completions]


def by_day(completions: list[str], **_: Any) -> list[float]:
    return [len(one) + float(datetime.date.today().toordinal() % 7) for one in completions]


def by_moment(completions: list[str], **_: Any) -> list[float]:
    return [len(one) + float(moment.now().toordinal() % 7) for one in completions]


def by_chance(completions: list[str], **_: Any) -> list[float]:
    return [len(one) + random.random() for one in completions]


def by_calls(completions: list[str], **_: Any) -> list[float]:
    STATE["calls"] += 1
    return [len(one) * float(STATE["calls"]) for one in completions]


def ask(function: Callable[..., Any]) -> Reward:
    columns = {"answers": ["a", "c", "x", "e"], "name": "abc"}
    states = random_states(devices=False)
    result = function(COMPLETIONS, **columns)
    return asked(function, (COMPLETIONS,), columns, result, states)


@pytest.mark.parametrize("function", [lengths, as_tensor, abstains, by_column])
def test_a_reward_of_its_completion_alone_holds(function: Callable[..., Any]) -> None:
    found = ask(function)
    assert (found.changed, found.unasked, found.rows) == ("", "", 4)


@pytest.mark.parametrize(
    ("function", "how", "cause"),
    [
        (by_order, "in the reverse order", "it depends on the order of the rows"),
        (by_others, "for it alone", "it depends on the other rows"),
        (by_second, "when it is called again", "it reads the clock"),
        (by_day, "a day later", "it reads the clock"),
        (by_moment, "a day later", "it reads the clock"),
        (by_chance, "with other random numbers", "it draws random numbers"),
        (by_calls, "when it is called again", "it keeps a state of its own"),
    ],
)
def test_what_a_reward_depends_on_is_named(
    function: Callable[..., Any], how: str, cause: str
) -> None:
    found = ask(function)
    assert (found.changed, found.cause) == (how, cause), found
    assert found.values is not None
    assert found.values[0] != found.values[1]


def test_the_state_of_a_reward_and_of_the_process_is_left_alone() -> None:
    STATE["calls"] = 0
    random.seed(3)
    expected = [random.random() for _ in range(6)]
    random.seed(3)
    assert ask(by_calls).changed
    assert STATE["calls"] == 1
    assert ask(by_chance).changed
    assert random.random() == expected[len(COMPLETIONS)]


def refuses(completions: list[str], **_: Any) -> list[float]:
    if len(completions) < 4:
        raise ValueError("whole groups only")
    return lengths(completions)


def hangs(completions: list[str], **_: Any) -> list[float]:
    STATE["calls"] += 1
    if STATE["calls"] > 1:
        time.sleep(30)
    return lengths(completions)


def no_numbers(completions: list[str], **_: Any) -> str:
    return "good"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (refuses, "whole groups only"),
        (hangs, "took more than"),
        (no_numbers, "no list of numbers"),
    ],
)
def test_a_reward_that_cannot_be_asked_says_why(
    function: Callable[..., Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    STATE["calls"] = 0
    monkeypatch.setattr(rewards, "TIMEOUT_S", 0.5)
    found = ask(function)
    assert words in found.unasked
    assert found.changed == ""


class Scorer(torch.nn.Module):
    """Scores the real tokens of each row."""

    def __init__(self, mixes: bool = False, masks: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(20, 8)
        self.head = torch.nn.Linear(8, 1)
        self.config = type("Config", (), {"pad_token_id": 0})
        self.mixes, self.masks = mixes, masks

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        if attention_mask is None:
            attention_mask = (input_ids != 0).long()
        mask = attention_mask if self.masks else torch.ones_like(attention_mask)
        hidden = self.table(input_ids) * mask.unsqueeze(-1)
        pooled = hidden.sum(1)
        if self.mixes:
            pooled = pooled - pooled.mean(0)
        return self.head(pooled)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("model", "cause"),
    [
        (Scorer(), ""),
        (Scorer(mixes=True), "it depends on the other rows"),
        (Scorer(masks=False), "it depends on the padding"),
    ],
    ids=["healthy", "mixes", "unmasked"],
)
def test_a_reward_model_is_asked_with_other_rows_and_padding(model: Scorer, cause: str) -> None:
    ids = torch.arange(1, 13).reshape(3, 4)
    arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    call = KeptCall(model, arguments, (3, 1), False, "logits")
    found = asked_model(call)
    assert (found.cause, found.unasked) == (cause, "")


def test_what_a_reward_starts_ends_with_its_fork(tmp_path: Path) -> None:
    """A process that it starts holds the pipe of the answer open."""
    file = tmp_path / "pid"

    def reward(completions: list[str], **_: Any) -> list[float]:
        if os.getpid() != here:
            file.write_text(str(subprocess.Popen(["sleep", "300"], close_fds=False).pid))
        return lengths(completions)

    here, began = os.getpid(), time.monotonic()
    found = ask(reward)
    assert (found.changed, found.unasked) == ("", "")
    assert time.monotonic() - began < 30
    started = Path(f"/proc/{file.read_text()}/stat")
    time.sleep(0.2)
    assert not started.exists() or started.read_text().split()[2] == "Z"


def test_a_connection_of_the_training_is_not_read_by_the_fork() -> None:
    ours, theirs = socket.socketpair()

    def reward(completions: list[str], **_: Any) -> list[float]:
        ours.send(b"?")
        return [float(ours.recv(1)[0] - 48 + len(one)) for one in completions]

    theirs.send(b"1234567")
    found = ask(reward)
    assert "fails when called again" in found.unasked
    assert ours.recv(9) == b"567"
    ours.close()
    theirs.close()


def test_what_files_hold_back_is_written_once(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        log.write("before\n")

        def reward(completions: list[str], **_: Any) -> list[float]:
            log.flush()
            return lengths(completions)

        assert ask(reward).changed == ""
    assert (tmp_path / "log").read_text() == "before\n"
