"""Render a user's template in a separate process with little time and memory and no secrets.

Jinja's sandbox restricts what a template can access, but neither its memory nor its time.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable

from canary.errors import ConfigError

CPU_S = 5
WALL_S = 15.0
"""Longer than CPU_S: on a busy runner the process gets less than one CPU."""
MEMORY_BYTES = 512 << 20
KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH")
"""Variables that Python may need to start; none of them is a token."""
LONGEST_REASON = 200
HINT = "docs/publishing.md says what a template may use"
BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from canary.github.confined import answer; answer()"
)


def confined(work: Callable[..., str], *arguments: object) -> str:
    """Run a module's function in a child process with this module's limits; return its result.

    Raises:
        ConfigError: it failed or exceeded a limit.
    """
    path = [entry for entry in sys.path if os.path.isabs(entry)]  # noqa: PTH117 - plain strings
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", BEGIN, json.dumps(path)],
            input=pickle.dumps((CPU_S, MEMORY_BYTES, work, arguments)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in KEPT if name in os.environ},
            timeout=WALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise unusable(f"it takes more than {WALL_S:g} s") from error
    except OSError as error:
        raise unusable(f"its process could not start: {error.strerror}") from error
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise unusable(f"it takes more than {CPU_S} s of CPU time")
    try:
        text, message, hint = json.loads(done.stdout)
    except ValueError as error:
        raise unusable(f"its process ended with exit code {done.returncode}") from error
    if message:
        raise ConfigError(message, hint)
    return str(text)


def unusable(why: str) -> ConfigError:
    """Return the error of a template that cannot be rendered, as one short line."""
    line = " ".join(why.split())
    cut = line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"
    return ConfigError(f"the comment template cannot be rendered: {cut}", HINT)


def answer() -> None:
    """In the child: set the limits, do the work, print text, error and hint as JSON."""
    cpu_s, memory_bytes, work, arguments = pickle.load(sys.stdin.buffer)
    limits = (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
        (resource.RLIMIT_AS, memory_bytes, memory_bytes),
    )
    for what, soft, hard in limits:
        # macOS has no limit of the address space. A lower limit that is already set stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (soft, hard))
    try:
        said = (work(*arguments), "", "")
    except MemoryError:
        failed = unusable(f"it needs more than {memory_bytes >> 20} MB of memory")
        said = ("", failed.message, failed.hint or "")
    except ConfigError as error:
        said = ("", error.message, error.hint or "")
    print(json.dumps(said))
