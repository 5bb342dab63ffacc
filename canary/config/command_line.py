"""What a training command says: its launchers, its program, its name. Words alone: nothing runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
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
"""Programs that start the one that trains, with the verb by which they do."""
MODULE_LAUNCHERS = ("accelerate", "coverage", "deepspeed", "python", "torchrun", "uv")
"""Those of them that know `-m module`."""
LAUNCHING_MODULES = (
    "accelerate.commands.launch",
    "coverage",
    "deepspeed.launcher.runner",
    "torch.distributed.launch",
    "torch.distributed.run",
)
"""Python modules that start another program."""
FLAGS = ("--no-python", "--no_python", "--run-path", "--run_path", "--standalone", "-i", "-0")
"""Options of launchers that take no value, as far as it matters."""
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
DURATION = re.compile(r"[0-9.]+[smhd]?")
ASIDE = (
    *("", ".", "[", "cat", "cd", "chmod", "cp", "date", "done", "echo", "esac", "exit", "export"),
    *("false", "fi", "grep", "head", "ls", "mkdir", "mv", "nvidia-smi", "pip", "printf", "pwd"),
    *("rm", "sed", "set", "sleep", "source", "tail", "tee", "test", "touch", "trap", "true"),
    *("ulimit", "unset", "wait", "}"),
)
"""Programs of a shell's script that never train."""
OPENERS = ("!", "do", "else", "if", "then", "until", "while", "{")
"""Words of a shell before a command."""
LONGEST_SCRIPT = 20_000
DEEPEST = 5
"""Shells within shells that are looked through."""
TRAINS = re.compile(r"train|tun(e|ing)|sft|dpo|grpo|ppo|rl")

DEAF = {
    "I": "isolated from its environment",
    "S": "without the site module",
    "E": "ignoring its environment",
}
"""Options of Python that keep the canary out, and what they do."""


KEPT_PATH = re.compile(r"\$\{?PYTHONPATH")


@dataclass(frozen=True)
class Started:
    """One command, looked through down to the program that it starts."""

    assigned: tuple[tuple[str, str], ...] = ()
    """Variables that are set before it."""
    launch: tuple[str, ...] = ()
    """Words before the program: launchers with their options, an interpreter with its own."""
    program: str = ""
    """A script, a module or a program; empty where it is code."""
    arguments: tuple[str, ...] = ()
    deaf: tuple[str, str] | None = field(default=None, compare=False)
    """Why its Python would not let the canary in, and what to do about it."""


def started(command: Sequence[str]) -> tuple[Started, ...]:
    """What a command starts, as far as its words show it: several where a shell does."""
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
    """The script of `sh -c SCRIPT`; None for one in a file."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        letters = words[place][1:]
        place += 1
        if "c" in letters and not letters.startswith("-"):
            return _first(words[place:])
        place += letters.endswith("o")
    return None


def simple_commands(script: str) -> Iterator[tuple[str, ...]]:
    """The simple commands of a shell's script; none of one that is not understood."""
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
    into = False
    for token in (*tokens, ";"):
        if into:
            into = False
        elif set(token) <= set("<>&|()") and set(token) & set("<>"):
            into = True
        elif set(token) <= set(";|&()"):
            if words:
                yield tuple(words)
            words = []
        elif words or token not in OPENERS:
            words.append(token)


def _through_python(words: tuple[str, ...], so_far: Started) -> tuple[Started, tuple[str, ...]]:
    """Past the interpreter: (with the program in it, nothing), or what its module starts."""
    place, deaf = 1, so_far.deaf
    while place < len(words) and words[place].startswith("-") and len(words[place]) > 1:
        word = words[place]
        place += 1
        if word.startswith("--"):
            place += word == "--check-hash-based-pycs"
            continue
        for at, letter in enumerate(word[1:], start=2):
            if letter in DEAF and deaf is None:
                deaf = (
                    f"-{letter} starts Python {DEAF[letter]}: the canary cannot watch it",
                    f"start it without -{letter}",
                )
            if letter not in "cmWX":
                continue
            value = word[at:] or _first(words[place:])
            place += not word[at:]
            if letter in "cm":
                return _target(words, so_far, deaf, place, letter, value)
            break
    so_far = replace(so_far, launch=(*so_far.launch, *words[:place]), deaf=deaf)
    return replace(so_far, program=_first(words[place:]), arguments=words[place + 1 :]), ()


def _target(
    words: tuple[str, ...],
    so_far: Started,
    deaf: tuple[str, str] | None,
    place: int,
    letter: str,
    value: str,
) -> tuple[Started, tuple[str, ...]]:
    """What `python -m value` or `python -c value` runs, `place` being the word after it."""
    rest = words[place:]
    if letter == "m" and value in LAUNCHING_MODULES:
        so_far = replace(so_far, deaf=deaf)
        begins = _next_program(rest, modules=True)
        launch = (*so_far.launch, *words[:place], *rest[:begins])
        found = replace(so_far, launch=launch)
        return found, rest[begins + (_first(rest[begins:]) in ("-m", "--module")) :]
    before = words[: place - 1] if letter == "m" else words[:place]
    so_far = replace(so_far, launch=(*so_far.launch, *before), deaf=deaf)
    return replace(so_far, program=value if letter == "m" else "", arguments=rest), ()


def _through_launcher(words: tuple[str, ...], so_far: Started) -> tuple[Started, tuple[str, ...]]:
    """Past a launcher, its verb and its options."""
    head = PurePath(words[0]).name
    begins = 2 if LAUNCHERS[head] else 1
    begins += _next_program(words[begins:], modules=head in MODULE_LAUNCHERS)
    own = words[:begins]
    if head == "env":
        set_ = tuple((m[1], m[2]) for m in map(ASSIGNMENT.fullmatch, own) if m)
        so_far = replace(so_far, assigned=(*so_far.assigned, *set_))
        own = tuple(word for word in own if not ASSIGNMENT.fullmatch(word))
        if {"-i", "-", "--ignore-environment"} & set(own):
            why = "env -i clears the environment: the canary cannot watch it"
            so_far = replace(so_far, deaf=(why, "start it without -i"))
    return replace(so_far, launch=(*so_far.launch, *own)), words[begins:]


def _next_program(words: Sequence[str], *, modules: bool) -> int:
    """Where a launcher's own words end: at a script, a known program or `-m`; without any, at the
    first word that is no option, nor the value of one."""
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


def why_deaf(command: Sequence[str]) -> tuple[str, str] | None:
    """Why no Python of a command would let the canary in, and the remedy; None where one may."""
    training = [one for one in started(command) if PurePath(one.program).name not in ASIDE]
    coded = [one for one in started(command) if not one.program and one.launch]
    found = [one.deaf for one in (*training, *coded)]
    return found[0] if found and all(found) else None


def replaced_path(command: Sequence[str]) -> str | None:
    """The value that a command's words give PYTHONPATH without what it was: the canary is let in by
    a folder of its own there, and sees such a Python only through `canary.Recorder`."""
    variables = (pair for one in started(command) for pair in one.assigned)
    values = [value for name, value in variables if name == "PYTHONPATH"]
    return next((value for value in values if not KEPT_PATH.search(value)), None)


def name_of(command: Sequence[str]) -> str | None:
    """A canary's name after the program that trains: `train.py` is train, `-m pkg.train` is
    pkg.train, `trl sft` is trl-sft. None where there is none to take."""
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
