"""Find the programs that a training command starts, and their words. Nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

PYTHON = re.compile(r"(?:python|pypy)[0-9.]*t?")
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
LAUNCHING = re.compile(r"accelerate\.|coverage$|deepspeed\.|torch\.distributed\.")
"""Python modules that start another program."""
SCRIPTS = (".py", ".sh")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
OPENERS = ("!", "do", "else", "if", "then", "until", "while", "{")
"""Shell keywords that come before a command."""
LONGEST_SCRIPT = 20_000
TRAINS = re.compile(r"train|tun(e|ing)|sft|dpo|grpo|ppo|rl")


@dataclass(frozen=True)
class Started:
    """The words of one program."""

    launch: tuple[str, ...]
    """Words before the program: variables, launchers and an interpreter, with their options."""
    program: str
    """A script, a module or a program; empty for `python -c` and for Python alone."""
    arguments: tuple[str, ...]


def started(command: Sequence[str]) -> tuple[Started, ...]:
    """Return the programs that a command starts; a shell may start several."""
    script = _script(command)
    if script is None:
        return (_parsed(tuple(command)),)
    return tuple(one for words in simple_commands(script) for one in started(words))


def _script(words: Sequence[str]) -> str | None:
    """Return the script of `sh -c SCRIPT`; None for other commands."""
    names = [PurePath(word).name for word in words]
    shell = next((place for place, name in enumerate(names) if name in SHELLS), len(words))
    option = ""
    for word, following in zip(words[shell + 1 :], words[shell + 2 :], strict=False):
        if not (word.startswith("-") or option.endswith("o")):
            break
        option = word
        if re.fullmatch(r"-\w*c\w*", word):
            return following
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


def _parsed(words: tuple[str, ...]) -> Started:
    """Split at the script, at the module of `-m`, or behind the code of `-c`; else at a program
    whose name says that it trains, or at the first one."""
    python = False
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        python = python or PYTHON.fullmatch(PurePath(word).name) is not None
        if python and word == "-c":
            return Started(words[: place + 2], "", words[place + 2 :])
        if word in ("-m", "--module") and place and not LAUNCHING.match(following):
            return Started(words[:place], following, words[place + 2 :])
        if word.endswith(SCRIPTS) and not word.startswith("-") and not ASSIGNMENT.match(word):
            return Started(words[:place], word, words[place + 1 :])
    plain = [n for n, word in enumerate(words) if not re.match(r"-|[A-Za-z_]\w*=", word)]
    programs = [n for n in plain if not PYTHON.fullmatch(PurePath(words[n]).name)]
    training = [n for n in programs if TRAINS.search(PurePath(words[n]).name)]
    chosen = next(iter(training or programs), None)
    if chosen is None:
        return Started(words, "", ())
    return Started(words[:chosen], words[chosen], words[chosen + 1 :])


def name_of(command: Sequence[str]) -> str | None:
    """Return a canary name after the program that trains, or None: `train` for `train.py`,
    `pkg.train` for `-m pkg.train`, `trl-sft` for `trl sft`."""
    known = [(name, one) for one in started(command) if (name := _name(one))]
    training = [name for name, _ in known if TRAINS.search(name)]
    scripts = [name for name, one in known if one.program.endswith(SCRIPTS)]
    return next(iter(training or scripts or [name for name, _ in known[-1:]]), None)


def _name(one: Started) -> str:
    path = PurePath(one.program)
    name = path.stem if path.suffix in SCRIPTS else path.name
    verb = one.arguments[0] if one.arguments else ""
    if name == one.program.rpartition("/")[2] and "." not in name:
        name += f"-{verb}" if re.fullmatch(r"[a-z][a-z0-9_-]*", verb) else ""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64]
