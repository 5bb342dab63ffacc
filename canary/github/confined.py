"""Do work with strangers' texts in a separate process with limits and no secrets.

Jinja's sandbox restricts what a user's template can access, but neither its memory nor its time.
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
from dataclasses import dataclass
from pathlib import Path

from canary.errors import CanaryError, ConfigError, cut


@dataclass(frozen=True)
class Limits:
    """Of one child process."""

    cpu_s: int
    wall_s: float
    """Longer than `cpu_s`: on a busy runner the process gets less than one CPU."""
    memory_bytes: int | None = None
    """Of its address space; None for work whose libraries reserve far more than they use."""


OF_TEMPLATES = Limits(5, 15.0, 512 << 20)
KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH")
"""Variables that Python may need to start; none of them is a token."""
LONGEST_REASON = 200
HINT = "docs/action.md says what a template may use"
BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from canary.github.confined import answer; answer()"
)


def unusable(why: str) -> ConfigError:
    """Return the error of a template that cannot be rendered, as one short line."""
    return ConfigError(f"the comment template cannot be rendered: {one_line(why)}", HINT)


def one_line(why: str) -> str:
    """Return a reason as one short line."""
    return cut(" ".join(why.split()), LONGEST_REASON)


def confined(
    work: Callable[..., str],
    *arguments: object,
    limits: Limits | None = None,
    failed: Callable[[str], CanaryError] = unusable,
) -> str:
    """Run a module's function in a child process; return its result.

    `limits`: without them, those of templates. `failed`: makes the error from a reason.

    Raises:
        CanaryError: it failed or exceeded a limit.
    """
    given = limits or OF_TEMPLATES
    path = [entry for entry in sys.path if os.path.isabs(entry)]  # noqa: PTH117 - plain strings
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", BEGIN, json.dumps(path)],
            input=pickle.dumps((given, work, arguments, failed)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in KEPT if name in os.environ},
            timeout=given.wall_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise failed(f"it takes more than {given.wall_s:g} s") from error
    except OSError as error:
        raise failed(f"its process could not start: {error.strerror}") from error
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise failed(f"it takes more than {given.cpu_s} s of CPU time")
    try:
        text, message, hint = json.loads(done.stdout)
    except ValueError as error:
        raise failed(f"its process ended with exit code {done.returncode}") from error
    if message:
        raise ConfigError(message, hint)
    return str(text)


def answer() -> None:
    """In the child: set the limits, do the work, print text, error and hint as JSON."""
    given, work, arguments, failed = pickle.load(sys.stdin.buffer)
    limits = [(resource.RLIMIT_CORE, 0, 0), (resource.RLIMIT_CPU, given.cpu_s, given.cpu_s + 1)]
    if given.memory_bytes is not None:
        limits.append((resource.RLIMIT_AS, given.memory_bytes, given.memory_bytes))
    # Where memory runs out, this process goes and not the job.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    for what, soft, hard in limits:
        # macOS has no limit of the address space. A lower limit that is already set stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (soft, hard))
    try:
        said = (work(*arguments), "", "")
    except MemoryError:
        most = given.memory_bytes
        much = f"more than {most >> 20} MB of memory" if most else "more memory than there is"
        problem = failed(f"it needs {much}")
        said = ("", problem.message, problem.hint or "")
    except CanaryError as error:
        said = ("", error.message, error.hint or "")
    print(json.dumps(said))
