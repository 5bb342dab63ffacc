"""What both clusters need: free ports, children that end with the tests, and waiting."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from canary.matrix.attempt import Attempt
from canary.matrix.queue import QueueLauncher

MINUTE = 60.0


def require(programs: Sequence[str], packages: str) -> None:
    """Skip where a program is missing; fail in CI, which installs all."""
    missing = [one for one in programs if shutil.which(one) is None]
    if missing:
        words = f"{', '.join(missing)} is not installed ({packages})"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(words)


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens now."""
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


def child_of_tests(words: Sequence[str], log: Path, **variables: str) -> subprocess.Popen[bytes]:
    """Start a program that the kernel ends if the tests are killed."""
    with log.open("ab") as stream:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *words],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**os.environ, **variables},
            start_new_session=True,
        )


def end(child: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
    """End a child; with signal 9 if it takes long."""
    if child.poll() is None:
        child.send_signal(number)
        try:
            child.wait(15)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_for(what: Callable[[], object], seconds: float = MINUTE, why: str = "") -> None:
    """Wait until something is so."""
    last = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < last, f"not within {seconds:g} s: {why or what}"
        time.sleep(0.05)


def until(launcher: QueueLauncher, seconds: float = MINUTE) -> Attempt:
    """Wait for the next try that is over."""
    last = time.monotonic() + seconds
    while time.monotonic() < last:
        for news in launcher.poll():
            return news
        launcher.wait(1.0)
    raise AssertionError(f"nothing ended: {dict(launcher.queued())}, silent: {launcher.silent!r}")


def quiet(launcher: QueueLauncher, seconds: float) -> None:
    """Poll for some time, in which there is no news."""
    last = time.monotonic() + seconds
    while time.monotonic() < last:
        for news in launcher.poll():
            raise AssertionError(f"{news.cell}: {news.gave_up()}")
        launcher.wait(1.0)


def tried(
    folder: Path,
    *words: str,
    cell: str = "one",
    limit_s: float = 120.0,
    cores: int = 1,
    gpus: int = 0,
) -> Attempt:
    """Return a try of a stand-in. It stands where a matrix in `folder` has its tries."""
    return Attempt(cell, folder / "cells" / cell, words, folder, {}, limit_s, cores, gpus)


def holds_its_lock(attempt: Attempt) -> bool:
    """Whether its command runs."""
    return attempt.has_begun() and attempt.is_running()


COUNTED = 'set -e; echo begins >>"$0"; sleep "$1"; echo ends >>"$0"'


def counted(folder: Path, seconds: float, cell: str = "one", limit_s: float = 120.0) -> Attempt:
    """Return a try of a command that counts how often it begins and ends, in `<cell>.seen`."""
    seen = str(folder / f"{cell}.seen")
    return tried(folder, "sh", "-c", COUNTED, seen, str(seconds), cell=cell, limit_s=limit_s)


def seen_of(folder: Path, cell: str = "one") -> list[str]:
    """Return what the command of `counted` did."""
    file = folder / f"{cell}.seen"
    return file.read_text().split() if file.exists() else []
