"""The last words of a process that left nothing but its output."""

from __future__ import annotations

import functools
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canary.protocol.failure import HERE, PLACE, describe_failure, failure_of, last_words, struck
from canary.protocol.job import Result

PLAIN = """loading
Traceback (most recent call last):
  File "/home/me/train.py", line 4, in <module>
    go()
  File "/home/me/train.py", line 3, in go
    import nosuchpackage
ModuleNotFoundError: No module named 'nosuchpackage'
"""

IN_A_PACKAGE = """Traceback (most recent call last):
  File "/home/me/train.py", line 9, in <module>
    AutoModel.from_pretrained("x")
  File "/venv/lib/python3.11/site-packages/transformers/models.py", line 300, in from_pretrained
    raise OSError(
OSError: x is not a local folder
and is not a valid model identifier
"""

CHAINED = (
    IN_A_PACKAGE
    + """
During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/me/train.py", line 11, in <module>
    raise SystemError("no model") from None
SystemError: no model
"""
)

IN_IMPORTLIB = """Traceback (most recent call last):
  File "/home/me/train.py", line 1, in <module>
    import plugins.mine
  File "<frozen importlib._bootstrap>", line 1176, in _find_and_load
  File "/usr/lib/python3.11/importlib/__init__.py", line 126, in import_module
    return _bootstrap._gcd_import(name[level:], package, level)
ImportError: cannot import name 'a' from 'b'
"""

SYNTAX = """  File "/home/me/train.py", line 2
    def (
        ^
SyntaxError: invalid syntax
"""

TORCHRUN = (
    "".join(f"[rank1]: {line}\n" for line in PLAIN.splitlines())
    + """E0101 12:00:00 failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: /usr/bin/python3
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/venv/lib/python3.11/site-packages/torch/distributed/run.py", line 900, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
"""
)


SHIM = """pyenv: python3.9: command not found

The `python3.9' command exists in these Python versions:
  3.9.18

Note: See 'pyenv help global' for tips on allowing both
      Python versions to be found at the same time.
"""

COUNTED = f"""Traceback (most recent call last):
  File "/home/me/train.py", line 8, in <module>
    rows.map(lambda row: row["text"])
  File "{HERE}collect/probes/calls.py", line 53, in wrapper
    return original(*args, **kwargs)
  File "/venv/lib/python3.11/site-packages/datasets/arrow_dataset.py", line 3, in map
KeyError: 'text'
"""

MISSING = "ModuleNotFoundError: No module named 'nosuchpackage' (at /home/me/train.py:3 in go)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PLAIN, MISSING),
        (
            IN_A_PACKAGE,
            "OSError: x is not a local folder (at /home/me/train.py:9, "
            "raised at transformers/models.py:300 in from_pretrained)",
        ),
        (CHAINED, "SystemError: no model (at /home/me/train.py:11)"),
        (
            IN_IMPORTLIB,
            "ImportError: cannot import name 'a' from 'b' (at /home/me/train.py:1, "
            "raised at importlib/__init__.py:126 in import_module)",
        ),
        (SYNTAX, "SyntaxError: invalid syntax (at /home/me/train.py:2)"),
        (TORCHRUN, MISSING),
        (
            "hello\npython3: can't open file 'x.py': [Errno 2] No such file or directory\n\n",
            "python3: can't open file 'x.py': [Errno 2] No such file or directory",
        ),
        ("bash: line 1: pythn: command not found\n", "bash: line 1: pythn: command not found"),
        (SHIM, "pyenv: python3.9: command not found"),
        (
            COUNTED,
            "KeyError: 'text' (at /home/me/train.py:8, "
            "raised at datasets/arrow_dataset.py:3 in map)",
        ),
        ("a\x1b[2J::error::b\n", "a [2J::error::b"),
    ],
)
def test_the_last_words_are_the_error_and_the_users_own_line(text: str, words: str) -> None:
    assert last_words(text) == words


LIBRARY = """
def train():
    try:
        step()
    except RuntimeError as error:
        return describe_failure(error).reason

def step():
    raise RuntimeError("shape '[8, 33]' is invalid")
"""


def test_a_crash_inside_a_library_is_told_at_the_line_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What watches a trainer catches the error before it reaches the user's line."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    library = {"describe_failure": describe_failure}
    exec(compile(LIBRARY, "/venv/lib/python3.11/site-packages/trl/trainer.py", "exec"), library)
    # An editable install outside of the working folder is a library too.
    between = {"train": library["train"]}
    exec(compile("def go(): return train()", "/src/mine/go.py", "exec"), between)
    script: dict[str, Any] = {"go": between["go"]}
    file = str(tmp_path / "work" / "sft" / "sft.py")
    exec(compile("def main():\n    return go()\nreason = main()", file, "exec"), script)
    assert script["reason"] == (
        "RuntimeError: shape '[8, 33]' is invalid "
        "(at sft/sft.py:2 in main, raised at trl/trainer.py:9 in step)"
    )
    found = PLACE.search(script["reason"])
    assert found is not None
    assert found["function"] == "main"
    assert found["raised"] == "trl/trainer.py:9 in step"


@pytest.mark.parametrize(
    ("words", "failure"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'rows.jsonl'", "not found"),
        ("RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting", "timed out"),
        (
            "DistBackendError: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
            "timed out",
        ),
        ("RuntimeError: Connection closed by peer", None),
        ("", None),
    ],
)
def test_the_words_of_other_programs_become_a_kind_of_failure_at_once(
    words: str, failure: str | None
) -> None:
    assert failure_of(words) == failure


def test_what_ended_a_training_is_a_field_beside_its_words() -> None:
    missing = describe_failure(FileNotFoundError(2, "No such file or directory", "rows.jsonl"))
    assert (missing.status, missing.failure) == ("failed", "not found")
    assert describe_failure(ValueError("no good")).failure is None


class Late(Exception):
    pass


def ring(*_: object) -> None:
    raise Late


@pytest.mark.parametrize("handler", [ring, functools.partial(ring, 1)])
def test_an_error_of_a_signal_handler_is_meant_for_the_program(
    handler: Callable[..., None],
) -> None:
    before = signal.signal(signal.SIGUSR2, handler)
    try:
        with pytest.raises(Late) as raised:
            os.kill(os.getpid(), signal.SIGUSR2)
        assert struck(raised.value)
        assert not struck(ValueError("of a user's object"))
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_loss_that_is_nan_is_a_number_in_the_result(tmp_path: Path) -> None:
    result = Result("completed", exact={"trajectory": {"losses": [2.0, math.nan]}})
    result.write(tmp_path / "result.json")
    read = Result.read(tmp_path / "result.json")
    assert read is not None
    assert math.isnan(read.exact["trajectory"]["losses"][1] or 0)


class Unreadable(Exception):
    """Its message cannot be made."""

    def __str__(self) -> str:
        raise ZeroDivisionError


def test_an_error_whose_message_raises_is_named_all_the_same() -> None:
    assert describe_failure(Unreadable()).reason == "Unreadable: (its message cannot be read)"


def test_an_error_of_a_data_worker_is_told_at_the_workers_line() -> None:
    library = '  File "/usr/lib/python3.11/site-packages/torch/a.py", line 1, in f\n    x\n'
    frames = 20 * library
    text = (
        "Caught KeyError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n"
        f'{frames}  File "{Path.cwd()}/train.py", line 10, in __getitem__\n    row\n'
        "KeyError: 'row'\n"
    )
    assert (
        describe_failure(RuntimeError(text)).reason
        == "KeyError: 'row' (at train.py:10 in __getitem__)"
    )
