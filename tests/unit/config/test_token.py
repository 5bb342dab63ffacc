"""How a process comes by its token, and that nothing it starts does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from canary.config.token import Token, take_token
from canary.errors import UsageError
from canary.gate.inputs import ReportSettings

TOKEN = "ghs_0123456789abcdef"


def piped(text: str) -> str:
    """Number of the end of a pipe that the text comes out of."""
    out, into = os.pipe()
    os.write(into, text.encode())
    os.close(into)
    return str(out)


def test_a_token_is_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_TOKEN", TOKEN)
    assert take_token(os.environ) == Token(TOKEN)
    shown = [sys.executable, "-c", "import os; print(os.environ)"]
    assert TOKEN not in subprocess.run(shown, capture_output=True, text=True, check=True).stdout


def test_a_token_that_comes_through_a_pipe_is_read_once_and_no_child_can_read_it() -> None:
    number = piped(f"{TOKEN}\n")
    environ = {"CANARY_TOKEN_FD": number}
    assert take_token(environ) == Token(TOKEN)
    assert environ == {}
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(int(number))


def test_without_a_token_there_is_an_empty_one() -> None:
    assert not take_token({})
    assert not take_token({"CANARY_TOKEN_FD": piped("")})


@pytest.mark.parametrize("number", ["9x", "-1", "12345"])
def test_a_pipe_that_is_none_says_what_to_set(number: str) -> None:
    with pytest.raises(UsageError, match=r"CANARY_TOKEN_FD.*set CANARY_TOKEN instead"):
        take_token({"CANARY_TOKEN_FD": number})


def test_inputs_that_are_refused_have_lost_the_token_too() -> None:
    environ = {"CANARY_TOKEN": TOKEN, "CANARY_STRICT": "maybe"}
    with pytest.raises(UsageError):
        ReportSettings.read(environ)
    assert TOKEN not in environ.values()
