"""One check of NeMo-RL's `check_metrics.py`, a Python expression, as gates on metrics.

It is parsed and never run. Its semantics are those that `canary.imports.nemo_checks` names.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from canary.config.metric_gates import MetricGate
from canary.errors import printable

LONGEST = 500
"""Characters of an expression."""
DEEPEST = 20
VARIABLE = re.compile(r"\$(?:(\w+)|\{([^{}]*)\})", re.ASCII)
FUNCTIONS = ("mean", "median", "min", "max", "ratio_above")
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
}


class NotRead(Exception):
    """The expression has another form."""


def gates_of(text: str, values: Mapping[str, str]) -> list[MetricGate]:
    """Return the gates of one expression; `NotRead` if it has another form."""
    if len(text) > LONGEST:
        raise NotRead(f"longer than {LONGEST} characters")

    def value_of(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in values:
            raise NotRead(f"the value of the shell variable {printable(name)} is not known")
        return values[name]

    text = VARIABLE.sub(value_of, text)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotRead("it is not a Python expression") from None
    try:
        return [_gate(keys) for keys in _conditions(tree, 0)]
    except ValidationError as error:
        raise NotRead(error.errors()[0]["msg"]) from None


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
        raise NotRead("it nests too deep")
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        for part in tree.values:
            yield from _conditions(part, depth + 1)
        return
    if not isinstance(tree, ast.Compare):
        raise NotRead("it is not a comparison")
    sides = [tree.left, *tree.comparators]
    for left, op, right in zip(sides, tree.ops, sides[1:], strict=False):
        if isinstance(op, ast.In):
            yield _has_step(left, right)
            continue
        sign = OPERATORS.get(type(op))
        if sign is None:
            raise NotRead("it compares with an operator other than <, <=, >, >= and ==")
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
        raise NotRead("abs() is read only below a limit")
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
        raise NotRead("it compares two metrics, or three values")
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
        raise NotRead(f"it calls {name or 'something'}, which has no statistic here")
    return _Term({"name": _series(tree.args[0]), **_statistic(name, tree)})


LAST: Keys = {"statistic": "last"}
"""A metric that their script writes as one number has one value here."""


def _statistic(name: str, call: ast.Call) -> Keys:
    """Return statistic and window of a call of one of their functions."""
    given = dict(zip(PARAMETERS[name], call.args[1:], strict=False))
    given |= {word.arg or "": word.value for word in call.keywords}
    numbers = {key: _number(value) for key, value in given.items()}
    if len(call.args) > len(PARAMETERS[name]) + 1 or None in numbers.values():
        raise NotRead(f"{name} has arguments that are not read")
    if name == "ratio_above" and list(numbers) == ["threshold"]:
        return {"statistic": "share_above", "above": numbers["threshold"]}
    if name in ("min", "max") and not numbers:
        return {"statistic": name}
    if name not in ("mean", "median") or not numbers.keys() <= {"range_start", "range_end"}:
        raise NotRead(f"{name} with {', '.join(sorted(numbers)) or 'these arguments'} is not read")
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
        raise NotRead("a step is not a whole number")
    return int(value)


def _fall(tree: ast.BinOp) -> Keys:
    """Read `(data["x"]["1"] - mean(data["x"], ...)) / data["x"]["1"]`."""
    above, base = tree.left, tree.right
    if not (isinstance(above, ast.BinOp) and isinstance(above.op, ast.Sub) and _is_point(base)):
        raise NotRead("it divides something else than a difference by its start")
    if not _is_point(above.left) or _point(above.left) != _point(base):
        raise NotRead("it divides a difference by something else than its start")
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
    raise NotRead("its limit is neither a number nor a multiple of the metric's value at a step")


def _is_point(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Subscript)


def _point(tree: ast.expr) -> Keys:
    """Read `data["x"]["450"]`."""
    assert isinstance(tree, ast.Subscript)
    return {"name": _series(tree.value), "statistic": "at", "step": _step(tree.slice)}


def _step(tree: ast.expr) -> int:
    """Return a step, which their JSON holds as text."""
    if not (isinstance(tree, ast.Constant) and isinstance(tree.value, str)):
        raise NotRead("a step is not text")
    if not re.fullmatch(r"\d{1,15}", tree.value, re.ASCII):
        raise NotRead(f"{printable(tree.value[:20])!r} is not a step")
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
        raise NotRead("it reads something else than data[...]")
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
