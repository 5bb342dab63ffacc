"""Programs that a launch starts: which of them may write files that the canary does not hear of.

Loaded in the Python processes of a further launch of the user's command. Standard library only.
"""

from __future__ import annotations

import _posixsubprocess
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

EVENTS = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")
"""Audit events of a program that is about to start."""
UNTOLD = "_posixsubprocess.fork_exec"
"""What multiprocessing and joblib start their processes with: Python tells no audit event of it."""
READS = (
    *("arch", "cat", "cd", "clear", "cut", "date", "df", "dpkg", "du", "echo", "export", "expr"),
    *("false", "file", "find_library", "free", "getconf", "grep", "groups", "head", "hostname"),
    *("id", "ifconfig", "ip", "ldconfig", "ldd", "lsb_release", "lsblk", "lscpu", "lsmod", "lspci"),
    *("ls", "nproc", "nvidia-smi", "objdump", "printf", "ps", "pwd", "readelf", "rocm-smi"),
    *("rocminfo", "sleep", "stat", "stty", "tail", "test", "tput", "tr", "true"),
    *("uname", "uptime", "wc", "which", "whoami"),
)
"""Programs that write to standard output alone."""
COMPILES = (
    *("as", "c++", "cc", "clang", "clang++", "collect2", "cuobjdump", "fatbinary", "g++", "gcc"),
    *("hipcc", "ld", "lld", "ninja", "nvcc", "nvdisasm", "nvlink", "ptxas"),
)
"""Compilers: torch and triton have them write to their caches."""
SERVES = ("gcs_server", "raylet")
"""Ray's: they keep a session of their own in a temporary folder."""
HARMLESS = frozenset((*READS, *COMPILES, *SERVES))
GIT_READS = (
    *("cat-file", "describe", "diff", "log", "ls-files", "merge-base", "rev-list", "rev-parse"),
    *("show", "status", "version"),
)
GIT_ASKS = (
    *("branch", "branch --show-current", "config --get", "remote", "remote -v", "remote get-url"),
    *("symbolic-ref HEAD", "symbolic-ref -q HEAD", "symbolic-ref --short HEAD"),
)
"""Verbs that write where they are given more than this, and one word for those that need it."""
SYSTEM = ("/bin/", "/sbin/", "/usr/", "/opt/", "/snap/", "/nix/")
NOWHERE = re.compile(r"[0-9]?>>?\s*(&[0-9]|/dev/null)|&>\s*/dev/null|<\s*/dev/null")
"""Redirections that write no file."""
SHEBANG_BYTES = 256
VARIABLE = "_RLHF_CANARY_FILES"
WHY = "which may write files that the canary does not hear of"
REMEDY = "do without it, or start it from a shell"


def begin(end: Callable[[str, str], None], said: Callable[[], ModuleType], site: str) -> None:
    """From here on this process is ended by `end` before it starts a program that may write
    unheard. `said` loads the module `canary.config.command_line`; `site` is the folder on
    PYTHONPATH by which a Python lets the canary in."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in EVENTS or event == UNTOLD:
            try:
                found = unheard(event, args, said(), site)
            except Exception as error:  # noqa: BLE001 - what is not understood is not started
                found = [f"a program ({type(error).__name__}: {error})"]
            if found:
                end(f"start {found[0]}, {WHY}", REMEDY)

    sys.addaudithook(hook)
    start = _posixsubprocess.fork_exec

    def fork_exec(*args: Any) -> int:
        hook(UNTOLD, args)
        return start(*args)

    vars(_posixsubprocess)["fork_exec"] = fork_exec


def unheard(event: str, args: tuple[Any, ...], said: Any, site: str) -> list[str]:
    """The programs of an audit event that may write unheard; `said` is the module
    `canary.config.command_line`, which may be loaded under another name."""
    words, environment = _asked(event, args)
    if site not in environment.get("PYTHONPATH", "").split(os.pathsep):
        environment = {k: v for k, v in environment.items() if k != VARIABLE}
    return _unheard(words, environment, said)


def _asked(event: str, args: tuple[Any, ...]) -> tuple[list[str], Mapping[str, str]]:
    if event == "os.system":
        return ["sh", "-c", os.fsdecode(args[0])], os.environ
    if event == UNTOLD:
        (given, places), environment = args[:2], args[5]
        started = places[0] if len(places) == 1 else given[0]
        if environment is not None:
            environment = dict(pair.split(b"=", 1) for pair in environment)
    else:
        environment = args[3] if event == "subprocess.Popen" else args[2]
        given = [args[1]] if isinstance(args[1], (str, bytes, os.PathLike)) else args[1]
        started = args[0]
    words = [os.fsdecode(word) for word in given]
    program = os.fsdecode(started) if started is not None else words[0]
    if environment is None:
        return [program, *words[1:]], os.environ
    return [program, *words[1:]], {
        os.fsdecode(name): os.fsdecode(value) for name, value in dict(environment).items()
    }


def _unheard(words: list[str], environment: Mapping[str, str], said: Any) -> list[str]:
    while words and (said.ASSIGNMENT.fullmatch(words[0]) or words[0] in said.OPENERS):
        if words[0].startswith(("PYTHON", "PATH=", "_RLHF_CANARY")):
            return ["a program in another environment"]
        words = words[1:]
    if not words:
        return []
    name = Path(words[0]).name
    if name in said.SHELLS and len(words) > 2 and words[1] in ("-c", "-ec", "-lc"):
        text = NOWHERE.sub(" ", words[2])
        simple = [*said.simple_commands(text)]
        if not simple or any(sign in text for sign in (">", "<", "$(", "`")):
            return [name] if text.strip() else []
        return [one for each in simple for one in _unheard([*each], environment, said)]
    harmless = name in HARMLESS or (name == "git" and _git_reads(words))
    if harmless and _is_the_systems(words[0], environment) and not _compiles_here(words):
        return []
    python = _python(words, environment, said.PYTHON)
    heard = python is not None and VARIABLE in environment and not said.started(python)[0].deaf
    return [] if heard else [name]


def _is_the_systems(program: str, environment: Mapping[str, str]) -> bool:
    """Whether it is what its name says, and no script of the user's that has that name."""
    found = shutil.which(program, path=environment.get("PATH"))
    if found is None:
        return True  # it will not start, or is a shell's own
    path = str(Path(found).resolve().parent) + "/"
    return path.startswith((*SYSTEM, sys.prefix + "/", sys.base_prefix + "/"))


def _compiles_here(words: Sequence[str]) -> bool:
    """Whether a compiler writes into the working folder."""
    here = Path.cwd().resolve()
    outputs = [words[place + 1] for place, word in enumerate(words[:-1]) if word == "-o"]
    return any((here / output).resolve().is_relative_to(here) for output in outputs)


def _git_reads(words: Sequence[str]) -> bool:
    place = 1
    while place < len(words) and words[place].startswith("-"):
        place += 2 if words[place] in ("-C", "-c") else 1
    rest = [*words[place:]]
    if any(word.startswith(("--output", "-o")) for word in rest):
        return False
    if not rest or rest[0] in GIT_READS:
        return True
    asked = " ".join(rest)
    return asked in GIT_ASKS or " ".join(rest[:-1]) in ("config --get", "remote get-url")


def _python(
    words: Sequence[str], environment: Mapping[str, str], name: re.Pattern[str]
) -> list[str] | None:
    """The words with the interpreter first, where a Python runs them; None for other programs."""
    found = shutil.which(words[0], path=environment.get("PATH"))
    if found is None:
        return None
    if name.fullmatch(Path(found).name) or name.fullmatch(Path(found).resolve().name):
        return ["python", *words[1:]]
    try:
        with Path(found).open("rb") as stream:
            lines = stream.read(SHEBANG_BYTES).decode(errors="replace").splitlines()[:2]
    except OSError:
        return None
    # Where the interpreter's path is long, the second line of a script for sh names it.
    for line in lines if lines and lines[0].startswith("#!") else ():
        named = [word.strip("'") for word in line.lstrip("#!").split()]
        for place, word in enumerate(named):
            if name.fullmatch(Path(word).name):
                return ["python", *named[place + 1 :], found, *words[1:]]
    return None
