"""Read the one-line checks of NeMo-RL's `check_metrics.py` as gates on metrics.

Their expressions are Python that their script evaluates. Here they are parsed and never run. What
has another form is listed with its line and the reason. Semantics: `tests/check_metrics.py` of
NVIDIA-NeMo/RL at 7ea279abfbeb698b092856d0dab61e7cf39bc909. One thing differs: a value that is not
finite always fails here, while their `max` and `min` may hide it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from canary.config.metric_gates import MetricGate
from canary.errors import ConfigError, InputError, printable
from canary.imports.nemo_expressions import LONGEST, NotRead, gates_of
from canary.record.jsonio import content_of

LARGEST = 1 << 20
"""Characters of a script; theirs have some thousands."""
MOST_DIGITS = 20
"""Of a shell variable."""
MOST_CHECKS = 1000
PROGRAM = "check_metrics.py"
ASSIGNMENT = re.compile(r"(?<![\w$.{-])(\w+)=(\S*)", re.ASCII)
END_OF_COMMAND = re.compile(r"[;&|<>()]+")


@dataclass(frozen=True)
class Unread:
    """An expression that is not read."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True)
class Checks:
    """What was found in a script."""

    gates: tuple[MetricGate, ...]
    unread: tuple[Unread, ...]
    read: int
    """Expressions that became gates; one may become two."""


def read_checks(text: str, values: Mapping[str, str] | None = None) -> Checks:
    """Read a test script, or a list with one expression per line.

    `values`: of shell variables; by default those that the script sets to a plain number.

    Raises:
        ConfigError: the text is too large, or has too many expressions.
    """
    if len(text) > LARGEST:
        raise ConfigError(f"a script of {len(text)} characters is too large", f"at most {LARGEST}")
    known = {**_numbers_in(text), **(values or {})}
    gates: list[MetricGate] = []
    unread: list[Unread] = []
    read = 0
    for line, found in _expressions(text):
        if read + len(unread) == MOST_CHECKS:
            raise ConfigError(f"more than {MOST_CHECKS} checks in one script", "split it")
        try:
            gates += gates_of(found, known)
            read += 1
        except NotRead as other:
            unread.append(Unread(line, printable(found[:LONGEST]), str(other)))
    return Checks(tuple(gates), tuple(unread), read)


def read_script(script: Path) -> Checks:
    """Read the checks of a file.

    Raises:
        InputError: it cannot be read, or has no check.
        ConfigError: as `read_checks`.
    """
    try:
        text = content_of(script, LARGEST).decode()
    except FileNotFoundError as error:
        raise InputError(f"no script at {script}", "name a test script of NeMo-RL") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{script} is not text in UTF-8") from error
    except OSError as error:
        raise InputError(f"cannot read {script}: {error.strerror}") from error
    found = read_checks(text)
    if not found.read:
        first = next((f", line {one.line}: {one.reason}" for one in found.unread), "")
        raise InputError(
            f"{script} has no check that can be read{first}",
            "name a script that calls check_metrics.py, or a list with a check per line",
        )
    return found


def _numbers_in(text: str) -> dict[str, str]:
    """Return the variables that a script only ever sets to one whole number."""
    found: dict[str, set[str]] = {}
    for name, value in ASSIGNMENT.findall(text):
        found.setdefault(name, set()).add(value.strip("'\""))
    return {
        name: next(iter(values))
        for name, values in found.items()
        if len(values) == 1 and next(iter(values)).isdecimal() and len(*values) <= MOST_DIGITS
    }


def _expressions(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, expression) of each check; of a list without their program, every line."""
    lines = text.splitlines()
    is_script = PROGRAM in text
    inside = not is_script
    skipped = not is_script  # the program is followed by the file with the metrics
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith("#"):
            continue
        continued = line.rstrip().endswith("\\")
        words = _words(line.rstrip().removesuffix("\\"), whole=not is_script)
        if is_script and not inside:
            place = next((at for at, word in enumerate(words) if word.endswith(PROGRAM)), None)
            if place is None:
                continue
            inside, skipped = True, False
            words = words[place + 1 :]
        for word in words:
            if END_OF_COMMAND.fullmatch(word):
                inside = False
                break
            if not skipped:
                skipped = True
            elif not word.startswith("--table-width"):
                yield number, word
        if is_script and not continued:
            inside = False


def _words(line: str, *, whole: bool) -> list[str]:
    """Return the words of a line of a shell script; `whole`: the line is one expression."""
    text = line.strip()
    if whole and text[:1] + text[-1:] not in ("''", '""'):
        return [text] if text else []
    try:
        reader = shlex.shlex(text, posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        return list(reader)
    except ValueError:  # a quote that another line closes
        return [text]


def as_yaml(checks: Checks) -> str:
    """Return the section `metrics` of a config, with a comment for each check that was not read."""
    lines = [
        f"# not read, line {one.line}: {printable(one.text)} ({one.reason})"
        for one in checks.unread
    ]
    lines.append("metrics:" if checks.gates else "metrics: []")
    lines += [f"  - {_flow(gate)}" for gate in checks.gates]
    return "\n".join(lines) + "\n"


def _flow(gate: MetricGate) -> str:
    text: str = yaml.safe_dump(
        gate.written(), default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False
    )
    return text.strip()
