"""Parse a training command: its launchers, its program and its name. Nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

PYTHON = re.compile(r"(?:python|pypy)[0-9.]*t?")
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
LAUNCHERS = {
    "accelerate": "launch",
    **dict.fromkeys(("conda", "hatch", "mamba", "micromamba", "pdm", "pipenv", "pixi"), "run"),
    **dict.fromkeys(("coverage", "poetry", "rye", "uv"), "run"),
    **dict.fromkeys(("deepspeed", "horovodrun", "mpiexec", "mpirun", "srun", "torchrun"), ""),
    **dict.fromkeys(("chrt", "env", "exec", "ionice", "nice", "nohup", "numactl", "setsid"), ""),
    **dict.fromkeys(("stdbuf", "taskset", "time", "timeout", "xvfb-run"), ""),
}
"""Programs that start another program -> their subcommand, or ""."""
MODULE_LAUNCHERS = ("accelerate", "coverage", "deepspeed", "python", "torchrun", "uv")
"""Launchers that accept `-m module`."""
LAUNCHING_MODULES = (
    "accelerate.commands.launch",
    "coverage",
    "deepspeed.launcher.runner",
    "torch.distributed.launch",
    "torch.distributed.run",
)
"""Python modules that start another program."""
FLAGS = ("--no-python", "--no_python", "--run-path", "--run_path", "--standalone", "-i", "-0")
"""Common options of launchers that take no value."""
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
DURATION = re.compile(r"[0-9.]+[smhd]?")
ASIDE = (
    *("", ".", "[", "cat", "cd", "chmod", "cp", "date", "done", "echo", "esac", "exit", "export"),
    *("false", "fi", "grep", "head", "ls", "mkdir", "mv", "nvidia-smi", "pip", "printf", "pwd"),
    *("rm", "sed", "set", "sleep", "source", "tail", "tee", "test", "touch", "trap", "true"),
    *("ulimit", "unset", "wait", "}"),
)
"""Programs in a shell script that never train."""
OPENERS = ("!", "do", "else", "if", "then", "until", "while", "{")
"""Shell keywords that come before a command."""
LONGEST_SCRIPT = 20_000
DEEPEST = 5
"""Nested shells that are parsed."""
TRAINS = re.compile(r"train|tun(e|ing)|sft|dpo|grpo|ppo|rl")


@dataclass(frozen=True)
class Started:
    """A command, parsed down to the program that its launchers start."""

    assigned: tuple[tuple[str, str], ...] = ()
    """Environment variables that the command sets."""
    launch: tuple[str, ...] = ()
    """Words before the program: launchers and an interpreter, each with its options."""
    program: str = ""
    """A script, a module or a program; empty for `python -c`."""
    arguments: tuple[str, ...] = ()


def started(command: Sequence[str]) -> tuple[Started, ...]:
    """Return the programs that a command starts; a shell may start several."""
    return tuple(_through(tuple(command), Started(), 0))


def _through(words: tuple[str, ...], so_far: Started, depth: int) -> Iterator[Started]:
    while words:
        head, rest = PurePath(words[0]).name, words[1:]
        assigned = ASSIGNMENT.fullmatch(words[0])
        if assigned:
            variables = (*so_far.assigned, (assigned[1], assigned[2]))
            so_far, words = replace(so_far, assigned=variables), rest
        elif head in SHELLS and depth < DEEPEST:
            script = _script(rest)
            if script is None:
                yield replace(so_far, program=_first(rest), arguments=rest[1:])
                return
            for simple in simple_commands(script):
                yield from _through(simple, so_far, depth + 1)
            return
        elif PYTHON.fullmatch(head):
            so_far, words = _through_python(words, so_far)
            if not words:
                yield so_far
                return
        elif head in LAUNCHERS and LAUNCHERS[head] in ("", _first(rest)):
            so_far, words = _through_launcher(words, so_far)
            if words and words[0] in ("-m", "--module"):
                words = words[1:]
                break
        else:
            break
    yield replace(so_far, program=_first(words), arguments=words[1:])


def _first(words: Sequence[str]) -> str:
    return words[0] if words else ""


def _script(words: Sequence[str]) -> str | None:
    """Return the script of `sh -c SCRIPT`; None for a script in a file."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        letters = words[place][1:]
        place += 1
        if "c" in letters and not letters.startswith("-"):
            return _first(words[place:])
        place += letters.endswith("o")
    return None


def simple_commands(script: str) -> Iterator[tuple[str, ...]]:
    """Yield the simple commands of a shell script; nothing if it cannot be parsed."""
    lines = script.replace("\\\n", " ").splitlines()
    text = " ; ".join(line for line in lines if not line.lstrip().startswith("#"))
    text = re.sub(r"(?<=\s)[0-2](?=[<>])", "", text)
    lexer = shlex.shlex(text[:LONGEST_SCRIPT], posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        tokens = list(lexer)
    except ValueError:  # an open quote
        return
    words: list[str] = []
    is_target = False  # the word after a redirection
    for token in (*tokens, ";"):
        if is_target:
            is_target = False
        elif set(token) <= set("<>&|()") and set(token) & set("<>"):
            is_target = True
        elif set(token) <= set(";|&()"):
            if words:
                yield tuple(words)
            words = []
        elif words or token not in OPENERS:
            words.append(token)


def _through_python(words: tuple[str, ...], so_far: Started) -> tuple[Started, tuple[str, ...]]:
    """Parse `python ...`. Return the result and the words still to parse (after a launcher)."""
    place = 1
    while place < len(words) and words[place].startswith("-") and len(words[place]) > 1:
        word = words[place]
        place += 1
        if word.startswith("--"):
            place += word == "--check-hash-based-pycs"
            continue
        for at, letter in enumerate(word[1:], start=2):
            if letter not in "cmWX":
                continue
            value = word[at:] or _first(words[place:])
            place += not word[at:]
            if letter in "cm":
                return _target(words, so_far, place, letter, value)
            break
    so_far = replace(so_far, launch=(*so_far.launch, *words[:place]))
    return replace(so_far, program=_first(words[place:]), arguments=words[place + 1 :]), ()


def _target(
    words: tuple[str, ...], so_far: Started, place: int, letter: str, value: str
) -> tuple[Started, tuple[str, ...]]:
    """Parse `python -m value` or `python -c value`; `place` is the index after `value`."""
    rest = words[place:]
    if letter == "m" and value in LAUNCHING_MODULES:
        start = _next_program(rest, modules=True)
        found = replace(so_far, launch=(*so_far.launch, *words[:place], *rest[:start]))
        return found, rest[start + (_first(rest[start:]) in ("-m", "--module")) :]
    before = words[: place - 1] if letter == "m" else words[:place]
    so_far = replace(so_far, launch=(*so_far.launch, *before))
    return replace(so_far, program=value if letter == "m" else "", arguments=rest), ()


def _through_launcher(words: tuple[str, ...], so_far: Started) -> tuple[Started, tuple[str, ...]]:
    """Parse a launcher with its subcommand and options. Return the result and the other words."""
    head = PurePath(words[0]).name
    end = 2 if LAUNCHERS[head] else 1
    end += _next_program(words[end:], modules=head in MODULE_LAUNCHERS)
    launch = words[:end]
    if head == "env":
        set_ = tuple((m[1], m[2]) for m in map(ASSIGNMENT.fullmatch, launch) if m)
        so_far = replace(so_far, assigned=(*so_far.assigned, *set_))
        launch = tuple(word for word in launch if not ASSIGNMENT.fullmatch(word))
    return replace(so_far, launch=(*so_far.launch, *launch)), words[end:]


def _next_program(words: Sequence[str], *, modules: bool) -> int:
    """Return where a launcher's options end: at a script, a known program or `-m`, or else at the
    first word that is neither an option nor its value."""
    for place, word in enumerate(words):
        name = PurePath(word).name
        known = name in SHELLS or name in LAUNCHERS or PYTHON.fullmatch(name)
        if known or word.endswith(".py") or (modules and word in ("-m", "--module")):
            return place
    place = 0
    while place < len(words):
        word = words[place]
        option = word.startswith("-")
        if not option and not ASSIGNMENT.fullmatch(word) and not DURATION.fullmatch(word):
            break
        place += 2 if option and word not in FLAGS and "=" not in word else 1
    return min(place, len(words))


def name_of(command: Sequence[str]) -> str | None:
    """Return a canary name after the program that trains, or None: `train` for `train.py`,
    `pkg.train` for `-m pkg.train`, `trl-sft` for `trl sft`."""
    names = [_name(one) for one in started(command) if PurePath(one.program).name not in ASIDE]
    known = [name for name in names if name]
    training = [name for name in known if TRAINS.search(name)]
    return next(iter(training or known[-1:]), None)


def _name(one: Started) -> str:
    path = PurePath(one.program)
    name = path.stem if path.suffix in (".py", ".sh") else path.name
    verb = _first(one.arguments)
    if name == one.program.rpartition("/")[2] and "." not in name:
        name += f"-{verb}" if re.fullmatch(r"[a-z][a-z0-9_-]*", verb) else ""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64]
