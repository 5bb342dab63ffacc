"""Compares two training commands option by option. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from canary.compare.report import KeyChange
from canary.config.command_line import PYTHON, SHELLS, started
from canary.config.redaction import hidden
from canary.config.sections import as_number
from canary.config.setting_names import is_place, is_secret, plain_name
from canary.config.trainers import OWN_KEYS

PROGRAM, LAUNCHER, ARGUMENTS = "command", "launcher", "arguments"
"""Keys of the words that are not options: the program, its launcher, positional arguments."""
USUAL = {
    "lr": "learning_rate",
    "bs": "batch_size",
    "wd": "weight_decay",
    "epochs": "num_train_epochs",
    "steps": "max_steps",
    "max_iters": "max_steps",
    "dataset": "dataset_name",
    "model": "model_name",
    "model_name_or_path": "model_name",
}
"""Short names that scripts use for trainer settings."""
SETTING = re.compile(r"[+~]*[A-Za-z_@][\w./@-]*=", re.ASCII)
OPTION = re.compile(r"--?[A-Za-z]")
MOST_WORDS = 1000
"""A longer command is compared as a whole."""
Options = dict[str, tuple[str, Any]]
"""Normalized name -> (name as written, value)."""


def command_changes(baseline: Any, current: Any) -> tuple[KeyChange, ...]:
    """Return what differs between two commands (lists of words): options, launchers, program.

    Options that name paths or runs are cosmetic, and so is the folder of the program."""
    # Older records were written with their secrets.
    baseline, current = (hidden(c) if _is_strings(c) else c for c in (baseline, current))
    if baseline == current or not (baseline or current):
        return ()
    if not all(_is_strings(words) and len(words) <= MOST_WORDS for words in (baseline, current)):
        return (KeyChange(PROGRAM, baseline or None, current or None),)
    was, now = _options_of(baseline), _options_of(current)
    found = []
    for name in (*now, *(name for name in was if name not in now)):
        written, after = now.get(name, (name, None))
        before_written, before = was.get(name, (name, None))
        if _same(before, after) or is_secret(name):
            continue
        files = {PurePath(str(side)).name for side in (before, after)}
        cosmetic = is_place(name) or (name == PROGRAM and len(files) == 1)
        key = written if name in now else before_written
        found.append(KeyChange(key, before, after, cosmetic))
    return tuple(found)


def without_repeats(
    changes: Sequence[KeyChange], command: Sequence[KeyChange]
) -> tuple[KeyChange, ...]:
    """Drop trainer settings that repeat a change of a command's option."""
    return tuple(
        change
        for change in changes
        if change in command or not any(_repeats(change, option) for option in command)
    )


def setting_name(key: str) -> str:
    """Return the trainer's name for the setting that a key or a command's option sets."""
    name = plain_name(key).rpartition(".")[2]
    return USUAL.get(name) or OWN_KEYS.get(name) or name


def _repeats(change: KeyChange, option: KeyChange) -> bool:
    same = setting_name(change.key) == setting_name(option.key)
    pairs = ((change.baseline, option.baseline), (change.current, option.current))
    return same and all(_same(ours, theirs) for ours, theirs in pairs)


def _is_strings(command: Any) -> bool:
    return isinstance(command, list) and all(isinstance(word, str) for word in command)


def _same(before: Any, after: Any) -> bool:
    if "True" in (str(before), str(after)):
        return str(before).lower() == str(after).lower()
    return bool(as_number(before) == as_number(after))


def _options_of(command: Sequence[str]) -> Options:
    """Return the options, launchers, program and arguments of a command, by normalized name."""
    values: dict[str, list[str]] = {}
    written: dict[str, str] = {}
    for key, found in _parts(command):
        name = key if key in (PROGRAM, LAUNCHER, ARGUMENTS) else plain_name(key)
        written.setdefault(name, key)
        values.setdefault(name, []).extend(found)
    return {name: (written[name], " ".join(found) or True) for name, found in values.items()}


def _parts(command: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield (key, values) of what a command says, in its order."""
    for one in started(command):
        for key, found in _options(one.launch, most=1):
            if key == ARGUMENTS:
                names = (PurePath(word).name for word in found)
                key = LAUNCHER
                found = ["python" if PYTHON.fullmatch(n) else n for n in names if n not in SHELLS]
            if found or key != LAUNCHER:
                yield key, found
        if one.program:
            yield PROGRAM, [one.program]
        yield from _options(one.arguments, most=len(one.arguments))


def _options(words: Sequence[str], most: int) -> Iterator[tuple[str, list[str]]]:
    """Yield (option, its values): at most `most` following words, or the value after `=` (also for
    Hydra settings). Positional words come as `ARGUMENTS`."""
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if SETTING.match(word) or (OPTION.match(word) and "=" in word):
            key, _, value = word.partition("=")
            yield key, [value]
        elif OPTION.match(word):
            values: list[str] = []
            while place < len(words) and len(values) < most and _is_value(words[place]):
                values.append(words[place])
                place += 1
            yield word, values
        elif word != "--":
            yield ARGUMENTS, [word]


def _is_value(word: str) -> bool:
    return not OPTION.match(word) and not SETTING.match(word) and word != "--"
