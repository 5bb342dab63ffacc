"""Read the one-line checks of NeMo-RL's `check_metrics.py` as gates on metrics.

Their expressions are Python that their script evaluates. Here they are parsed and never run. What
has another form is listed with its line and the reason. Semantics: `tests/check_metrics.py` of
NVIDIA-NeMo/RL at 7ea279abfbeb698b092856d0dab61e7cf39bc909. One thing differs: a value that is not
finite always fails here, while their `max` and `min` may hide it.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from canary.config.metric_gates import MetricGate
from canary.errors import ConfigError, InputError, printable
from canary.record.jsonio import content_of

LARGEST = 1 << 20
"""Characters of a script; theirs have some thousands."""
LONGEST = 500
"""Characters of an expression."""
MOST_DIGITS = 20
"""Of a shell variable."""
MOST_CHECKS = 1000
DEEPEST = 20
PROGRAM = "check_metrics.py"
VARIABLE = re.compile(r"\$(?:(\w+)|\{([^{}]*)\})", re.ASCII)
ASSIGNMENT = re.compile(r"(?<![\w$.{-])(\w+)=(\S*)", re.ASCII)
END_OF_COMMAND = re.compile(r"[;&|<>()]+")
FUNCTIONS = ("mean", "median", "min", "max", "ratio_above")
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
}


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


class _Other(Exception):
    """The expression has another form."""


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
        except _Other as other:
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


def gates_of(text: str, values: Mapping[str, str]) -> list[MetricGate]:
    """Return the gates of one expression; `_Other` if it has another form."""
    if len(text) > LONGEST:
        raise _Other(f"longer than {LONGEST} characters")

    def value_of(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in values:
            raise _Other(f"the value of the shell variable {printable(name)} is not known")
        return values[name]

    text = VARIABLE.sub(value_of, text)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _Other("it is not a Python expression") from None
    try:
        return [_gate(keys) for keys in _conditions(tree, 0)]
    except ValidationError as error:
        raise _Other(error.errors()[0]["msg"]) from None


def _gate(keys: Mapping[str, Any]) -> MetricGate:
    return MetricGate.model_validate({**keys, "spikes": 0})


Keys = dict[str, Any]


@dataclass(frozen=True)
class _Term:
    """One side of a comparison: a statistic of a metric."""

    keys: Keys
    absolute: bool = False
    """Whether its size is compared, without its sign."""


def _conditions(tree: ast.expr, depth: int) -> Iterator[Keys]:
    """Yield the keys of each gate that an expression stands for."""
    if depth > DEEPEST:
        raise _Other("it nests too deep")
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        for part in tree.values:
            yield from _conditions(part, depth + 1)
        return
    if not isinstance(tree, ast.Compare):
        raise _Other("it is not a comparison")
    sides = [tree.left, *tree.comparators]
    for left, op, right in zip(sides, tree.ops, sides[1:], strict=False):
        if isinstance(op, ast.In):
            yield _has_step(left, right)
            continue
        sign = OPERATORS.get(type(op))
        if sign is None:
            raise _Other("it compares with an operator other than <, <=, >, >= and ==")
        yield from _comparison(left, sign, right)


def _has_step(left: ast.expr, right: ast.expr) -> Keys:
    """Read `"3" in data["x"]`: the metric has a value at step 3."""
    step = _step(left)
    return {
        "name": _series(right),
        "statistic": "count",
        "from_step": step,
        "to_step": step,
        "worse": "lower",
        "limit": 1.0,
    }


def _comparison(left: ast.expr, sign: str, right: ast.expr) -> Iterator[Keys]:
    limit = _number(right)
    if limit is None and _number(left) is not None:
        left, sign, right = right, FLIPPED[sign], left
        limit = _number(right)
    term, factor = _term(left, 0), 1.0
    if limit is None:
        base, factor = _multiple(right)
        term = replace(term, keys=_of_step(term, base))
        limit = factor
    if "falls" in term.keys:
        # (first - value) / first > 0.2 says value / first < 1 - 0.2
        term = replace(term, keys={k: v for k, v in term.keys.items() if k != "falls"})
        sign, limit = FLIPPED[sign], 1.0 - limit
    if not term.absolute:
        yield {**term.keys, **_direction(sign), "limit": limit}
        return
    if sign not in ("<", "<="):
        raise _Other("abs() is read only below a limit")
    yield {**term.keys, **_direction(sign), "limit": limit}
    yield {**term.keys, **_direction(FLIPPED[sign]), "limit": -limit}


def _direction(sign: str) -> Keys:
    if sign == "==":
        return {"worse": "both"}
    worse = "higher" if sign.startswith("<") else "lower"
    return {"worse": worse, "exclusive": True} if len(sign) == 1 else {"worse": worse}


def _of_step(term: _Term, base: Keys) -> Keys:
    """Return the keys of a statistic that is divided by a value of the same metric."""
    if term.absolute or "of_step" in term.keys or base["name"] != term.keys["name"]:
        raise _Other("it compares two metrics, or three values")
    return {**term.keys, "of_step": base["step"]}


def _term(tree: ast.expr, depth: int) -> _Term:
    """Read a statistic of one metric."""
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Div):
        return _Term(_fall(tree))
    if not isinstance(tree, ast.Call):
        return _Term(_point(tree) if _is_point(tree) else {"name": _series(tree), **LAST})
    name = tree.func.id if isinstance(tree.func, ast.Name) else ""
    if name == "abs" and len(tree.args) == 1 and not tree.keywords and not depth:
        return replace(_term(tree.args[0], depth + 1), absolute=True)
    if name == "len" and len(tree.args) == 1 and not tree.keywords:
        return _Term({"name": _series(tree.args[0]), "statistic": "count"})
    if name not in FUNCTIONS or not tree.args:
        raise _Other(f"it calls {name or 'something'}, which has no statistic here")
    return _Term({"name": _series(tree.args[0]), **_statistic(name, tree)})


LAST: Keys = {"statistic": "last"}
"""A metric that their script writes as one number has one value here."""


def _statistic(name: str, call: ast.Call) -> Keys:
    """Return statistic and window of a call of one of their functions."""
    given = dict(zip(PARAMETERS[name], call.args[1:], strict=False))
    given |= {word.arg or "": word.value for word in call.keywords}
    numbers = {key: _number(value) for key, value in given.items()}
    if len(call.args) > len(PARAMETERS[name]) + 1 or None in numbers.values():
        raise _Other(f"{name} has arguments that are not read")
    if name == "ratio_above" and list(numbers) == ["threshold"]:
        return {"statistic": "share_above", "above": numbers["threshold"]}
    if name in ("min", "max") and not numbers:
        return {"statistic": name}
    if name not in ("mean", "median") or not numbers.keys() <= {"range_start", "range_end"}:
        raise _Other(f"{name} with {', '.join(sorted(numbers)) or 'these arguments'} is not read")
    first, end = (_whole(numbers.get(key, other)) for key, other in (RANGE_START, RANGE_END))
    keys: Keys = {"statistic": name, "from_step": first}
    if end:
        keys["to_step"] = end - 1  # their end is exclusive
    return keys


PARAMETERS: Mapping[str, Sequence[str]] = {
    "mean": ("range_start", "range_end", "ignore_top_p"),
    "median": ("range_start", "range_end"),
    "min": (),
    "max": (),
    "ratio_above": ("threshold",),
}
RANGE_START, RANGE_END = ("range_start", 1.0), ("range_end", 0.0)
"""Parameters of their `mean` and `median`, and their defaults."""


def _whole(value: float | None) -> int:
    if value is None or not value.is_integer():
        raise _Other("a step is not a whole number")
    return int(value)


def _fall(tree: ast.BinOp) -> Keys:
    """Read `(data["x"]["1"] - mean(data["x"], ...)) / data["x"]["1"]`."""
    above, base = tree.left, tree.right
    if not (isinstance(above, ast.BinOp) and isinstance(above.op, ast.Sub) and _is_point(base)):
        raise _Other("it divides something else than a difference by its start")
    if not _is_point(above.left) or _point(above.left) != _point(base):
        raise _Other("it divides a difference by something else than its start")
    return {**_of_step(_term(above.right, 1), _point(base)), "falls": True}


def _multiple(tree: ast.expr) -> tuple[Keys, float]:
    """Read `0.6 * data["x"]["1"]`, in either order, or the value alone."""
    if _is_point(tree):
        return _point(tree), 1.0
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult):
        for number, point in ((tree.left, tree.right), (tree.right, tree.left)):
            factor = _number(number)
            if factor is not None and _is_point(point):
                return _point(point), factor
    raise _Other("its limit is neither a number nor a multiple of the metric's value at a step")


def _is_point(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Subscript)


def _point(tree: ast.expr) -> Keys:
    """Read `data["x"]["450"]`."""
    assert isinstance(tree, ast.Subscript)
    return {"name": _series(tree.value), "statistic": "at", "step": _step(tree.slice)}


def _step(tree: ast.expr) -> int:
    """Return a step, which their JSON holds as text."""
    if not (isinstance(tree, ast.Constant) and isinstance(tree.value, str)):
        raise _Other("a step is not text")
    if not re.fullmatch(r"\d{1,15}", tree.value, re.ASCII):
        raise _Other(f"{printable(tree.value[:20])!r} is not a step")
    return int(tree.value)


def _series(tree: ast.expr) -> str:
    """Return the metric's name in `data["x"]`."""
    is_data = isinstance(tree, ast.Subscript) and (
        isinstance(tree.value, ast.Name) and tree.value.id == "data"
    )
    if not (
        isinstance(tree, ast.Subscript)
        and is_data
        and isinstance(tree.slice, ast.Constant)
        and isinstance(tree.slice.value, str)
    ):
        raise _Other("it reads something else than data[...]")
    return tree.slice.value


def _number(tree: ast.expr, depth: int = 0) -> float | None:
    """Return the value of a number, also of a sum, difference, product or quotient of numbers."""
    if depth > DEEPEST:
        return None
    if isinstance(tree, ast.Constant):
        value = tree.value
        if not isinstance(value, float | int) or isinstance(value, bool):
            return None
        return float(value) if abs(value) < LARGEST_NUMBER else None
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub | ast.UAdd):
        inner = _number(tree.operand, depth + 1)
        sign = -1.0 if isinstance(tree.op, ast.USub) else 1.0
        return None if inner is None else sign * inner
    if not isinstance(tree, ast.BinOp):
        return None
    left, right = _number(tree.left, depth + 1), _number(tree.right, depth + 1)
    if left is None or right is None:
        return None
    combine = ARITHMETIC.get(type(tree.op))
    if combine is None or (isinstance(tree.op, ast.Div) and not right):
        return None
    found = combine(left, right)
    return found if math.isfinite(found) else None


LARGEST_NUMBER = 1e300
ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


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
