"""User code by dotted path: found in the working directory, and named in one line when it fails."""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from canary.errors import ConfigError, RunFailed
from canary.training.exact.effective import unwrapped
from canary.training.plugins import NamedCall, call, load, load_callable
from canary.training.trainers.rewards import NamedReward, reward_functions

MODULE = """
NUMBER = 5

def score(prompts, completions, **columns):
    return [float(len(text)) for text in completions]

class Inner:
    @staticmethod
    def deep():
        return "deep"

def fails(*args, **kwargs):
    raise KeyError("no such column")
"""


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "code.py").write_text(MODULE)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("mine"):
            del sys.modules[name]


def refused(key: str, path: str) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        load_callable(key, path)
    assert "\n" not in str(raised.value)
    assert raised.value.key == key
    return raised.value


def test_a_path_is_imported_from_the_working_directory() -> None:
    assert load("reward_functions", "mine.code:score").__name__ == "score"
    assert load("callbacks", "mine.code:Inner.deep")() == "deep"


def test_a_module_that_is_not_there_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    error = refused("callbacks", "mine.cod:make")
    assert error.message == "callbacks names 'mine.cod:make', but module 'mine.cod' is missing"
    assert str(tmp_path) in str(error.hint)
    error = refused("callbacks", "nowhere.at.all:make")
    assert "module 'nowhere' is missing" in error.message


def test_a_name_that_is_not_there_gets_the_nearest_one(tmp_path: Path) -> None:
    error = refused("reward_functions", "mine.code:scor")
    assert error.message == "reward_functions names 'mine.code:scor', but mine.code has no 'scor'"
    assert error.hint == "did you mean 'score'?"
    error = refused("reward_functions", "mine.code:zzzzzz")
    assert error.hint == f"define it in {tmp_path / 'mine' / 'code.py'}"


def test_what_cannot_be_called_is_refused() -> None:
    error = refused("data_collator", "mine.code:NUMBER")
    expected = "data_collator names 'mine.code:NUMBER', which cannot be called (its type is int)"
    assert error.message == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = 1\nimport no_such_package\n", "ModuleNotFoundError: No module named"),
        ("x = 1\ndef (:\n", "SyntaxError: "),
        ("x = 1\nraise RuntimeError('not today')\n", "RuntimeError: not today"),
    ],
)
def test_a_module_that_fails_to_import_says_what_and_at_which_line(
    tmp_path: Path, text: str, what: str
) -> None:
    file = tmp_path / "mine" / "broken.py"
    file.write_text(text)
    error = refused("callbacks", "mine.broken:Thing")
    assert error.message.startswith("callbacks 'mine.broken:Thing': importing mine.broken raised ")
    assert what in error.message
    assert error.message.endswith(f"(at {file}:2)")


def test_what_user_code_raises_names_key_path_and_line(tmp_path: Path) -> None:
    function = load("reward_functions", "mine.code:fails")
    with pytest.raises(RunFailed) as raised:
        NamedCall("reward_functions", "mine.code:fails", function)([1])
    assert str(raised.value) == (
        "reward_functions 'mine.code:fails': it raised KeyError: 'no such column' "
        f"(at {tmp_path / 'mine' / 'code.py'}:13) (correct it there)"
    )
    assert raised.value.status == "failed"


def test_errors_of_the_canary_and_of_memory_pass_as_they_are() -> None:
    def mine() -> None:
        raise ConfigError("of ours", key="x")

    def full() -> None:
        raise MemoryError

    with pytest.raises(ConfigError, match="of ours"):
        call(RunFailed, "callbacks", "a:b", mine)
    with pytest.raises(MemoryError):
        call(RunFailed, "callbacks", "a:b", full)


GIVEN = {"prompts": ["p", "p"], "completions": ["a", "b"], "answer": ["x", "y"]}


def plain(result: Any) -> Any:
    def score(prompts: list[str], completions: list[str], **columns: Any) -> Any:
        return result

    return NamedReward("reward_functions", "mine:score", score)(**GIVEN)


def awaited(result: Any) -> Any:
    async def score(prompts: list[str], completions: list[str], **columns: Any) -> Any:
        return result

    return asyncio.run(NamedReward("reward_functions", "mine:score", score).awaited(**GIVEN))


@pytest.mark.parametrize("rewards", [plain, awaited])
@pytest.mark.parametrize(
    ("result", "what"),
    [
        ([1.0], "returned 1 rewards for 2 completions"),
        (3.0, "returned float instead of a number"),
        ([[1.0], [2.0]], "returned list instead of a number"),
        ([1.0, math.nan], "returned nan for completion 2 of 2, 'b'"),
        ([-math.inf, math.nan], "returned -inf for completion 1 of 2, 'a'"),
        ([None, 1e39], "returned 1e+39 for completion 2 of 2, 'b'"),
    ],
)
def test_what_is_no_reward_is_refused(
    rewards: Callable[[Any], Any], result: Any, what: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        rewards(result)
    assert str(raised.value) == (
        f"reward_functions 'mine:score' {what} (return a list with one finite number, or None, for "
        "each completion)"
    )


ASYNC = """
async def score(prompts, completions, **columns):
    return [1.0]

async def fails(prompts, completions, **columns):
    raise KeyError("no such column")

class Judge:
    async def __call__(self, prompts, completions, **columns):
        return [0.5, None]

judge = Judge()
"""


def test_async_rewards_are_async_to_trl_and_checked_too(tmp_path: Path) -> None:
    (tmp_path / "mine" / "slow.py").write_text(ASYNC)
    paths = ("mine.slow:score", "mine.slow:fails", "mine.slow:judge", "mine.code:score")
    spec: Any = SimpleNamespace(config=SimpleNamespace(reward_functions=paths))
    short, fails, judge, sync = reward_functions(spec)
    assert [inspect.iscoroutinefunction(f) for f in (short, fails, judge, sync)] == [
        *(True, True, True, False)
    ]
    assert [f.__name__ for f in (short, fails, judge)] == ["score", "fails", "judge"]
    assert asyncio.run(judge(**GIVEN)) == [0.5, None]
    with pytest.raises(
        ConfigError, match=r"'mine\.slow:score' returned 1 rewards for 2 completions"
    ):
        asyncio.run(short(**GIVEN))
    with pytest.raises(
        RunFailed, match=r"'mine\.slow:fails': it raised KeyError: 'no such column'"
    ):
        asyncio.run(fails(**GIVEN))
    assert unwrapped(short).__code__.co_filename.endswith("slow.py")
