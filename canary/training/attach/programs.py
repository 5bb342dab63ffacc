"""Programs that a launch starts: which of them may write files unnoticed by the canary.

Loaded in the Python processes of a repeated launch of the user's command. Standard library only.
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
"""Audit events before a program starts."""
UNAUDITED = "_posixsubprocess.fork_exec"
"""Multiprocessing and joblib start processes by this function, which raises no audit event."""
READS = (
    *("arch", "cat", "cd", "clear", "cut", "date", "df", "dpkg", "du", "echo", "export", "expr"),
    *("false", "file", "find_library", "free", "getconf", "grep", "groups", "head", "hostname"),
    *("id", "ifconfig", "ip", "ldconfig", "ldd", "lsb_release", "lsblk", "lscpu", "lsmod", "lspci"),
    *("ls", "nproc", "nvidia-smi", "objdump", "printf", "ps", "pwd", "readelf", "rocm-smi"),
    *("rocminfo", "sleep", "stat", "stty", "tail", "test", "tput", "tr", "true"),
    *("uname", "uptime", "wc", "which", "whoami"),
)
"""Programs that write only to standard output."""
COMPILES = (
    *("as", "c++", "cc", "clang", "clang++", "collect2", "cuobjdump", "fatbinary", "g++", "gcc"),
    *("hipcc", "ld", "lld", "ninja", "nvcc", "nvdisasm", "nvlink", "ptxas"),
)
"""Compilers: torch and triton let them write to their caches."""
SERVES = ("gcs_server", "raylet")
"""Ray's servers: they write to a temporary folder."""
HARMLESS = frozenset((*READS, *COMPILES, *SERVES))
GIT_READS = (
    *("cat-file", "describe", "diff", "log", "ls-files", "merge-base", "rev-list", "rev-parse"),
    *("show", "status", "version"),
)
GIT_ASKS = (
    *("branch", "branch --show-current", "config --get", "remote", "remote -v", "remote get-url"),
    *("symbolic-ref HEAD", "symbolic-ref -q HEAD", "symbolic-ref --short HEAD"),
)
"""Commands that write if they get more words; `config --get` and `remote get-url` take one more."""
HASHES = ("sha512",)
"""Commands of openssl that print the hash of a file; torch.compile asks for them."""
ABILITIES = "torch._inductor.cpu_vec_isa"
"""The module of torch that lets another Python load a library, to see what the CPU can do."""
LIBRARY = re.compile(r"[\w./+=-]+\.so", re.ASCII)
SYSTEM = ("/bin/", "/sbin/", "/usr/", "/opt/", "/snap/", "/nix/")
NOWHERE = re.compile(r"[0-9]?>>?\s*(&[0-9]|/dev/null)|&>\s*/dev/null|<\s*/dev/null")
"""Redirections that do not write a file."""
SHEBANG_BYTES = 256
VARIABLE = "_RLHF_CANARY_FILES"
WHY = "which may write files unnoticed by the canary"
REMEDY = "leave it out, or start it from a shell"


def begin(
    end: Callable[[str, str], None], command_line: Callable[[], ModuleType], site: str
) -> None:
    """Call `end`, which ends this process, before it starts a program that may write unnoticed.
    `command_line` loads `canary.config.command_line`; `site` is the folder on PYTHONPATH that
    attaches the canary to a Python."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in EVENTS or event == UNAUDITED:
            try:
                found = unnoticed(event, args, command_line(), site)
            except Exception as error:  # noqa: BLE001 - in doubt the program is not started
                found = [f"a program ({type(error).__name__}: {error})"]
            if found:
                end(f"start {found[0]}, {WHY}", REMEDY)

    sys.addaudithook(hook)
    start = _posixsubprocess.fork_exec

    def fork_exec(*args: Any) -> int:
        hook(UNAUDITED, args)
        return start(*args)

    vars(_posixsubprocess)["fork_exec"] = fork_exec


def unnoticed(event: str, args: tuple[Any, ...], command_line: Any, site: str) -> list[str]:
    """Return the programs of an audit event that may write unnoticed. `command_line` is the module
    `canary.config.command_line`, perhaps loaded under another name."""
    words, environment = _program(event, args)
    if site not in environment.get("PYTHONPATH", "").split(os.pathsep):
        environment = {k: v for k, v in environment.items() if k != VARIABLE}
    return _unnoticed(words, environment, command_line)


def _program(event: str, args: tuple[Any, ...]) -> tuple[list[str], Mapping[str, str]]:
    if event == "os.system":
        return ["sh", "-c", os.fsdecode(args[0])], os.environ
    if event == UNAUDITED:
        (given, candidates), environment = args[:2], args[5]
        started = candidates[0] if len(candidates) == 1 else given[0]
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


def _unnoticed(words: list[str], environment: Mapping[str, str], command_line: Any) -> list[str]:
    while words and (
        command_line.ASSIGNMENT.fullmatch(words[0]) or words[0] in command_line.OPENERS
    ):
        if words[0].startswith(("PYTHON", "PATH=", "_RLHF_CANARY")):
            return ["a program in another environment"]
        words = words[1:]
    if not words:
        return []
    name = Path(words[0]).name
    if name in command_line.SHELLS and len(words) > 2 and words[1] in ("-c", "-ec", "-lc"):
        text = NOWHERE.sub(" ", words[2])
        simple = [*command_line.simple_commands(text)]
        if not simple or any(sign in text for sign in (">", "<", "$(", "`")):
            return [name] if text.strip() else []
        return [one for each in simple for one in _unnoticed([*each], environment, command_line)]
    harmless = name in HARMLESS or (name == "git" and _git_reads(words))
    harmless = harmless or (name == "openssl" and words[1:2] in [[one] for one in HASHES])
    if harmless and _is_the_systems(words[0], environment) and not _compiles_here(words):
        return []
    if _asks_for_abilities(words):
        return []
    python = _python(words, environment, command_line.PYTHON)
    if python is None or VARIABLE not in environment or command_line.started(python)[0].deaf:
        return [name]
    return []


def _asks_for_abilities(words: Sequence[str]) -> bool:
    """Whether this is torch's own check of the CPU. It starts a Python that nothing watches."""
    template = getattr(getattr(sys.modules.get(ABILITIES), "VecISA", None), "_avx_py_load", None)
    if not isinstance(template, str) or [*words[:2]] != [sys.executable, "-c"] or len(words) != 3:
        return False
    before, _, after = template.partition("__lib_path__")
    library = words[2].removeprefix(before).removesuffix(after)
    return words[2] == f"{before}{library}{after}" and bool(LIBRARY.fullmatch(library))


def _is_the_systems(program: str, environment: Mapping[str, str]) -> bool:
    """Whether this is the system's program, and not the user's script with that name."""
    found = shutil.which(program, path=environment.get("PATH"))
    if found is None:
        return True  # it will not start, or is part of the shell
    path = str(Path(found).resolve().parent) + "/"
    return path.startswith((*SYSTEM, sys.prefix + "/", sys.base_prefix + "/"))


def _compiles_here(words: Sequence[str]) -> bool:
    """Whether a compiler writes into the working folder."""
    here = Path.cwd().resolve()
    outputs = [words[index + 1] for index, word in enumerate(words[:-1]) if word == "-o"]
    return any((here / output).resolve().is_relative_to(here) for output in outputs)


def _git_reads(words: Sequence[str]) -> bool:
    index = 1
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in ("-C", "-c") else 1
    rest = [*words[index:]]
    if any(word.startswith(("--output", "-o")) for word in rest):
        return False
    if not rest or rest[0] in GIT_READS:
        return True
    asked = " ".join(rest)
    return asked in GIT_ASKS or " ".join(rest[:-1]) in ("config --get", "remote get-url")


def _python(
    words: Sequence[str], environment: Mapping[str, str], name: re.Pattern[str]
) -> list[str] | None:
    """Return the words with the interpreter first if a Python runs them, else None."""
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
    # With a long path, installers write a script for sh that names the interpreter in line two.
    for line in lines if lines and lines[0].startswith("#!") else ():
        named = [word.strip("'") for word in line.lstrip("#!").split()]
        for index, word in enumerate(named):
            if name.fullmatch(Path(word).name):
                return ["python", *named[index + 1 :], found, *words[1:]]
    return None
